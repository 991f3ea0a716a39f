/* Streams and events. Work given to a stream is queued and runs later, in an order that the API allows but a lucky GPU
 * would seldom show. CUEMU_ORDER:
 *   lazy      as late as possible: only what a synchronisation needs (default)
 *   eager     at once, as a fast device would
 *   rand:N    at each call some ready work, picked by seed N */
#include "fiber.h"
#include "graph.h"

#include <cstdlib>
#include <map>
#include <set>
#include <time.h>
#include <unistd.h>

using namespace cuemu;

namespace cuemu
{
std::recursive_mutex mu;
thread_local int held;
thread_local bool in_op;
void breathe(unsigned us)
{
    const int n = held;
    for (int i = 0; i < n; i++) mu.unlock();
    held = 0;
    usleep(us);
    for (int i = 0; i < n; i++) mu.lock();
    held = n;
}
} // namespace cuemu

namespace
{
std::map<const void *, int> smem_limit;
CUstream_st legacy;
std::set<CUstream_st *> streams{&legacy};
std::set<CUevent_st *> events;
const CUstream_st *running; /* whose work runs */
std::vector<Ref> pending; /* oldest first */
uint64_t order_rng = 1;
enum { LAZY, EAGER, RANDOM } order = LAZY;
bool inited;

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
    running = o->stream;
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
/* One pass towards target; false when everything that may run waits for peers. What is needed comes behind what it waits for, so
 * that one pass of the lazy order gets there. */
bool step(const Ref &target, bool all)
{
    std::vector<Ref> c;
    bool any = false;
    if (order == RANDOM || all)
        c = pending;
    else {
        std::set<Op *> seen;
        needed(target, seen, c);
    }
    if (order == RANDOM)
        for (size_t i = c.size(); i > 1; i--) std::swap(c[i - 1], c[rnd(order_rng) % i]);
    for (auto &o : c) {
        if (!is_ready(o) || !try_run(o)) continue;
        if (order == RANDOM || all) return true;
        any = true;
    }
    return any;
}
void nudge();
} // namespace

namespace cuemu
{
CUstream_st *stream_of(cudaStream_t s)
{
    if (!s || s == cudaStreamLegacy) return &legacy;
    if (!streams.count(s)) fault("cuda", 0, "use of a stream that does not exist");
    return s;
}
bool is_legacy(const CUstream_st *s)
{
    return s == &legacy;
}
void forget_capture(const Capture *c)
{
    for (auto *e : events)
        if (e->capture == c) e->capture = nullptr;
}
void force(Ref o)
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
            breathe(20);
#if CUEMU_WITH_TSAN
    __tsan_acquire(&o->tags[1]);
#endif
}
Ref add(cudaStream_t s_, const char *name, std::function<bool()> run)
{
    init();
    CUstream_st *s = stream_of(s_);
    if (s->capture) {
        capture_add(s, name, std::move(run));
        return nullptr;
    }
    Ref o = std::make_shared<Op>();
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
    std::vector<Ref> last; /* streams may come and go meanwhile */
    for (auto *s : streams)
        if (s->last) last.push_back(s->last);
    for (auto &o : last) force(o);
}
void submit(cudaStream_t s, const char *name, std::function<bool()> run)
{
    Lock l(mu);
    add(s, name, std::move(run));
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
    add(s, name, [=, keep = std::move(keep)] {
        run_kernel(name, running->pool, g, b, smem, keep.get());
        return true;
    });
    return cudaSuccess;
}
} // namespace cuemu

namespace
{
/* Under a random order every call may let some work go ahead. */
void nudge()
{
    if (order != RANDOM) return;
    for (uint32_t n = rnd(order_rng) % 3; n; n--) {
        if (pending.empty()) return;
        step(pending[0], true);
    }
}
} // namespace

extern "C" void cuemu_set_order(const char *o, unsigned long long s)
{
    Lock l(mu);
    init();
    order = !strcmp(o, "eager") ? EAGER : !strcmp(o, "rand") ? RANDOM : LAZY;
    order_rng = s;
}

extern "C" {
cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute a, int v)
{
    Lock l(mu);
    if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (v > 232448) return err(cudaErrorInvalidValue);
        smem_limit[f] = v;
    }
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
cudaError_t cudaStreamSynchronize(cudaStream_t s_)
{
    Lock l(mu);
    init();
    CUstream_st *s = stream_of(s_);
    if (s->capture) return capture_break(s, cudaErrorStreamCaptureUnsupported);
    const std::vector<Ref> waits = s->waits;
    for (auto &w : waits) force(w);
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
    if (s->capture) return capture_break(s, cudaErrorStreamCaptureUnsupported);
    if (!s->last || s->last->done) return cudaSuccess;
    step(s->last, false); /* a polling loop must get there in the end */
    return cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s_, cudaEvent_t e, unsigned)
{
    Lock l(mu);
    CUstream_st *s = stream_of(s_);
    if (s->capture || e->capture) return capture_wait(s, e);
    if (e->op) s->waits.push_back(e->op);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f)
{
    *e = new CUevent_st;
    (*e)->timing = !(f & cudaEventDisableTiming);
    Lock l(mu);
    events.insert(*e);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    Lock l(mu);
    events.erase(e);
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    Lock l(mu);
    CUstream_st *on = stream_of(s);
    e->capture = on->capture;
    e->nodes = on->tail;
    if (!e->capture) e->op = add(s, "event", nullptr);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    Lock l(mu);
    if (e->capture) return err(cudaErrorCapturedEvent);
    force(e->op);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    Lock l(mu);
    if (e->capture) return err(cudaErrorCapturedEvent);
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
    if (cudaError_t e = capture_refuses()) return e;
    sync_all();
    return cudaSuccess;
}
}
