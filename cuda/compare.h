/* compare.h: kernels of start-up tests: numbers to compute with, and how far two results are apart. */
#ifndef MT_CUDA_COMPARE_H
#define MT_CUDA_COMPARE_H
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/dtype.h"

enum { MT_COMPARE_PARTS = 256 };
#ifdef __cplusplus
extern "C" {
#endif
/* x [n] bf16, in [-1, 1), by place and seed */
cudaError_t mt_cuda_noise(void *x, int64_t n, uint32_t seed, cudaStream_t s);
/* parts [MT_COMPARE_PARTS][2], device memory: sums of (a - b)^2 and of b^2; a, b [n] bf16 or f32 */
cudaError_t mt_cuda_apart(double *parts, const void *a, const void *b, int64_t n, mt_dtype t, cudaStream_t s);
/* to = from, n bytes, by threads; both aligned to 4 bytes, of device memory or pinned */
cudaError_t mt_cuda_copy(void *to, const void *from, int64_t n, cudaStream_t s);
#ifdef __cplusplus
}
#endif
#endif
