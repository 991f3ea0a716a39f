/* RMS norm, forward and backward: a block a row, or a warp where that has a pack for each lane at most (heads are normed one by one): the
 * same bits, for the other warps of the block have nothing to add. The gain's gradient: a thread a column. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 256, WARP = 32;

/* The threads of a row: their number, the row, the sum over them. */
template <int LANES> struct row_of {
    MT_MEMBER static int64_t row() { return (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES; }
    MT_MEMBER static int lane() { return (int)threadIdx.x % LANES; }
    MT_MEMBER static float add(float v)
    {
        if constexpr (LANES == WARP) return mt_warp_add(v);
        return mt_block_add<LANES>(v);
    }
};

/* A row is read twice: the second time it comes from the cache, and any width fits without registers for
 * it. */
template <class T, int V, int LANES> __global__ void __launch_bounds__(THREADS) fwd_kernel(MT_CALL c)
{
    typedef row_of<LANES> of;
    const auto &a = *MT_ARGS(rmsnorm_fwd, &c);
    const int64_t row = of::row(), width = MT_DIM(c, 'D'), packs = width / V;
    if (row >= MT_DIM(c, 'N')) return;
    const T *x = static_cast<const T *>(a.x) + row * c.ld[2];
    T *y = static_cast<T *>(a.y) + row * c.ld[0];
    float sum = 0;
    for (int64_t i = of::lane(); i < packs; i += LANES) {
        float f[V];
        mt_load(f, x, i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += f[k] * f[k];
    }
    const float r = 1.0f / sqrtf(of::add(sum) / (float)width + (float)MT_SCALARS(rmsnorm_fwd, &c)->eps);
    if (of::lane() == 0) static_cast<float *>(a.rstd)[row] = r;
    for (int64_t i = of::lane(); i < packs; i += LANES) {
        float f[V], g[V];
        mt_load(f, x, i);
        mt_load_f32(g, static_cast<const float *>(a.g), i);
#pragma unroll
        for (int k = 0; k < V; k++) f[k] *= r * g[k];
        mt_store(y, i, f);
    }
}

template <class T, int V, int LANES>
__device__ __forceinline__ float gained_dot(const T *dy, const T *x, const float *gain, int64_t packs)
{
    typedef row_of<LANES> of;
    float sum = 0;
    for (int64_t i = of::lane(); i < packs; i += LANES) {
        float d[V], f[V], g[V];
        mt_load(d, dy, i);
        mt_load(f, x, i);
        mt_load_f32(g, gain, i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += d[k] * g[k] * f[k];
    }
    return of::add(sum);
}

template <class T, int V, int LANES> __global__ void __launch_bounds__(THREADS) dx_kernel(MT_CALL c)
{
    typedef row_of<LANES> of;
    const auto &a = *MT_ARGS(rmsnorm_bwd, &c);
    const int64_t row = of::row(), width = MT_DIM(c, 'D'), packs = width / V;
    if (row >= MT_DIM(c, 'N')) return;
    const T *dy = static_cast<const T *>(a.dy) + row * c.ld[2],
            *x = static_cast<const T *>(a.x) + row * c.ld[3];
    const T *res = a.res ? static_cast<const T *>(a.res) + row * c.ld[6] : nullptr;
    const float *gain = static_cast<const float *>(a.g), r = static_cast<const float *>(a.rstd)[row];
    T *dx = static_cast<T *>(a.dx) + row * c.ld[0];
    const float mean = gained_dot<T, V, LANES>(dy, x, gain, packs) * r / (float)width;
    for (int64_t i = of::lane(); i < packs; i += LANES) {
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

/* By the width of the rows, in packs of V. */
#define BY_WIDTH(kernel, T, V, rows, width, s, c)                                                             \
    ((width) <= (V) * WARP                                                                                    \
         ? MT_LAUNCH(MT_K(kernel<T, V, WARP>), dim3(mt_blocks(rows, THREADS / WARP)), dim3(THREADS), 0, s, c) \
         : MT_LAUNCH(MT_K(kernel<T, V, THREADS>), dim3((unsigned)(rows)), dim3(THREADS), 0, s, c))

template <class T> cudaError_t fwd(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t rows = MT_DIM(*c, 'N'), width = MT_DIM(*c, 'D'), el = sizeof(T);
    bool wide = width % V == 0 && mt_rows_wide(c, 0, el, width) && mt_rows_wide(c, 2, el, width) &&
                mt_aligned16(c->arg[3], 0);
    if (!rows || !width) return cudaSuccess;
    return wide ? BY_WIDTH(fwd_kernel, T, V, rows, width, s, *c)
                : BY_WIDTH(fwd_kernel, T, 1, rows, width, s, *c);
}

template <class T> cudaError_t bwd(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t rows = MT_DIM(*c, 'N'), width = MT_DIM(*c, 'D'), el = sizeof(T);
    const dim3 columns(mt_blocks(width, THREADS), (unsigned)MT_DIM(*c, 'P'));
    bool wide = width % V == 0 && mt_aligned16(c->arg[5], 0);
    for (int i : {0, 2, 3, 6}) wide = wide && mt_rows_wide(c, i, el, width);
    if (!columns.x || !columns.y) return cudaSuccess;
    cudaError_t e = MT_LAUNCH(gain_kernel<T>, columns, dim3(THREADS), 0, s, *c);
    if (e || !rows) return e;
    return wide ? BY_WIDTH(dx_kernel, T, V, rows, width, s, *c)
                : BY_WIDTH(dx_kernel, T, 1, rows, width, s, *c);
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
