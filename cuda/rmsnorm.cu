/* RMS norm, forward and backward: a block a row; the gain's gradient a thread a column. */
#include "kernels.h"
#include "mt_pack.cuh"

namespace
{
constexpr int THREADS = 256;

/* Every thread gets the sum. Shared memory is free again when it returns. */
__device__ __forceinline__ float block_sum(float v)
{
    MT_SHARED(part, float[THREADS / 32]);
    v = mt_warp_sum(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += part[i];
    __syncthreads();
    return sum;
}

/* A row is read twice: the second time it comes from the cache, and any width fits without registers for
 * it. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) fwd_kernel(mt_cuda_norm_fwd a)
{
    const int64_t row = blockIdx.x, packs = a.width / V;
    const T *x = static_cast<const T *>(a.x) + row * a.ldx;
    T *y = static_cast<T *>(a.y) + row * a.ldy;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float f[V];
        mt_load(f, x, i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += f[k] * f[k];
    }
    const float r = 1.0f / sqrtf(block_sum(sum) / (float)a.width + a.eps);
    if (threadIdx.x == 0) a.rstd[row] = r;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float f[V], g[V];
        mt_load(f, x, i);
        mt_load_f32(g, a.g, i);
#pragma unroll
        for (int k = 0; k < V; k++) f[k] *= r * g[k];
        mt_store(y, i, f);
    }
}

template <class T, int V>
__device__ __forceinline__ float gained_dot(const T *dy, const T *x, const float *gain, int64_t packs)
{
    float sum = 0;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float d[V], f[V], g[V];
        mt_load(d, dy, i);
        mt_load(f, x, i);
        mt_load_f32(g, gain, i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += d[k] * g[k] * f[k];
    }
    return block_sum(sum);
}

template <class T, int V> __global__ void __launch_bounds__(THREADS) dx_kernel(mt_cuda_norm_bwd a)
{
    const int64_t row = blockIdx.x, packs = a.width / V;
    const T *dy = static_cast<const T *>(a.dy) + row * a.lddy, *x = static_cast<const T *>(a.x) + row * a.ldx;
    const T *res = a.res ? static_cast<const T *>(a.res) + row * a.ldres : nullptr;
    T *dx = static_cast<T *>(a.dx) + row * a.lddx;
    const float r = a.rstd[row], mean = gained_dot<T, V>(dy, x, a.g, packs) * r / (float)a.width;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float d[V], f[V], g[V], t[V] = {0};
        mt_load(d, dy, i);
        mt_load(f, x, i);
        mt_load_f32(g, a.g, i);
        if (res) mt_load(t, res, i);
#pragma unroll
        for (int k = 0; k < V; k++) t[k] += r * (d[k] * g[k] - f[k] * r * mean);
        mt_store(dx, i, t);
    }
}

/* Which rows add up in which row of dgp, and in what order, is a matter of shapes alone. */
template <class T> __global__ void __launch_bounds__(THREADS) gain_kernel(mt_cuda_norm_bwd a)
{
    const int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x, p = blockIdx.y;
    if (column >= a.width) return;
    float sum = 0;
    for (int64_t n = a.rows * p / a.blocks; n < a.rows * (p + 1) / a.blocks; n++)
        sum += mt_get(static_cast<const T *>(a.dy)[n * a.lddy + column]) *
               (mt_get(static_cast<const T *>(a.x)[n * a.ldx + column]) * a.rstd[n]);
    a.dgp[p * a.lddgp + column] = sum;
}

template <class T> cudaError_t fwd(const mt_cuda_norm_fwd &a, cudaStream_t s)
{
    constexpr int V = 16 / sizeof(T);
    const dim3 grid((unsigned)a.rows), block(THREADS);
    const int64_t el = sizeof(T);
    bool wide = a.width % V == 0 && mt_aligned16(a.x, a.ldx * el) && mt_aligned16(a.y, a.ldy * el) &&
                mt_aligned16(a.g, 0);
    if (wide) return MT_LAUNCH(MT_K(fwd_kernel<T, V>), grid, block, 0, s, a);
    return MT_LAUNCH(MT_K(fwd_kernel<T, 1>), grid, block, 0, s, a);
}

template <class T> cudaError_t bwd(const mt_cuda_norm_bwd &a, cudaStream_t s)
{
    constexpr int V = 16 / sizeof(T);
    const dim3 rows((unsigned)a.rows), block(THREADS);
    const dim3 columns((unsigned)((a.width + THREADS - 1) / THREADS), (unsigned)a.blocks);
    const int64_t el = sizeof(T);
    bool wide = a.width % V == 0 && mt_aligned16(a.dx, a.lddx * el) && mt_aligned16(a.dy, a.lddy * el) &&
                mt_aligned16(a.x, a.ldx * el) && mt_aligned16(a.g, 0) &&
                (!a.res || mt_aligned16(a.res, a.ldres * el));
    cudaError_t e = MT_LAUNCH(gain_kernel<T>, columns, block, 0, s, a);
    if (e || !a.rows) return e;
    if (wide) return MT_LAUNCH(MT_K(dx_kernel<T, V>), rows, block, 0, s, a);
    return MT_LAUNCH(MT_K(dx_kernel<T, 1>), rows, block, 0, s, a);
}
} // namespace

extern "C" cudaError_t mt_cuda_rmsnorm_fwd(const mt_cuda_norm_fwd *a, cudaStream_t s)
{
    if (!a->rows || !a->width) return cudaSuccess;
    return a->dtype == MT_BF16 ? fwd<__nv_bfloat16>(*a, s) : fwd<float>(*a, s);
}

extern "C" cudaError_t mt_cuda_rmsnorm_bwd(const mt_cuda_norm_bwd *a, cudaStream_t s)
{
    if (!a->blocks || !a->width) return cudaSuccess;
    return a->dtype == MT_BF16 ? bwd<__nv_bfloat16>(*a, s) : bwd<float>(*a, s);
}
