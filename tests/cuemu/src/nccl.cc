/* A stand-in for NCCL between processes of one machine, or threads of one process: messages are files in memory. What a
 * communicator moves is a stream operation that stays open until its peers have come and taken what is theirs, so a send
 * without its receive, or one that waits behind another, stands still as on a GPU. Communicators are non-blocking: calls
 * take effect when their state is asked for, so whoever uses the stream before that is too early. Members whose calls
 * differ break the communicator off, with ncclInvalidUsage and a message.
 *
 * CUEMU_NCCL_DIR: where messages lie (/dev/shm). CUEMU_NCCL_FAULT=RANK:N:error|hang: the N-th launch of that rank of the
 * first communicator and of those split from it, from 1, is broken off as if a peer were lost, or never starts. */
#include "runtime.h"

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <nccl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace cuemu;

#if CUEMU_WITH_TSAN
extern "C" void AnnotateIgnoreReadsBegin(const char *file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char *file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line)
#define AnnotateIgnoreReadsEnd(file, line)
#define AnnotateIgnoreWritesBegin(file, line)
#define AnnotateIgnoreWritesEnd(file, line)
#endif

namespace
{
/* The stand-in's own accesses are made as some stream, on the stack of some thread; what a stream touches is said by saw_read and
 * saw_write. */
struct Quiet {
    Quiet()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Quiet()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
};
enum Kind { POINT, GATHER };
const char *const kind_name[] = {"ncclSend or ncclRecv", "ncclAllGather"};
/* What goes ahead of a message: both sides must mean the same. */
struct Head {
    int32_t kind, type;
    uint64_t bytes;
};
struct State {
    std::string token;
    int rank, n, world_rank;
    ncclResult_t error = ncclSuccess;
    bool aborted = false, finalized = false;
    uint64_t splits = 0;
    std::vector<uint64_t> sent, taken; /* messages to and from each peer */
    std::vector<std::function<void()>> launches;         /* that wait for the state to be asked for */
    std::function<bool()> setup;                         /* under way; false: not over */
    std::map<void *, size_t> registered;
    State(const std::string &t, int r, int k, int w)
        : token(t), rank(r), n(k), world_rank(w), sent((size_t)k), taken((size_t)k)
    {
    }
};
typedef std::shared_ptr<State> Comm;
} // namespace
struct ncclComm {
    Comm of;
};

namespace
{
std::vector<Comm> all_made; /* kept: freed by a stream, one would be seen as the stream's */
std::string last_error;
uint64_t launched[64]; /* by rank of the first communicator */
struct Item {
    Comm c;
    bool send;
    int peer;
    Head head;
    const void *in;
    void *out;
    uint64_t seq;
    bool posted = false, done = false;
};
struct Local { /* a gather's own piece */
    const void *in;
    void *out;
    size_t bytes;
};
struct Launch {
    Comm c;
    std::vector<Item> items;
    std::vector<Local> own;
    bool hangs = false;
};
struct Call {
    cudaStream_t stream;
    Item item;
    std::vector<Local> own;
};
thread_local std::vector<Call> collected;
thread_local int depth;

std::string path(const Comm &c, const char *what, uint64_t a, uint64_t b, uint64_t seq)
{
    char s[96];
    snprintf(s, sizeof s, ".%s.%llu.%llu.%llu", what, (unsigned long long)a, (unsigned long long)b,
             (unsigned long long)seq);
    return std::string(env("CUEMU_NCCL_DIR", "/dev/shm")) + "/" + c->token + s;
}
bool exists(const std::string &p)
{
    return access(p.c_str(), F_OK) == 0;
}
void write_all(int fd, const void *p, size_t n, const std::string &what)
{
    for (size_t at = 0; at < n;) {
        ssize_t w = write(fd, (const char *)p + at, n - at);
        if (w <= 0) fault("nccl", 0, "cannot write %s: %s", what.c_str(), strerror(errno));
        at += (size_t)w;
    }
}
void post(const std::string &p, const void *head, size_t head_bytes, const void *data, size_t n)
{
    const std::string t = p + ".new";
    int fd = open(t.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd < 0) fault("nccl", 0, "cannot make %s: %s", t.c_str(), strerror(errno));
    write_all(fd, head, head_bytes, t);
    write_all(fd, data, n, t);
    close(fd);
    if (rename(t.c_str(), p.c_str())) fault("nccl", 0, "cannot rename %s: %s", t.c_str(), strerror(errno));
}
/* A message as it lies in its file; false: it has not come. */
bool fetch(const std::string &p, std::vector<char> &m)
{
    int fd = open(p.c_str(), O_RDONLY);
    struct stat st;
    if (fd < 0) return false;
    if (fstat(fd, &st)) fault("nccl", 0, "cannot look at %s", p.c_str());
    m.resize((size_t)st.st_size);
    for (size_t at = 0; at < m.size();) {
        ssize_t r = read(fd, m.data() + at, m.size() - at);
        if (r <= 0) fault("nccl", 0, "cannot read %s", p.c_str());
        at += (size_t)r;
    }
    close(fd);
    return true;
}

__attribute__((format(printf, 3, 4))) void break_off(const Comm &c, ncclResult_t r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->error) return;
    c->error = r;
    last_error = text;
}

/* ---- what moves ---- */
void begin(Item &i)
{
    i.posted = true;
    if (!i.send) return;
    need_device(i.in, i.head.bytes, "ncclSend");
    saw_read(i.in, i.head.bytes);
    Quiet q;
    post(path(i.c, "m", (uint64_t)i.c->rank, (uint64_t)i.peer, i.seq), &i.head, sizeof i.head, i.in, i.head.bytes);
}
/* A send is over when its message was taken. */
bool take(Item &i)
{
    Quiet q;
    std::vector<char> m;
    if (i.send) return !exists(path(i.c, "m", (uint64_t)i.c->rank, (uint64_t)i.peer, i.seq));
    const std::string p = path(i.c, "m", (uint64_t)i.peer, (uint64_t)i.c->rank, i.seq);
    if (!fetch(p, m)) return false;
    Head its;
    memcpy(&its, m.data(), sizeof its);
    if (memcmp(&its, &i.head, sizeof its)) {
        break_off(i.c, ncclInvalidUsage, "rank %d takes %llu bytes by %s from rank %d, which sent %llu by %s", i.c->rank,
                  (unsigned long long)i.head.bytes, kind_name[i.head.kind], i.peer, (unsigned long long)its.bytes,
                  kind_name[its.kind]);
        return false;
    }
    need_device(i.out, i.head.bytes, "ncclRecv");
    memcpy(i.out, m.data() + sizeof its, i.head.bytes);
    unlink(p.c_str());
    return true;
}
bool finish(Item &i)
{
    if (!take(i)) return false;
    if (!i.send) saw_write(i.out, i.head.bytes);
    return true;
}
/* In a group every message goes out before any is waited for. */
bool advance(Launch &g)
{
    if (g.c->aborted) return true;
    if (g.c->error || g.hangs) return false;
    bool all = true;
    for (auto &i : g.items)
        if (!i.posted) begin(i);
    for (auto &o : g.own) {
        need_device(o.out, o.bytes, "ncclAllGather");
        saw_read(o.in, o.bytes);
        saw_write(o.out, o.bytes);
        Quiet q;
        memmove(o.out, o.in, o.bytes);
    }
    g.own.clear();
    for (auto &i : g.items) {
        if (!i.done && !g.c->error) i.done = finish(i);
        all &= i.done;
    }
    return all;
}

/* The fault that a test has asked for. */
void ask_fault(Launch &g)
{
    int rank = -1, n = 0;
    char what[16] = "";
    const uint64_t count = ++launched[g.c->world_rank % 64];
    if (sscanf(env("CUEMU_NCCL_FAULT", ""), "%d:%d:%15s", &rank, &n, what) != 3) return;
    if (rank != g.c->world_rank || (uint64_t)n != count) return;
    g.hangs = true;
    if (!strcmp(what, "error")) break_off(g.c, ncclRemoteError, "a peer was lost, as the test asked for");
}

/* The calls of a group, one launch a communicator and stream, at the next look at the communicator. */
ncclResult_t flush()
{
    std::vector<std::pair<cudaStream_t, std::shared_ptr<Launch>>> all;
    for (auto &x : collected) {
        std::shared_ptr<Launch> g;
        for (auto &known : all)
            if (known.first == x.stream && known.second->c == x.item.c) g = known.second;
        if (!g) {
            g = std::make_shared<Launch>();
            g->c = x.item.c;
            all.push_back({x.stream, g});
        }
        if (x.item.peer >= 0) g->items.push_back(x.item);
        for (auto &o : x.own) g->own.push_back(o);
    }
    collected.clear();
    for (auto &x : all) {
        ask_fault(*x.second);
        cudaStream_t s = x.first;
        std::shared_ptr<Launch> g = x.second;
        g->c->launches.push_back([s, g] { submit(s, "nccl", [g] { return advance(*g); }); });
    }
    return ncclInProgress;
}
ncclResult_t usable(const ncclComm *c)
{
    if (!c) return ncclInvalidArgument;
    if (!c->of->launches.empty() || c->of->setup)
        fault("nccl", 0, "rank %d: a call while the one before is in progress", c->of->world_rank);
    return c->of->finalized ? ncclInvalidUsage : c->of->error;
}
Item item_of(ncclComm *c, bool send, int peer, Kind kind, uint64_t bytes, ncclDataType_t t)
{
    Item i;
    if (t != ncclUint8) fault("nccl", 0, "data type %d is not implemented", (int)t);
    i.c = c->of;
    i.send = send;
    i.peer = peer;
    memset(&i.head, 0, sizeof i.head);
    i.head.kind = kind;
    i.head.type = t;
    i.head.bytes = bytes;
    i.in = nullptr;
    i.out = nullptr;
    i.seq = peer < 0 ? 0 : send ? c->of->sent[(size_t)peer]++ : c->of->taken[(size_t)peer]++;
    return i;
}
ncclResult_t end_of_call()
{
    return depth ? ncclSuccess : flush();
}

/* ---- set-up ---- */
void say_hello(const Comm &c)
{
    post(path(c, "hello", (uint64_t)c->rank, 0, 0), "", 0, "", 0);
}
bool all_there(const Comm &c)
{
    for (int r = 0; r < c->n; r++)
        if (!exists(path(c, "hello", (uint64_t)r, 0, 0))) return false;
    return true;
}
struct Choice {
    int32_t color, key;
};
/* Members of a color by key; a color of nobody's makes none. */
bool split_over(const Comm &c, uint64_t seq, Choice mine, ncclComm_t *out)
{
    std::vector<std::pair<int, int>> members; /* key, rank */
    for (int r = 0; r < c->n; r++) {
        std::vector<char> m;
        Choice its;
        if (!fetch(path(c, "split", (uint64_t)r, 0, seq), m)) return false;
        memcpy(&its, m.data(), sizeof its);
        if (its.color == mine.color) members.push_back({its.key, r});
    }
    if (mine.color == NCCL_SPLIT_NOCOLOR) return true;
    int me = 0;
    for (auto &o : members) me += o < std::make_pair((int)mine.key, c->rank);
    char token[200];
    snprintf(token, sizeof token, "%s-%llu-%d", c->token.c_str(), (unsigned long long)seq, mine.color);
    Comm child = std::make_shared<State>(token, me, (int)members.size(), c->world_rank);
    all_made.push_back(child);
    say_hello(child);
    child->setup = [child] { return all_there(child); };
    *out = new ncclComm{child};
    return true;
}
ncclResult_t must_not_block(const ncclConfig_t *x)
{
    if (!x || x->size != sizeof *x || x->blocking)
        fault("nccl", 0, "a blocking communicator is not implemented");
    return ncclInProgress;
}
} // namespace

extern "C" {
ncclResult_t ncclGetVersion(int *v)
{
    *v = NCCL_VERSION_CODE;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const text[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                       "internal error", "invalid argument",     "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return text[r];
}
const char *ncclGetLastError(ncclComm_t)
{
    return last_error.c_str();
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int count;
    Lock l(mu);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "cuemu-nccl-%d-%d", (int)getpid(), count++);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank, ncclConfig_t *x)
{
    Lock l(mu);
    if (rank < 0 || rank >= n) return ncclInvalidArgument;
    Comm c = std::make_shared<State>(id.internal, rank, n, rank);
    all_made.push_back(c);
    launched[rank % 64] = 0;
    say_hello(c);
    c->setup = [c] { return all_there(c); };
    *out = new ncclComm{c};
    return must_not_block(x);
}
/* The child is there when the parent's state says so. */
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *x)
{
    Lock l(mu);
    if (ncclResult_t r = usable(parent)) return r;
    Comm c = parent->of;
    const uint64_t seq = c->splits++;
    const Choice mine = {color, key};
    post(path(c, "split", (uint64_t)c->rank, 0, seq), &mine, sizeof mine, "", 0);
    *out = nullptr;
    c->setup = [c, seq, mine, out] { return split_over(c, seq, mine, out); };
    return must_not_block(x);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t h, ncclResult_t *state)
{
    Lock l(mu);
    Comm c = h->of;
    *state = ncclInProgress;
    if (!c->error && c->setup) {
        if (!c->setup()) return ncclSuccess;
        c->setup = nullptr;
    }
    if (!c->launches.empty()) {
        std::vector<std::function<void()>> now;
        now.swap(c->launches);
        for (auto &f : now) f();
        return ncclSuccess;
    }
    *state = c->error;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t h)
{
    Lock l(mu);
    if (ncclResult_t r = usable(h)) return r;
    Comm c = h->of;
    post(path(c, "bye", (uint64_t)c->rank, 0, 0), "", 0, "", 0);
    c->finalized = true;
    c->setup = [c] {
        for (int r = 0; r < c->n; r++)
            if (!exists(path(c, "bye", (uint64_t)r, 0, 0))) return false;
        return true;
    };
    return ncclInProgress;
}
/* The last to leave takes the files along: each takes its own but for the last word, which others may still look for. */
ncclResult_t ncclCommDestroy(ncclComm_t h)
{
    Lock l(mu);
    Comm c = h->of;
    if (!c->finalized || c->setup) fault("nccl", 0, "a communicator is destroyed that was not finalized");
    if (!c->registered.empty()) fault("nccl", 0, "a communicator is destroyed with registered memory");
    unlink(path(c, "hello", (uint64_t)c->rank, 0, 0).c_str());
    for (uint64_t i = 0; i < c->splits; i++) unlink(path(c, "split", (uint64_t)c->rank, 0, i).c_str());
    post(path(c, "gone", (uint64_t)c->rank, 0, 0), "", 0, "", 0);
    int gone = 0;
    for (int r = 0; r < c->n; r++) gone += exists(path(c, "gone", (uint64_t)r, 0, 0));
    for (int r = 0; r < c->n && gone == c->n; r++) {
        unlink(path(c, "bye", (uint64_t)r, 0, 0).c_str());
        unlink(path(c, "gone", (uint64_t)r, 0, 0).c_str());
    }
    delete h;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t h)
{
    Lock l(mu);
    Comm c = h->of;
    c->aborted = true;
    for (auto &f : c->launches) f();
    c->launches.clear();
    c->setup = nullptr;
    for (int r = 0; r < c->n; r++)
        for (uint64_t i = 0; i < c->sent[(size_t)r]; i++)
            unlink(path(c, "m", (uint64_t)c->rank, (uint64_t)r, i).c_str());
    unlink(path(c, "hello", (uint64_t)c->rank, 0, 0).c_str());
    for (uint64_t i = 0; i < c->splits; i++) unlink(path(c, "split", (uint64_t)c->rank, 0, i).c_str());
    delete h;
    return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t h, void *p, size_t n, void **handle)
{
    Lock l(mu);
    if (ncclResult_t r = usable(h)) return r;
    need_device(p, n, "ncclCommRegister");
    h->of->registered[p] = n;
    *handle = p;
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t h, void *handle)
{
    Lock l(mu);
    return h->of->registered.erase(handle) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclMemAlloc(void **p, size_t n)
{
    return cudaMalloc(p, n) ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclMemFree(void *p)
{
    return cudaFree(p) ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void)
{
    Lock l(mu);
    return --depth || collected.empty() ? ncclSuccess : flush();
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t h, cudaStream_t s)
{
    Lock l(mu);
    if (ncclResult_t r = usable(h)) return r;
    for (int p = 0; p < h->of->n; p++) {
        if (p == h->of->rank) continue;
        Call to{s, item_of(h, true, p, GATHER, n, t), {}}, from{s, item_of(h, false, p, GATHER, n, t), {}};
        to.item.in = in;
        from.item.out = (char *)out + (size_t)p * n;
        collected.push_back(to);
        collected.push_back(from);
    }
    Call own{s, item_of(h, false, -1, GATHER, n, t), {{in, (char *)out + (size_t)h->of->rank * n, n}}};
    collected.push_back(own);
    return end_of_call();
}
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int peer, ncclComm_t h, cudaStream_t s)
{
    Lock l(mu);
    if (ncclResult_t r = usable(h)) return r;
    if (peer < 0 || peer >= h->of->n) return ncclInvalidArgument;
    Call x{s, item_of(h, true, peer, POINT, n, t), {}};
    x.item.in = in;
    collected.push_back(x);
    return end_of_call();
}
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t h, cudaStream_t s)
{
    Lock l(mu);
    if (ncclResult_t r = usable(h)) return r;
    if (peer < 0 || peer >= h->of->n) return ncclInvalidArgument;
    Call x{s, item_of(h, false, peer, POINT, n, t), {}};
    x.item.out = out;
    collected.push_back(x);
    return end_of_call();
}
}
