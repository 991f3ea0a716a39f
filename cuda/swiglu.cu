/* SwiGLU of dense layers and of routed rows. u holds the gate's half, then the other: s = silu(u1) u2. A block a row. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 128;

template <class T, int V> __global__ void __launch_bounds__(THREADS) fwd_kernel(MT_CALL c)
{
    const int64_t F = MT_DIM(c, 'F'), row = blockIdx.x;
    const T *u = static_cast<const T *>(c.arg[1]) + row * c.ld[1];
    T *s = static_cast<T *>(c.arg[0]) + row * c.ld[0];
    for (int64_t i = threadIdx.x; i < F / V; i += THREADS) {
        float x[V], y[V];
        mt_load(x, u, i);
        mt_load(y, u + F, i);
#pragma unroll
        for (int k = 0; k < V; k++) y[k] *= x[k] * mt_sigmoid(x[k]);
        mt_store(s, i, y);
    }
}

/* Pack i of both halves of du, from gate * ds. */
template <class T, int V>
MT_DEVICE void row_bwd(T *du, const float (&ds)[V], const T *u, float gate, int64_t F, int64_t i)
{
    float x[V], y[V];
    mt_load(x, u, i);
    mt_load(y, u + F, i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float d = gate * ds[k], g = mt_sigmoid(x[k]), z = x[k];
        x[k] = d * y[k] * (g * (1.0f + z * (1.0f - g)));
        y[k] = d * (z * g);
    }
    mt_store(du, i, x);
    mt_store(du + F, i, y);
}
template <class T, int V> __global__ void __launch_bounds__(THREADS) bwd_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(swiglu_bwd, &c);
    const int64_t F = MT_DIM(c, 'F'), row = blockIdx.x;
    for (int64_t i = threadIdx.x; i < F / V; i += THREADS) {
        float ds[V];
        mt_load(ds, static_cast<const T *>(a.ds) + row * c.ld[1], i);
        row_bwd(static_cast<T *>(a.du) + row * c.ld[0], ds, static_cast<const T *>(a.u) + row * c.ld[2], 1.0f,
                F, i);
    }
}

/* dgate = <ds, s>, s becomes gate * s, du comes from gate * ds. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) expert_bwd_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(expert_swiglu_bwd, &c);
    const int64_t F = MT_DIM(c, 'F'), K = MT_DIM(c, 'K'), row = blockIdx.x;
    const int64_t place = MT_SCALARS(expert_swiglu_bwd, &c)->first + row;
    const int64_t from = a.order ? static_cast<const int32_t *>(a.order)[place] : place;
    const float gate = static_cast<const float *>(a.gates)[from / K * c.ld[5] + from % K];
    T *s = static_cast<T *>(a.s) + row * c.ld[1];
    float dot = 0;
    for (int64_t i = threadIdx.x; i < F / V; i += THREADS) {
        float ds[V], f[V];
        mt_load(ds, static_cast<const T *>(a.ds) + row * c.ld[3], i);
        mt_load(f, s, i);
#pragma unroll
        for (int k = 0; k < V; k++) {
            dot += ds[k] * f[k];
            f[k] *= gate;
        }
        mt_store(s, i, f);
        row_bwd(static_cast<T *>(a.du) + row * c.ld[0], ds, static_cast<const T *>(a.u) + row * c.ld[4], gate,
                F, i);
    }
    dot = mt_block_add<THREADS>(dot);
    if (threadIdx.x == 0) static_cast<float *>(a.dgate)[place] = dot;
}

/* args: those that are moved; halves begin F elements in. */
template <class T> bool wide(const mt_call *c, std::initializer_list<int> args)
{
    bool all = MT_DIM(*c, 'F') % mt_wide<T> == 0;
    for (int i : args) all = all && mt_rows_wide(c, i, sizeof(T), MT_DIM(*c, 'F'));
    return all;
}
template <class T> cudaError_t fwd(const mt_call *c, int64_t rows, cudaStream_t s)
{
    const dim3 grid((unsigned)rows), block(THREADS);
    if (!rows || !MT_DIM(*c, 'F')) return cudaSuccess;
    if (wide<T>(c, {0, 1})) return MT_LAUNCH(MT_K(fwd_kernel<T, mt_wide<T>>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(fwd_kernel<T, 1>), grid, block, 0, s, *c);
}
template <class T> cudaError_t bwd(const mt_call *c, cudaStream_t s)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'F')) return cudaSuccess;
    if (wide<T>(c, {0, 1, 2})) return MT_LAUNCH(MT_K(bwd_kernel<T, mt_wide<T>>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(bwd_kernel<T, 1>), grid, block, 0, s, *c);
}
template <class T> cudaError_t expert_bwd(const mt_call *c, cudaStream_t s)
{
    const dim3 grid((unsigned)MT_SCALARS(expert_swiglu_bwd, c)->rows), block(THREADS);
    if (!grid.x) return cudaSuccess;
    if (wide<T>(c, {0, 1, 3, 4}))
        return MT_LAUNCH(MT_K(expert_bwd_kernel<T, mt_wide<T>>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(expert_bwd_kernel<T, 1>), grid, block, 0, s, *c);
}
} // namespace

extern "C" cudaError_t mt_cuda_swiglu_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return fwd<decltype(t)>(c, MT_DIM(*c, 'N'), q->stream); });
}
extern "C" cudaError_t mt_cuda_swiglu_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return bwd<decltype(t)>(c, q->stream); });
}
extern "C" cudaError_t mt_cuda_expert_swiglu_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(
        c, [=](auto t) { return fwd<decltype(t)>(c, MT_SCALARS(expert_swiglu_fwd, c)->rows, q->stream); });
}
extern "C" cudaError_t mt_cuda_expert_swiglu_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return expert_bwd<decltype(t)>(c, q->stream); });
}
