#include "fiber.h"

#include "cuemu.h"
#include "internal.h"

#include <cstdlib>
#include <map>
#include <pthread.h>
#include <sys/mman.h>

#if CUEMU_WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void cuemu_switch(void **save, void *to);
extern "C" void cuemu_enter();
#if defined(__x86_64__)
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch,@function
cuemu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuemu_switch,.-cuemu_switch
)");
static void *initial_context(char *top)
{
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = nullptr; /* keeps rsp % 16 == 8 at entry */
    *--sp = (void *)cuemu_enter;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch,%function
cuemu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size cuemu_switch,.-cuemu_switch
)");
static void *initial_context(char *top)
{
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    sp -= 20;
    for (int i = 0; i < 20; i++) sp[i] = nullptr;
    sp[11] = (void *)cuemu_enter; /* x30 */
    return sp;
}
#else
#error "cuemu_switch: write it for this processor"
#endif

namespace cuemu
{
namespace
{
/* Never destroyed: at exit, when leaks are looked for, fibers are still reached from here. */
std::map<const void *, std::vector<Fiber *>> &pools = *new std::map<const void *, std::vector<Fiber *>>; /* by stream */
/* Of streams that are gone. What they know the host knew when it ended the stream, and so does whatever it
 * starts later: taking one up again hides no race. */
std::vector<Fiber *> &spare = *new std::vector<Fiber *>;
Fiber host, *running = &host;

size_t stack_bytes()
{
#if CUEMU_WITH_ASAN || CUEMU_WITH_TSAN
    return (size_t)atol(env("CUEMU_STACK_KB", "256")) * 1024;
#else
    return (size_t)atol(env("CUEMU_STACK_KB", "64")) * 1024;
#endif
}

Fiber *new_fiber()
{
    if (!spare.empty()) {
        Fiber *f = spare.back();
        spare.pop_back();
        return f;
    }
    const size_t page = 4096, size = stack_bytes();
    char *m = (char *)mmap(nullptr, size + page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) fault(__FILE__, __LINE__, "no memory for a stack");
    mprotect(m, page, PROT_NONE); /* a kernel that overflows its stack faults here */
    Fiber *f = new Fiber{};
    f->stack = m + page;
    f->size = size;
    /* Stacks lie whole pages apart: were their tops at one place of a page, they would share a few lines of the cache. */
    static size_t made;
    f->sp = initial_context(m + page + size - made++ % 32 * 128);
#if CUEMU_WITH_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
    return f;
}
} // namespace

const std::vector<Fiber *> &fibers_of(const void *stream, size_t n)
{
#if !CUEMU_WITH_TSAN
    stream = nullptr;
#endif
    std::vector<Fiber *> &pool = pools[stream];
    while (pool.size() < n) pool.push_back(new_fiber());
    return pool;
}

void retire_stream(const void *stream)
{
    auto it = pools.find(stream);
    if (it == pools.end()) return;
    spare.insert(spare.end(), it->second.begin(), it->second.end());
    pools.erase(it);
}

Fiber *host_fiber()
{
    return &host;
}

void enter_host()
{
    running = &host;
#if CUEMU_WITH_TSAN
    host.tsan = __tsan_get_current_fiber();
#endif
#if CUEMU_WITH_ASAN
    if (host.stack) return;
    pthread_attr_t a;
    void *low;
    pthread_getattr_np(pthread_self(), &a);
    pthread_attr_getstack(&a, &low, &host.size);
    pthread_attr_destroy(&a);
    host.stack = low;
#endif
}

void switch_fiber(Fiber *to)
{
    Fiber *from = running;
    running = to;
#if CUEMU_WITH_TSAN
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
#if CUEMU_WITH_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->size);
#endif
    cuemu_switch(&from->sp, to->sp);
#if CUEMU_WITH_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(from->fake, &bottom, &size);
#endif
}

void fiber_started()
{
#if CUEMU_WITH_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
#endif
}
} // namespace cuemu
