/* kernels.h: C interface of the CUDA kernels. Pointers are device memory; lds count elements; nothing is
 * synchronised. Rows of zero count are legal and launch nothing. */
#ifndef MT_CUDA_KERNELS_H
#define MT_CUDA_KERNELS_H
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x rstd g, rstd = (mean x^2 + eps)^-1/2; sums in f32. y, x [rows, width] of `dtype`. */
struct mt_cuda_norm_fwd {
    void *y;
    float *rstd;
    const void *x;
    const float *g;
    int64_t rows, width, ldy, ldx;
    float eps;
    mt_dtype dtype;
};
cudaError_t mt_cuda_rmsnorm_fwd(const struct mt_cuda_norm_fwd *a, cudaStream_t s);

/* With xh = x rstd: dx = res + rstd (dy g - xh mean(dy g xh)); dgp[p] = sum of dy xh over row block p of
 * `blocks`, in the order of rows. res may be NULL. */
struct mt_cuda_norm_bwd {
    void *dx;
    float *dgp;
    const void *dy, *x;
    const float *rstd, *g;
    const void *res;
    int64_t rows, width, blocks, lddx, lddgp, lddy, ldx, ldres;
    mt_dtype dtype;
};
cudaError_t mt_cuda_rmsnorm_bwd(const struct mt_cuda_norm_bwd *a, cudaStream_t s);

/* Row i of y = row order[i] / topk of x. */
struct mt_cuda_gather {
    void *y;
    const void *x;
    const int32_t *order;
    int64_t rows, row_bytes, y_bytes, x_bytes; /* the last two: from row to row */
    int32_t topk;
};
cudaError_t mt_cuda_gather_rows(const struct mt_cuda_gather *a, cudaStream_t s);

/* y [count][rows, width] of `dtype` = x, f32, rounded to nearest even. Strides between matrices in bytes. */
struct mt_cuda_cast {
    void *y;
    const float *x;
    int64_t count, rows, width, ldy, ldx, y_stride, x_stride;
    mt_dtype dtype;
};
cudaError_t mt_cuda_cast_f32(const struct mt_cuda_cast *a, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
