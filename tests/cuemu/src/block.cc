/* Threads, warps, barriers and collectives of one block. Fibers switch only here, in an order chosen by
 * policy. */
#include "block.h"

#include "internal.h"

#include <cstdarg>
#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>

namespace cuemu
{
Thread *cur;
Machine machine;

namespace
{
inline ThreadState *me()
{
    return static_cast<ThreadState *>(cur);
}
void push_last(ThreadState *t)
{
    if (machine.policy == FWD)
        push(t);
    else {
        t->state = READY;
        machine.ready[--machine.head % 2048] = t;
    }
}
/* Gives up the CPU; comes back when someone has pushed the caller. */
void next()
{
    ThreadState *self = me(), *n = pop();
    if (n == self) return;
    if (n)
        go_to(n);
    else {
        cur = nullptr;
        switch_fiber(host_fiber());
    }
}
/* The caller's thread is over: its fiber takes up one that has not begun, or comes back when it has one. */
void next_on(Fiber *fiber)
{
    ThreadState *n = pop();
    if (n && !n->fiber) {
        n->fiber = fiber;
        cur = n;
        return;
    }
    machine.idle[machine.n_idle++] = fiber;
    cur = n;
    switch_fiber(n ? n->fiber : host_fiber());
}

void where(const ThreadState *t, char *buf, size_t n)
{
    static const char *st[] = {"ready", "barrier", "collective", "done"};
    snprintf(buf, n, "%s%s%s at %s:%d", st[t->state], t->state == IN_COLLECTIVE ? " " : "",
             t->state == IN_COLLECTIVE ? t->what : "", t->file ? t->file : "?", t->line);
}
} // namespace

void go_to(ThreadState *t)
{
    if (!t->fiber) t->fiber = machine.idle[--machine.n_idle];
    cur = t;
    switch_fiber(t->fiber);
}
void push(ThreadState *t)
{
    t->state = READY;
    machine.ready[machine.tail++ % (2 * MAX_THREADS)] = t;
}
ThreadState *pop()
{
    const unsigned n = machine.tail - machine.head, size = 2 * MAX_THREADS;
    if (!n) return nullptr;
    if (machine.policy == FWD) return machine.ready[machine.head++ % size];
    if (machine.policy == RANDOM)
        std::swap(machine.ready[(machine.head + rnd(machine.rng) % n) % size],
                  machine.ready[(machine.tail - 1) % size]);
    return machine.ready[--machine.tail % size];
}
void stuck()
{
    std::map<std::string, std::pair<int, unsigned>> m;
    for (size_t i = 0; i < machine.threads; i++) {
        ThreadState &t = machine.thread[i];
        char b[400];
        where(&t, b, sizeof b);
        if (t.state == IN_COLLECTIVE) snprintf(b + strlen(b), sizeof b - strlen(b), " mask %08x", t.mask);
        auto &e = m[t.state == DONE ? "has returned" : b];
        if (!e.first++) e.second = t.linear;
    }
    for (auto &e : m)
        fprintf(stderr, "cuemu:   %d threads (first %u): %s\n", e.second.first, e.second.second,
                e.first.c_str());
    cur = &machine.thread[0];
    fault(machine.thread[0].file, machine.thread[0].line,
          "threads of the block wait for each other for ever");
}

namespace
{
void release_barrier(Barrier &b)
{
    b.epoch++;
    b.arrived = 0;
    b.result = b.sum;
    for (int i = 0; i < b.waiting; i++)
        if (b.wait[i] != cur) push(b.wait[i]);
    b.waiting = 0;
}
bool try_collective(Warp &w, ThreadState *base, unsigned mask, CollFn fn)
{
    unsigned eff = mask & w.live;
    if ((w.waiting & eff) != eff) return false;
    void *args[32];
    for (unsigned m = eff; m; m &= m - 1) {
        ThreadState *t = base + __builtin_ctz(m);
        if (t->mask != mask || t->fn != fn) return false;
        args[t->lane] = t->arg;
    }
    if (fn) fn(args, eff);
    machine.progress++;
    w.waiting &= ~eff;
    for (unsigned m = eff; m; m &= m - 1) {
        ThreadState *t = base + __builtin_ctz(m);
        if (t != cur) push(t);
    }
    return true;
}
ThreadState *warp_base(const ThreadState *t)
{
    return &machine.thread[t->warp * 32];
}

void thread_end()
{
    ThreadState *t = me();
    if (t->copy_head != t->copy_tail) {
        t->group++;
        cp_async_wait(0);
    }
    release(&machine.launch_tags->end);
    t->state = DONE;
    machine.live--;
    Warp &w = machine.warp[t->warp];
    w.live &= ~(1u << t->lane);
    for (unsigned m = w.waiting; m; m &= m - 1) { /* did the others wait only for this one? */
        ThreadState *o = warp_base(t) + __builtin_ctz(m);
        if (try_collective(w, warp_base(t), o->mask, o->fn)) break;
    }
    Barrier &b = machine.bar[0];
    if (b.waiting && !b.wait[0]->bar)
        fault(b.wait[0]->file, b.wait[0]->line, "thread %u returned while others wait at this __syncthreads",
              t->linear);
}
} // namespace

void fault(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "cuemu: %s:%d: ", file ? file : "?", line);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    if (cur)
        fprintf(stderr, "\ncuemu:   kernel %s block (%u,%u,%u) thread (%u,%u,%u)", machine.kernel,
                block_idx.x, block_idx.y, block_idx.z, cur->tid.x, cur->tid.y, cur->tid.z);
    fprintf(stderr, "\ncuemu:   policy %s seed %llu\n",
            machine.policy == FWD   ? "fwd"
            : machine.policy == REV ? "rev"
                                    : "rand",
            (unsigned long long)machine.seed);
    fflush(stderr);
    if (*env("CUEMU_ABORT", "")) abort();
    _exit(86);
}

void collective(unsigned mask, CollFn fn, void *arg, const char *name, const char *file, int line)
{
    ThreadState *t = me();
    if (!t) fault(file, line, "%s outside a kernel", name);
    Warp &w = machine.warp[t->warp];
    if (!(mask >> t->lane & 1))
        fault(file, line, "%s: the calling lane %u is not in its mask %08x", name, t->lane, mask);
    t->state = IN_COLLECTIVE;
    t->mask = mask;
    t->fn = fn;
    t->arg = arg;
    t->what = name;
    t->file = file;
    t->line = line;
    w.waiting |= 1u << t->lane;
    if ((w.waiting & mask & w.live) == (mask & w.live) && try_collective(w, warp_base(t), mask, fn)) {
        if (machine.policy == RANDOM) {
            push(t);
            next();
        }
        t->state = READY;
        return;
    }
    next();
}
void sync_warp(unsigned mask, const char *file, int line)
{
    ThreadState *t = me();
    if (!t) fault(file, line, "__syncwarp outside a kernel");
    uint64_t *tag = &machine.block_tags->warp[t->warp][__builtin_ctz(mask | 1u << 31)][t->warp_syncs++ & 1];
    release(tag);
    collective(mask, nullptr, nullptr, "__syncwarp", file, line);
    acquire(tag);
}

namespace
{
void check_barrier(const Barrier &b, int id, int n, const char *file, int line)
{
    const int threads = (int)machine.threads;
    if (n && (n % 32 || n > threads)) fault(file, line, "barrier %d: thread count %d", id, n);
    if (n) return;
    if (b.waiting && (b.wait[0]->line != line || (b.wait[0]->file != file && strcmp(b.wait[0]->file, file))))
        fault(file, line, "divergent __syncthreads: thread %u waits at %s:%d", b.wait[0]->linear,
              b.wait[0]->file, b.wait[0]->line);
    if (machine.live != threads)
        fault(file, line, "__syncthreads after %d threads of the block have returned",
              threads - machine.live);
}
/* kind: 0 count, 1 and, 2 or, others no vote */
void vote(Barrier &b, int kind, int pred)
{
    if (!b.arrived) b.sum = kind == 1;
    if (kind == 0)
        b.sum += pred != 0;
    else if (kind == 1)
        b.sum &= pred != 0;
    else if (kind == 2)
        b.sum |= pred != 0;
}
int arrive(int id, int n, int kind, int pred, bool wait, const char *file, int line)
{
    ThreadState *t = me();
    if (!t) fault(file, line, "barrier outside a kernel");
    if (id < 0 || id >= (int)MAX_BARRIERS) fault(file, line, "barrier id %d", id);
    Barrier &b = machine.bar[id];
    check_barrier(b, id, n, file, line);
    t->state = IN_BARRIER;
    t->file = file;
    t->line = line;
    t->bar = n ? id : 0;
    uint64_t *tag = &machine.block_tags->bar[id][b.epoch & 1];
    release(tag);
    vote(b, kind, pred);
    if (++b.arrived == (n ? n : machine.live)) {
        machine.progress++;
        release_barrier(b);
        t->state = READY;
        if (machine.policy == RANDOM && wait) {
            push(t);
            next();
        }
    } else if (wait) {
        b.wait[b.waiting++] = t;
        next();
    } else
        t->state = READY;
    if (wait) acquire(tag);
    return b.result;
}
} // namespace
void barrier(int id, int n, const char *file, int line)
{
    arrive(id, n, -1, 0, true, file, line);
}
void barrier_arrive(int id, int n, const char *file, int line)
{
    arrive(id, n, -1, 0, false, file, line);
}
int barrier_reduce(int kind, int pred, const char *file, int line)
{
    return arrive(0, 0, kind, pred, true, file, line);
}

/* A spinning thread lets the others run; when all that live spin, it is a deadlock. */
void yield(const char *file, int line)
{
    ThreadState *t = me();
    static uint64_t seen, idle;
    if (machine.progress != seen) {
        seen = machine.progress;
        idle = 0;
    } else if (++idle > 4000000)
        fault(file, line, "spin loop makes no progress");
    t->file = file;
    t->line = line;
    push_last(t);
    next();
}
void fence()
{
    acquire(&machine.launch_tags->fence);
    release(&machine.launch_tags->fence);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void check_align(const void *p, size_t a, const char *what, const char *file, int line)
{
    if ((uintptr_t)p % a) fault(file, line, "%s: address %p is not %zu-byte aligned", what, p, a);
}

/* cp.async: the bytes may move at any time between issue and wait.  fwd moves them
 * last thing (shows a missing wait), rev at once (shows a buffer still in use). */
static void move(const Copy &c)
{
    if (c.src_bytes) memcpy(c.dst, c.src, (size_t)c.src_bytes);
    if (c.src_bytes < c.bytes) memset((char *)c.dst + c.src_bytes, 0, (size_t)(c.bytes - c.src_bytes));
}
void cp_async(void *dst, const void *src, int bytes, int src_bytes, const char *file, int line)
{
    check_align(dst, (size_t)bytes, "cp.async destination", file, line);
    if (src_bytes) check_align(src, (size_t)bytes, "cp.async source", file, line);
    ThreadState *t = me();
    Copy c = {dst, src, bytes, src_bytes, t->group};
    if (machine.policy == REV || (machine.policy == RANDOM && rnd(machine.rng) % 2)) {
        move(c);
        return;
    }
    if (t->copy_tail - t->copy_head == MAX_COPIES)
        fault(file, line, "more than %u cp.async in flight in a thread", MAX_COPIES);
    machine.copies[t->linear][t->copy_tail++ % MAX_COPIES] = c;
}
void cp_async_commit()
{
    me()->group++;
}
void cp_async_wait(int keep)
{
    ThreadState *t = me();
    for (; t->copy_head != t->copy_tail; t->copy_head++) {
        const Copy &c = machine.copies[t->linear][t->copy_head % MAX_COPIES];
        if (c.group >= t->group - keep) break;
        move(c);
    }
}

} // namespace cuemu

/* A fiber runs one CUDA thread after another, for ever: kernels without barriers need one alone. Not so under ThreadSanitizer, where what
 * two threads did must not look like one's. */
extern "C" void cuemu_enter()
{
    using namespace cuemu;
    fiber_started();
    for (;;) {
        acquire(&machine.launch_tags->start);
        machine.body->run();
        thread_end();
        next_on(me()->fiber);
    }
}
