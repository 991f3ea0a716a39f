/* block.h: the block of threads that is running: what launch.cc sets up and block.cc runs. */
#ifndef CUEMU_BLOCK_H
#define CUEMU_BLOCK_H
#include "cuemu.h"
#include "fiber.h"
#include "internal.h"

namespace cuemu
{
enum State { READY, IN_BARRIER, IN_COLLECTIVE, DONE };
constexpr unsigned MAX_THREADS = 1024, MAX_BARRIERS = 16, MAX_COPIES = 256;

struct Copy {
    void *dst;
    const void *src;
    int bytes, src_bytes, group;
};
struct ThreadState : Thread {
    Fiber *fiber; /* null: it has not begun, and gets one when it does */
    State state;
    /* the collective or barrier it waits in, and where */
    unsigned mask;
    CollFn fn;
    void *arg;
    const char *what, *file;
    int line, bar;
    int group; /* cp.async: groups committed so far, and its ring of copies */
    unsigned copy_head, copy_tail;
    uint64_t warp_syncs; /* __syncwarp so far: picks the tag */
};
struct Warp {
    unsigned live, waiting;
};
struct Barrier {
    int arrived, epoch, sum, result, waiting;
    ThreadState *wait[MAX_THREADS];
};
/* Addresses that stand for happens-before edges under TSan. Made anew for each launch and each block: an
 * old one would order what the device does not. */
struct LaunchTags {
    uint64_t start, end, fence;
};
struct BlockTags {
    uint64_t bar[MAX_BARRIERS][2], warp[32][32][2];
};
enum Policy { FWD, REV, RANDOM };

/* One a process, like the runtime that it stands in for. Static: TSan would take a `new` for a write. */
struct Machine {
    ThreadState thread[MAX_THREADS];
    Copy copies[MAX_THREADS][MAX_COPIES]; /* beside the threads, which are walked through all the time; made once */
    Warp warp[32];
    Barrier bar[MAX_BARRIERS];
    ThreadState *ready[2 * MAX_THREADS]; /* a deque; a thread is in it at most once */
    unsigned head, tail;
    Fiber *idle[MAX_THREADS]; /* fibers of the block that no thread is on */
    size_t n_idle;
    size_t threads;
    int live;
    uint64_t progress; /* collectives, barriers, threads begun */
    LaunchTags *launch_tags;
    BlockTags *block_tags;
    Policy policy;
    uint64_t seed, rng;
    const char *kernel;
    Body *body;
};
extern Machine machine;
void read_policy(); /* CUEMU_SCHED, once */

#if CUEMU_WITH_TSAN
constexpr bool OWN_FIBERS = true; /* each thread of a block has its own from the beginning */
inline void acquire(uint64_t *t)
{
    __tsan_acquire(t);
}
inline void release(uint64_t *t)
{
    __tsan_release(t);
}
#else
constexpr bool OWN_FIBERS = false;
inline void acquire(uint64_t *) {}
inline void release(uint64_t *) {}
#endif

void push(ThreadState *t); /* it may run */
void go_to(ThreadState *t); /* from here on it runs, from where it stands or from its beginning */
ThreadState *pop();        /* by policy; null: none may */
[[noreturn]] void stuck(); /* nobody may run, and threads live */

/* Shared memory of a block: fresh for each. */
void shared_begin_launch(size_t dynamic);
void shared_begin_block();
void shared_end_launch();
} // namespace cuemu
#endif
