/* RMS norm, forward and backward: a block a row; the gain's gradient a thread a column. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 256;

/* A row is read twice: the second time it comes from the cache, and any width fits without registers for
 * it. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) fwd_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(rmsnorm_fwd, &c);
    const int64_t row = blockIdx.x, width = MT_DIM(c, 'D'), packs = width / V;
    const T *x = static_cast<const T *>(a.x) + row * c.ld[2];
    T *y = static_cast<T *>(a.y) + row * c.ld[0];
    float sum = 0;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float f[V];
        mt_load(f, x, i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += f[k] * f[k];
    }
    const float r =
        1.0f / sqrtf(mt_block_add<THREADS>(sum) / (float)width + (float)MT_SCALARS(rmsnorm_fwd, &c)->eps);
    if (threadIdx.x == 0) static_cast<float *>(a.rstd)[row] = r;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float f[V], g[V];
        mt_load(f, x, i);
        mt_load_f32(g, static_cast<const float *>(a.g), i);
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
    return mt_block_add<THREADS>(sum);
}

template <class T, int V> __global__ void __launch_bounds__(THREADS) dx_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(rmsnorm_bwd, &c);
    const int64_t row = blockIdx.x, width = MT_DIM(c, 'D'), packs = width / V;
    const T *dy = static_cast<const T *>(a.dy) + row * c.ld[2],
            *x = static_cast<const T *>(a.x) + row * c.ld[3];
    const T *res = a.res ? static_cast<const T *>(a.res) + row * c.ld[6] : nullptr;
    const float *gain = static_cast<const float *>(a.g), r = static_cast<const float *>(a.rstd)[row];
    T *dx = static_cast<T *>(a.dx) + row * c.ld[0];
    const float mean = gained_dot<T, V>(dy, x, gain, packs) * r / (float)width;
    for (int64_t i = threadIdx.x; i < packs; i += THREADS) {
        float d[V], f[V], g[V], t[V] = {0};
        mt_load(d, dy, i);
        mt_load(f, x, i);
        mt_load_f32(g, gain, i);
        if (res) mt_load(t, res, i);
#pragma unroll
        for (int k = 0; k < V; k++) t[k] += r * (d[k] * g[k] - f[k] * r * mean);
        mt_store(dx, i, t);
    }
}

/* Which rows add up in which row of dgp, and in what order, is a matter of shapes alone. */
template <class T> __global__ void __launch_bounds__(THREADS) gain_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(rmsnorm_bwd, &c);
    const int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x, p = blockIdx.y, rows = MT_DIM(c, 'N'),
                  blocks = MT_DIM(c, 'P');
    if (column >= MT_DIM(c, 'D')) return;
    float sum = 0;
    for (int64_t n = rows * p / blocks; n < rows * (p + 1) / blocks; n++)
        sum += mt_get(static_cast<const T *>(a.dy)[n * c.ld[2] + column]) *
               (mt_get(static_cast<const T *>(a.x)[n * c.ld[3] + column]) *
                static_cast<const float *>(a.rstd)[n]);
    static_cast<float *>(a.dgp)[p * c.ld[1] + column] = sum;
}

template <class T> cudaError_t fwd(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t width = MT_DIM(*c, 'D'), el = sizeof(T);
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    bool wide = width % V == 0 && mt_rows_wide(c, 0, el, width) && mt_rows_wide(c, 2, el, width) &&
                mt_aligned16(c->arg[3], 0);
    if (!grid.x || !width) return cudaSuccess;
    if (wide) return MT_LAUNCH(MT_K(fwd_kernel<T, V>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(fwd_kernel<T, 1>), grid, block, 0, s, *c);
}

template <class T> cudaError_t bwd(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t width = MT_DIM(*c, 'D'), el = sizeof(T);
    const dim3 rows((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    const dim3 columns(mt_blocks(width, THREADS), (unsigned)MT_DIM(*c, 'P'));
    bool wide = width % V == 0 && mt_aligned16(c->arg[5], 0);
    for (int i : {0, 2, 3, 6}) wide = wide && mt_rows_wide(c, i, el, width);
    if (!columns.x || !columns.y) return cudaSuccess;
    cudaError_t e = MT_LAUNCH(gain_kernel<T>, columns, block, 0, s, *c);
    if (e || !rows.x) return e;
    if (wide) return MT_LAUNCH(MT_K(dx_kernel<T, V>), rows, block, 0, s, *c);
    return MT_LAUNCH(MT_K(dx_kernel<T, 1>), rows, block, 0, s, *c);
}
} // namespace

extern "C" cudaError_t mt_cuda_rmsnorm_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return fwd<decltype(t)>(c, q->stream); });
}
extern "C" cudaError_t mt_cuda_rmsnorm_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return bwd<decltype(t)>(c, q->stream); });
}
