/* Runs one kernel launch: its blocks one after another, in an order chosen by policy. */
#include "block.h"
#include "internal.h"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace cuemu
{
uint3 block_idx;
dim3 block_dim, grid_dim;

const char *env(const char *name, const char *dflt)
{
    const char *e = getenv(name);
    return e ? e : dflt;
}
uint32_t rnd(uint64_t &s)
{
    s += 0x9e3779b97f4a7c15ull;
    uint64_t z = s;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)(z >> 32);
}
/* Not memset: a sanitizer would take it for an access by the program. */
void poison(void *p, size_t n)
{
#if defined(__x86_64__)
    asm volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(0xff) : "memory");
#else
    for (volatile unsigned char *q = (unsigned char *)p; n--;) *q++ = 0xff;
#endif
}

namespace
{
Policy policy_of(const char *name)
{
    return !strncmp(name, "rev", 3) ? REV : !strncmp(name, "rand", 4) ? RANDOM : FWD;
}

std::vector<uint32_t> block_order(size_t blocks)
{
    std::vector<uint32_t> order(blocks);
    for (size_t i = 0; i < blocks; i++) order[i] = (uint32_t)(machine.policy == REV ? blocks - 1 - i : i);
    if (machine.policy == RANDOM)
        for (size_t i = blocks; i > 1; i--) std::swap(order[i - 1], order[rnd(machine.rng) % i]);
    return order;
}

/* Under TSan, blocks of a launch share no fiber as far as the limit goes: one that ran a thread of an
 * earlier block knows what that block did, and a race with it would go unseen. Gives how many blocks have
 * fibers of their own. */
size_t blocks_apart(size_t blocks, size_t threads)
{
#if CUEMU_WITH_TSAN
    size_t limit = (size_t)atol(env("CUEMU_TSAN_FIBERS", "1024")), apart = limit / threads;
    return apart < 1 ? 1 : apart < blocks ? apart : blocks;
#else
    (void)blocks, (void)threads;
    return 1;
#endif
}

void begin_thread(unsigned i, uint3 tid, Fiber *fiber)
{
    ThreadState &t = machine.thread[i];
    t.tid = tid;
    t.linear = i;
    t.lane = i & 31;
    t.warp = i >> 5;
    t.fiber = fiber;
    t.group = 0;
    t.copy_head = t.copy_tail = 0;
    t.file = nullptr;
    t.line = 0;
    t.warp_syncs = 0;
    machine.warp[t.warp].live |= 1u << t.lane;
    push(&t);
}

void begin_threads(Fiber *const *fiber)
{
    const dim3 &b = block_dim;
    unsigned i = 0;
    for (unsigned z = 0; z < b.z; z++)
        for (unsigned y = 0; y < b.y; y++)
            for (unsigned x = 0; x < b.x; x++, i++)
                begin_thread(i, uint3{x, y, z}, OWN_FIBERS ? fiber[i] : nullptr);
    machine.n_idle = 0;
    for (; !OWN_FIBERS && i; i--) machine.idle[machine.n_idle++] = fiber[i - 1];
}

void run_block(Fiber *const *fiber)
{
    machine.block_tags = new BlockTags;
    shared_begin_block();
    release(&machine.launch_tags->start); /* after the mapping of fresh pages, which counts as a write */
    machine.live = (int)machine.threads;
    machine.head = machine.tail = 0;
    for (auto &w : machine.warp) w.live = w.waiting = 0;
    for (auto &b : machine.bar) b.arrived = b.sum = b.waiting = 0;
    begin_threads(fiber);
    machine.progress += machine.threads;
    go_to(pop()); /* the last thread comes back */
    cur = nullptr;
    if (machine.live) stuck();
    delete machine.block_tags;
}
} // namespace

void read_policy()
{
    static bool done;
    if (done) return;
    done = true;
    const char *p = env("CUEMU_SCHED", "fwd"), *seed = strchr(p, ':');
    machine.policy = policy_of(p);
    machine.seed = machine.rng = seed ? strtoull(seed + 1, nullptr, 0) : 1;
}

void run_kernel(const char *name, const void *stream, dim3 g, dim3 b, size_t smem, Body *body)
{
    read_policy();
    const size_t threads = (size_t)b.x * b.y * b.z, blocks = (size_t)g.x * g.y * g.z;
    const size_t apart = blocks_apart(blocks, threads);
    machine.kernel = name;
    machine.body = body;
    machine.threads = threads;
    machine.launch_tags = new LaunchTags;
    block_dim = b;
    grid_dim = g;
    enter_host();
    const std::vector<Fiber *> &fibers = fibers_of(stream, threads * apart);
    const std::vector<uint32_t> order = block_order(blocks);
    shared_begin_launch(smem);
    for (size_t i = 0; i < blocks; i++) {
        const size_t k = order[i];
        block_idx = uint3{(unsigned)(k % g.x), (unsigned)(k / g.x % g.y), (unsigned)(k / g.x / g.y)};
        run_block(&fibers[i % apart * threads]);
    }
    acquire(&machine.launch_tags->end);
    delete machine.launch_tags;
    shared_end_launch();
}
} // namespace cuemu

extern "C" void cuemu_set_policy(const char *p, unsigned long long s)
{
    using namespace cuemu;
    read_policy();
    machine.policy = policy_of(p);
    machine.seed = machine.rng = s;
}
