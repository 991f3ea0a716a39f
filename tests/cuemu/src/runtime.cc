/* The CUDA runtime API over host memory.
 *
 * Work given to a stream is queued and runs later, in an order that the API
 * allows but a lucky GPU would seldom show.  CUEMU_ORDER:
 *   lazy      as late as possible: only what a synchronisation needs (default)
 *   eager     at once, as a fast device would
 *   rand:N    at each call some ready work, picked by seed N
 */
#include "cuemu.h"
#include "fiber.h"
#include "internal.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace cuemu;

namespace
{
struct Op {
    uint64_t id;
    const char *name;
    CUstream_st *stream;
    std::vector<std::shared_ptr<Op>> deps;
    std::function<bool()> run;
    bool done = false, started = false;
    double when = 0;
    uint64_t *tags; /* two: submitted, finished */
    Op() : tags(new uint64_t[2]) {}
    ~Op() { delete[] tags; }
};
typedef std::shared_ptr<Op> Ref;
} // namespace

struct CUstream_st {
    Ref last;
    bool blocking = true;   /* synchronises with the legacy default stream */
    std::vector<Ref> waits; /* events the next op waits for */
    void *tsan = nullptr;   /* made with the stream: a later one would know too much */
    CUstream_st()
    {
#if CUEMU_WITH_TSAN
        tsan = __tsan_create_fiber(0);
        __tsan_set_fiber_name(tsan, "cuda stream");
#endif
    }
};
struct CUevent_st {
    Ref op;
    bool timing = true;
};

namespace
{
struct Range {
    size_t n;
    bool device;
};
std::recursive_mutex mu;
typedef std::lock_guard<std::recursive_mutex> Lock;
std::map<uintptr_t, Range> ranges; /* by start */
std::map<const void *, int> smem_limit;
CUstream_st legacy;
std::set<CUstream_st *> streams{&legacy};
std::vector<Ref> pending; /* oldest first */
uint64_t next_id = 1, order_rng = 1, live_bytes, peak_bytes;
cudaError_t last_error;
enum { LAZY, EAGER, RANDOM } order = LAZY;
bool inited;
thread_local bool in_op; /* the lock is held, and TSan thinks another thread runs */

void init()
{
    if (inited) return;
    inited = true;
    const char *o = env("CUEMU_ORDER", "lazy");
    if (!strcmp(o, "eager")) order = EAGER;
    if (!strncmp(o, "rand", 4)) {
        order = RANDOM;
        order_rng = strchr(o, ':') ? strtoull(strchr(o, ':') + 1, nullptr, 0) : 1;
    }
}
double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
cudaError_t err(cudaError_t e)
{
    if (e) last_error = e;
    return e;
}
CUstream_st *stream_of(cudaStream_t s)
{
    if (!s || s == cudaStreamLegacy) return &legacy;
    if (!streams.count(s)) fault("cuda", 0, "use of a stream that does not exist");
    return s;
}
bool is_ready(const Ref &o)
{
    for (auto &d : o->deps)
        if (!d->done) return false;
    return true;
}
/* False: it waits for another rank. */
bool try_run(const Ref &o)
{
#if CUEMU_WITH_TSAN
    void *host = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(o->stream->tsan, __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(&o->tags[0]);
    for (auto &d : o->deps) __tsan_acquire(&d->tags[1]);
#endif
    in_op = true;
    bool ok = !o->run || o->run();
    if (ok) o->run = nullptr; /* frees what it holds, as part of the stream */
    in_op = false;
#if CUEMU_WITH_TSAN
    if (ok) __tsan_release(&o->tags[1]);
    __tsan_switch_to_fiber(host, __tsan_switch_to_fiber_no_sync);
#endif
    o->started = true;
    if (!ok) return false;
    o->done = true;
    o->when = now();
    o->deps.clear();
    for (size_t i = 0; i < pending.size(); i++)
        if (pending[i] == o) {
            pending.erase(pending.begin() + (ptrdiff_t)i);
            break;
        }
    return true;
}
void needed(const Ref &o, std::set<Op *> &seen, std::vector<Ref> &out)
{
    if (o->done || !seen.insert(o.get()).second) return;
    for (auto &d : o->deps) needed(d, seen, out);
    out.push_back(o);
}
/* One step towards target; false when everything that may run waits for peers. */
bool step(const Ref &target, bool all)
{
    std::vector<Ref> c;
    if (order == RANDOM || all)
        c = pending;
    else {
        std::set<Op *> seen;
        needed(target, seen, c);
    }
    if (order == RANDOM)
        for (size_t i = c.size(); i > 1; i--) std::swap(c[i - 1], c[rnd(order_rng) % i]);
    for (auto &o : c)
        if (is_ready(o) && try_run(o)) return true;
    return false;
}
void force(const Ref &o)
{
    if (!o) return;
    double t0 = now(), limit = atof(env("CUEMU_TIMEOUT", "60"));
    while (!o->done)
        if (step(o, now() - t0 > 0.002))
            t0 = now();
        else if (now() - t0 > limit) {
            for (auto &p : pending)
                fprintf(stderr, "cuemu:   pending: %s%s\n", p->name,
                        p->started ? " (waits for its peers)" : "");
            fault("cuda", 0, "no progress in %g s: peers disagree about the collectives, or one is gone",
                  limit);
        } else
            usleep(20);
#if CUEMU_WITH_TSAN
    __tsan_acquire(&o->tags[1]);
#endif
}
void nudge()
{
    if (order != RANDOM) return;
    for (uint32_t n = rnd(order_rng) % 3; n; n--) {
        if (pending.empty()) return;
        step(pending[0], true);
    }
}
Ref add(cudaStream_t s_, const char *name, std::function<bool()> run)
{
    init();
    CUstream_st *s = stream_of(s_);
    Ref o = std::make_shared<Op>();
    o->id = next_id++;
    o->name = name;
    o->stream = s;
    o->run = std::move(run);
    if (s->last) o->deps.push_back(s->last);
    for (auto &w : s->waits) o->deps.push_back(w);
    s->waits.clear();
    if (s == &legacy) {
        for (auto *t : streams)
            if (t->blocking && t->last) o->deps.push_back(t->last);
    } else if (s->blocking && legacy.last)
        o->deps.push_back(legacy.last);
    s->last = o;
    pending.push_back(o);
#if CUEMU_WITH_TSAN
    __tsan_release(&o->tags[0]);
#endif
    if (order == EAGER) {
        std::set<Op *> seen;
        std::vector<Ref> c;
        needed(o, seen, c);
        for (auto &x : c)
            if (is_ready(x)) try_run(x);
    }
    nudge();
    return o;
}
void sync_all()
{
    while (!pending.empty()) force(pending.front());
    for (auto *s : streams)
        if (s->last) force(s->last);
}
const Range *find(const void *p, uintptr_t *start = nullptr)
{
    auto it = ranges.upper_bound((uintptr_t)p);
    if (it == ranges.begin()) return nullptr;
    --it;
    if ((uintptr_t)p >= it->first + it->second.n) return nullptr;
    if (start) *start = it->first;
    return &it->second;
}
void *take(size_t n, bool device)
{
    void *p = nullptr;
    if (posix_memalign(&p, device ? 256 : 64, n ? n : 1)) return nullptr;
    poison(p, n);
    ranges[(uintptr_t)p] = {n ? n : 1, device};
    if (device) {
        live_bytes += n;
        if (live_bytes > peak_bytes) peak_bytes = live_bytes;
    }
    return p;
}
cudaError_t give(void *p, bool device)
{
    if (!p) return cudaSuccess;
    auto it = ranges.find((uintptr_t)p);
    if (it == ranges.end() || it->second.device != device) return err(cudaErrorInvalidValue);
    if (device) live_bytes -= it->second.n;
    poison(p, it->second.n);
    ranges.erase(it);
    free(p);
    return cudaSuccess;
}
bool pinned(const void *p)
{
    const Range *r = find(p);
    return r && !r->device;
}
bool check_copy(const void *d, const void *s, size_t n, cudaMemcpyKind k)
{
    bool dd = find(d) && find(d)->device, sd = find(s) && find(s)->device;
    if ((k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice) && n)
        need_device(d, n, "memcpy destination");
    if ((k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice) && n)
        need_device(s, n, "memcpy source");
    if ((k == cudaMemcpyHostToDevice || k == cudaMemcpyHostToHost) && sd && n) return false;
    if ((k == cudaMemcpyDeviceToHost || k == cudaMemcpyHostToHost) && dd && n) return false;
    return true;
}
cudaError_t copy(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st, bool sync)
{
    Lock l(mu);
    if (!n) return cudaSuccess;
    if (!check_copy(d, s, n, k)) return err(cudaErrorInvalidMemcpyDirection);
    bool sdev = find(s) && find(s)->device, ddev = find(d) && find(d)->device;
    Ref o;
    if (!sdev && !pinned(s)) { /* pageable: staged before the call returns */
        auto tmp = std::make_shared<std::vector<char>>((const char *)s, (const char *)s + n);
        saw_read(s, n);
        o = add(st, "memcpy (pageable)", [d, n, tmp = std::move(tmp)] {
            memcpy(d, tmp->data(), n);
            return true;
        });
    } else
        o = add(st, "memcpy", [=] {
            memcpy(d, s, n);
            return true;
        });
    if (sync || (!ddev && !pinned(d))) force(o);
    return cudaSuccess;
}
} // namespace

namespace cuemu
{
void submit(cudaStream_t s, const char *name, std::function<bool()> run)
{
    Lock l(mu);
    add(s, name, std::move(run));
}
bool in_device(const void *p, size_t n)
{
    uintptr_t a;
    const Range *r = find(p, &a);
    return r && r->device && (uintptr_t)p + n <= a + r->n;
}
void need_device(const void *p, size_t n, const char *what)
{
    std::unique_lock<std::recursive_mutex> l(mu, std::defer_lock);
    if (!in_op) l.lock();
    if (!in_device(p, n)) fault("cuda", 0, "%s: %p..+%zu is not inside one device allocation", what, p, n);
}
cudaError_t enqueue(const char *name, const void *fn, dim3 g, dim3 b, size_t smem, cudaStream_t s, Body *body)
{
    std::shared_ptr<Body> keep(body);
    Lock l(mu);
    size_t n = (size_t)b.x * b.y * b.z;
    auto lim = smem_limit.find(fn);
    if (!n || n > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        return err(cudaErrorInvalidConfiguration);
    if (smem > (size_t)(lim == smem_limit.end() ? 48 * 1024 : lim->second)) return err(cudaErrorInvalidValue);
    const void *key = stream_of(s);
    add(s, name, [=, keep = std::move(keep)] {
        run_kernel(name, key, g, b, smem, keep.get());
        return true;
    });
    return cudaSuccess;
}
} // namespace cuemu

extern "C" void cuemu_set_order(const char *o, unsigned long long s)
{
    Lock l(mu);
    init();
    order = !strcmp(o, "eager") ? EAGER : !strcmp(o, "rand") ? RANDOM : LAZY;
    order_rng = s;
}

/* ---- the API ----------------------------------------------------------------- */
extern "C" {
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int d)
{
    return d ? err(cudaErrorInvalidDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int *d)
{
    *d = 0;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    strcpy(p->name, "cuemu (GH200 shape)");
    p->major = 9;
    p->multiProcessorCount = atoi(env("CUEMU_SMS", "4"));
    p->totalGlobalMem = (size_t)atol(env("CUEMU_MEM_MB", "4096")) << 20;
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = 232448;
    p->sharedMemPerMultiprocessor = 233472;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->warpSize = 32;
    p->l2CacheSize = 60 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int)
{
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    switch ((int)a) {
    case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 232448; break;
    default: return err(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *f, size_t *t)
{
    Lock l(mu);
    *t = (size_t)atol(env("CUEMU_MEM_MB", "4096")) << 20;
    *f = *t > live_bytes ? *t - live_bytes : 0;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute a, int v)
{
    Lock l(mu);
    if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (v > 232448) return err(cudaErrorInvalidValue);
        smem_limit[f] = v;
    }
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t e)
{
    static char b[64];
    snprintf(b, sizeof b, e ? "CUDA error %d (emulated)" : "no error", (int)e);
    return b;
}

cudaError_t cudaMalloc(void **p, size_t n)
{
    Lock l(mu);
    if (live_bytes + n > (size_t)atol(env("CUEMU_MEM_MB", "4096")) << 20) {
        *p = nullptr;
        return err(cudaErrorMemoryAllocation);
    }
    *p = take(n, true);
    return *p ? cudaSuccess : err(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void *p)
{
    Lock l(mu);
    if (p) sync_all();
    return give(p, true);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    return cudaMalloc(p, n);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    Lock l(mu);
    add(s, "free", [=] { return give(p, true), true; });
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    Lock l(mu);
    *p = take(n, false);
    return *p ? cudaSuccess : err(cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    return cudaMallocHost(p, n);
}
cudaError_t cudaFreeHost(void *p)
{
    Lock l(mu);
    if (p) sync_all();
    return give(p, false);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    Lock l(mu);
    ranges[(uintptr_t)p] = {n, false};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    Lock l(mu);
    return ranges.erase((uintptr_t)p) ? cudaSuccess : err(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind k)
{
    return copy(d, s, n, k, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st)
{
    return copy(d, s, n, k, st, false);
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
                              cudaMemcpyKind k, cudaStream_t st)
{
    if (w > dp || w > sp) return err(cudaErrorInvalidPitchValue);
    for (size_t i = 0; i < h; i++) {
        cudaError_t e = copy((char *)d + i * dp, (const char *)s + i * sp, w, k, st, false);
        if (e) return e;
    }
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t s)
{
    Lock l(mu);
    need_device(d, n, "memset");
    add(s, "memset", [=] {
        memset(d, v, n);
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *d, int v, size_t n)
{
    return cudaMemsetAsync(d, v, n, nullptr);
}
cudaError_t cudaMemcpyToSymbol(const void *sym, const void *s, size_t n, size_t off, cudaMemcpyKind)
{
    Lock l(mu);
    sync_all();
    memcpy((char *)const_cast<void *>(sym) + off, s, n);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f)
{
    Lock l(mu);
    *s = new CUstream_st;
    (*s)->blocking = !(f & cudaStreamNonBlocking);
    streams.insert(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int)
{
    return cudaStreamCreateWithFlags(s, f);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *lo, int *hi)
{
    *lo = 0;
    *hi = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s_)
{
    Lock l(mu);
    init();
    CUstream_st *s = stream_of(s_);
    for (auto &w : s->waits) force(w);
    force(s->last);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    Lock l(mu);
    cudaStreamSynchronize(s);
    streams.erase(s);
    retire_stream(s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s_)
{
    Lock l(mu);
    CUstream_st *s = stream_of(s_);
    if (!s->last || s->last->done) return cudaSuccess;
    step(s->last, false); /* a polling loop must get there in the end */
    return cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s_, cudaEvent_t e, unsigned)
{
    Lock l(mu);
    CUstream_st *s = stream_of(s_);
    if (e->op) s->waits.push_back(e->op);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f)
{
    *e = new CUevent_st;
    (*e)->timing = !(f & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    Lock l(mu);
    e->op = add(s, "event", nullptr);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    Lock l(mu);
    force(e->op);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    Lock l(mu);
    if (!e->op || e->op->done) {
#if CUEMU_WITH_TSAN
        if (e->op) __tsan_acquire(&e->op->tags[1]);
#endif
        return cudaSuccess;
    }
    step(e->op, false);
    return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    Lock l(mu);
    if (!a->op || !b->op || !a->timing || !b->timing) return err(cudaErrorInvalidResourceHandle);
    if (!a->op->done || !b->op->done) return err(cudaErrorNotReady);
    *ms = (float)((b->op->when - a->op->when) * 1e3);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *u)
{
    Lock l(mu);
    add(s, "host function", [=] {
        f(u);
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    Lock l(mu);
    init();
    sync_all();
    return cudaSuccess;
}
} /* extern "C" */
