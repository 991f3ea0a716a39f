/* fiber.h: stacks that a CUDA thread runs on, and the switch between them. */
#ifndef CUEMU_FIBER_H
#define CUEMU_FIBER_H
#include <cstddef>
#include <vector>

namespace cuemu
{
struct Fiber {
    void *sp;
    const void *stack;
    size_t size;
    void *tsan, *fake; /* the sanitizers' own */
};
/* Fibers of a stream, at least n of them, made if need be; they keep their addresses. Each runs
 * cuemu_enter for ever. Under ThreadSanitizer no two streams share one, or it would know what both did;
 * elsewhere all do. */
const std::vector<Fiber *> &fibers_of(const void *stream, size_t n);
void retire_stream(const void *stream); /* it is destroyed; its fibers may serve another */

Fiber *host_fiber(); /* the stack that launches kernels */
void enter_host();   /* called on it before switching away */
void switch_fiber(Fiber *to);
void fiber_started(); /* first thing on a new fiber */
} // namespace cuemu
#endif
