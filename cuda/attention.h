/* attention.h: the kernels of causal attention inside documents: the general ones, and those for tensor cores. Inside cuda/
 * only: C++. */
#ifndef MT_CUDA_ATTENTION_H
#define MT_CUDA_ATTENTION_H
#include "mt_kernel.cuh"

/* Widths for which there is a tensor core kernel; smaller ones are filled up with zeros. */
#define MT_ATTENTION_WIDTHS(X) X(64, 64) X(128, 128) X(192, 128)

/* Somebody else did the work: MT_ATTENTION_DONE. */
MT_DEVICE bool mt_attention_done(const mt_call &c)
{
    const int32_t *done = reinterpret_cast<const int32_t *>((intptr_t)c.scalar[MT_ATTENTION_DONE].i);
    return done && *done;
}

/* Where the largest score of each row goes, [H, N] apart by c.ld[6]; NULL: nobody asks. */
MT_DEVICE float *mt_attention_top(const mt_call &c)
{
    return c.op == MT_OP_attention_fwd_top ? static_cast<float *>(c.arg[6]) : nullptr;
}

/* Any shape, T or f32 alike, sums in f32. */
cudaError_t mt_attention_fwd_any(const mt_call *c, cudaStream_t s);
cudaError_t mt_attention_bwd_any(const mt_call *c, cudaStream_t s);
/* bf16, widths that are multiples of 8 up to a pair of the list, everything aligned to 16 bytes: cudaErrorNotSupported, and
 * nothing is launched, if the call is another. */
cudaError_t mt_attention_fwd_mma(const mt_call *c, cudaStream_t s);
cudaError_t mt_attention_bwd_mma(const mt_call *c, cudaStream_t s);
/* The workspace of the op attention_bwd: delta[h][n] = <dout, o>. */
cudaError_t mt_attention_delta(const mt_call *c, cudaStream_t s);
#endif
