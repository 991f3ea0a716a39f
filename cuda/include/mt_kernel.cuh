/* mt_kernel.cuh: what most kernels share: the call as a parameter, dispatch by type, reductions of a block. */
#ifndef MT_KERNEL_CUH
#define MT_KERNEL_CUH
#include "kernels.h"
#include "mt_pack.cuh"

/* A kernel gets the whole call by value; its arguments are named by MT_ARGS(op, &c), its letters by MT_DIM. */
#define MT_CALL const __grid_constant__ mt_call
#define MT_DIM(c, letter) ((c).dim[(letter) - 'A'])

typedef __nv_bfloat16 mt_bf;

/* Elements of T in 16 bytes. */
template <class T> constexpr int mt_wide = 16 / (int)sizeof(T);

/* f(T()) for the call's type. */
template <class F> static inline cudaError_t mt_by_type(const mt_call *c, F f)
{
    return c->dtype == MT_BF16 ? f(mt_bf()) : f(float());
}
/* Whether rows of argument i, of `width` elements of `size` bytes, may be moved 16 bytes at a time. */
static inline bool mt_rows_wide(const mt_call *c, int i, int64_t size, int64_t width)
{
    return !c->arg[i] || (width * size % 16 == 0 && mt_aligned16(c->arg[i], c->ld[i] * size));
}
static inline unsigned mt_blocks(int64_t n, int64_t each)
{
    return (unsigned)((n + each - 1) / each);
}

template <class T> MT_DEVICE T mt_warp_add(T v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(MT_WARP_ALL, v, o);
    return v;
}
MT_DEVICE float mt_warp_max(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(MT_WARP_ALL, v, o));
    return v;
}
/* Every thread gets the sum. Shared memory is free again when it returns. */
template <int THREADS, class T> MT_DEVICE T mt_block_add(T v)
{
    MT_SHARED(part, T[THREADS / 32]);
    v = mt_warp_add(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    T sum = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += part[i];
    __syncthreads();
    return sum;
}
template <int THREADS> MT_DEVICE float mt_block_max(float v)
{
    MT_SHARED(part, float[THREADS / 32]);
    v = mt_warp_max(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float top = part[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++) top = fmaxf(top, part[i]);
    __syncthreads();
    return top;
}

MT_DEVICE float mt_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
#endif
