/* gemm_lt.h: dense products through cuBLASLt, on row-major matrices. */
#ifndef MT_CUDA_GEMM_LT_H
#define MT_CUDA_GEMM_LT_H
#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"

/* Products and the choice of their algorithms; one a rank. Its host code is the only caller. */
struct mt_lt;
MT_MUST_USE mt_status mt_lt_open(struct mt_lt **lt, mt_err *e);
void mt_lt_close(struct mt_lt *lt); /* NULL is fine; every product is over */

/* y [m][n] = x [m][k] w [n][k]^T (+ add [m][n]) (+ bias [n]): x and w of `dtype` (f32: full f32 products; bf16: f32 sums, one
 * rounding), y, add and bias of y_dtype; device memory. add and bias may be NULL; add may be y. lds in elements. x_lines: x
 * lies as [k][m]; w_lines: w lies as [k][n]. */
struct mt_lt_product {
    void *y;
    const void *x, *w, *add, *bias;
    int64_t m, n, k, ldy, ldx, ldw, ldadd;
    bool x_lines, w_lines;
    mt_dtype dtype, y_dtype;
};
/* Enqueues it on s with scratch memory that nothing else uses meanwhile, aligned to 256 bytes. An
 * algorithm is chosen when a shape is first met, in the first step, and kept. DEVICE: cuBLASLt refuses the
 * product. */
MT_MUST_USE mt_status mt_lt_multiply(struct mt_lt *lt, const struct mt_lt_product *p, void *scratch,
                                     size_t scratch_bytes, cudaStream_t s, mt_err *e);
#endif
