/* device_memory.h: for tests that use the CUDA runtime alone: buffers up and down, and inputs. */
#ifndef MT_TESTS_DEVICE_MEMORY_H
#define MT_TESTS_DEVICE_MEMORY_H
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* n bytes of device memory with the contents of `from`, or undefined. */
static inline void *device_new(const void *from, size_t n)
{
    void *p = NULL;
    cudaError_t e = cudaMalloc(&p, n);
    if (!e && from) e = cudaMemcpy(p, from, n, cudaMemcpyHostToDevice);
    if (e) printf("device memory: %s\n", cudaGetErrorString(e)), exit(9);
    return p;
}
static inline void device_get(void *to, const void *from, size_t n)
{
    cudaError_t e = cudaMemcpy(to, from, n, cudaMemcpyDeviceToHost);
    if (e) printf("device memory: %s\n", cudaGetErrorString(e)), exit(9);
}
/* In [-1, 1). */
static inline float uniform_of(uint64_t *rng)
{
    *rng ^= *rng << 13, *rng ^= *rng >> 7, *rng ^= *rng << 17;
    return (float)((double)(*rng >> 11) / 9007199254740992.0 * 2 - 1);
}
#endif
