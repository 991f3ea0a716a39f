/* Shared by the emulator's own sources; kernels never see it. */
#ifndef CUEMU_INT_H
#define CUEMU_INT_H
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>

#if CUEMU_WITH_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_read_range(void *, unsigned long);
extern "C" void __tsan_write_range(void *, unsigned long);
#endif

namespace cuemu
{
struct Body;
void run_kernel(const char *name, const void *stream, dim3 g, dim3 b, size_t smem, Body *body);
uint32_t rnd(uint64_t &state);
const char *env(const char *name, const char *dflt);
void poison(void *p, size_t n); /* 0xff bytes: NaN in every float format */

/* One piece of work in a stream.  run() returns false to be tried again later. */
void submit(cudaStream_t s, const char *name, std::function<bool()> run);
bool in_device(const void *p, size_t n); /* inside one live device allocation? */
void need_device(const void *p, size_t n, const char *what);

#if CUEMU_WITH_TSAN
inline void saw_read(const void *p, size_t n)
{
    if (n) __tsan_read_range((void *)p, n);
}
inline void saw_write(void *p, size_t n)
{
    if (n) __tsan_write_range(p, n);
}
#else
inline void saw_read(const void *, size_t) {}
inline void saw_write(void *, size_t) {}
#endif
} // namespace cuemu
#endif
