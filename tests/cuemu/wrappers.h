/* wrappers.h: kernels that use one PTX wrapper of cuda/include/mt_cuda.cuh each, and one that uses none; the same on the emulator
 * and on a GPU. */
#ifndef MT_TESTS_WRAPPERS_H
#define MT_TESTS_WRAPPERS_H
#include <cuda_runtime_api.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* d [16][8] += a [16][16] b [8][16]^T; a, b bf16, d f32. One warp, which loads its fragments by hand. */
cudaError_t wrap_mma(float *d, const uint16_t *a, const uint16_t *b, cudaStream_t s);
/* The same, with fragments by ldmatrix from shared memory, b given as [16][8] and turned by
 * ldmatrix.trans. */
cudaError_t wrap_mma_ldmatrix(float *d, const uint16_t *a, const uint16_t *b_turned, cudaStream_t s);
/* y [tiles][512] = x of the next tile, around, by a cp.async pipeline of two buffers; rows past `valid`
 * floats are zeros. */
cudaError_t wrap_cp_async(float *y, const float *x, int tiles, int valid, cudaStream_t s);
/* Two warps pass n values from one to the other by named barriers: y[i] = 2 x[i] + i / 32. */
cudaError_t wrap_named_barriers(float *y, const float *x, int n, cudaStream_t s);
/* y = 2^x */
cudaError_t wrap_exp2(float *y, const float *x, int n, cudaStream_t s);
/* y[0] = sum of x, n a multiple of 32, by warp sums and an atomic; y[0] must be 0. */
cudaError_t wrap_warp_sum(float *y, const float *x, int n, cudaStream_t s);
/* y = a x */
cudaError_t wrap_scale(float *y, const float *x, float a, int n, cudaStream_t s);
#ifdef __cplusplus
}
#endif
#endif
