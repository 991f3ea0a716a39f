/* AdamW, and Muon round its iteration (newton_schulz.cu). Matrices [B, R, C] lie apart by strides: a block a row. */
#include "mt_kernel.cuh"

#include <cmath>

namespace
{
constexpr int THREADS = 256;

/* The factors of one step; computed in double, as the bias corrections of late steps need. */
struct adamw_factors {
    float keep, beta1, rest1, beta2, rest2, step, root, eps;
};
MT_DEVICE void adamw_one(const adamw_factors &k, float *w, float *m, float *v, float g)
{
    *m = k.beta1 * *m + k.rest1 * g;
    *v = k.beta2 * *v + k.rest2 * (g * g);
    *w = *w * k.keep - k.step * (*m / (sqrtf(*v) * k.root + k.eps));
}
template <int V> __global__ void __launch_bounds__(THREADS) adamw_kernel(MT_CALL c, adamw_factors k)
{
    const auto &a = *MT_ARGS(adamw, &c);
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= MT_DIM(c, 'N') / V) return;
    const float scale = *static_cast<const float *>(a.scale);
    float *at[3] = {static_cast<float *>(a.w), static_cast<float *>(a.m), static_cast<float *>(a.v)};
    float w[V], m[V], v[V], g[V];
    mt_load_f32(w, at[0], i);
    mt_load_f32(m, at[1], i);
    mt_load_f32(v, at[2], i);
    mt_load_f32(g, static_cast<const float *>(a.grad), i);
#pragma unroll
    for (int j = 0; j < V; j++) adamw_one(k, &w[j], &m[j], &v[j], g[j] * scale);
    mt_store(at[0], i, w);
    mt_store(at[1], i, m);
    mt_store(at[2], i, v);
}

/* Row `row` of B R rows of argument i, elements of type T. */
template <class T> MT_DEVICE T *row_of(const mt_call &c, int i, int64_t row)
{
    const int64_t rows = MT_DIM(c, 'R');
    return reinterpret_cast<T *>(static_cast<char *>(c.arg[i]) + row / rows * c.stride[i]) +
           row % rows * c.ld[i];
}
template <class T, int V> __global__ void __launch_bounds__(THREADS) momentum_kernel(MT_CALL c)
{
    const auto &s = *MT_SCALARS(muon_momentum, &c);
    const int64_t row = blockIdx.x;
    const float scale = *static_cast<const float *>(MT_ARGS(muon_momentum, &c)->scale), mu = (float)s.mu,
                rest = (float)(1 - s.mu);
    T *u = row_of<T>(c, 0, row);
    float *m = row_of<float>(c, 1, row);
    const float *grad = row_of<const float>(c, 2, row);
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'C') / V; i += THREADS) {
        float g[V], x[V];
        mt_load_f32(g, grad, i);
        mt_load_f32(x, m, i);
#pragma unroll
        for (int k = 0; k < V; k++) {
            g[k] *= scale;
            x[k] = mu * x[k] + rest * g[k];
            g[k] = s.nesterov ? rest * g[k] + mu * x[k] : x[k];
        }
#pragma unroll
        for (int k = 0; k < V; k++) m[i * V + k] = x[k];
        mt_store(u, i, g);
    }
}
template <class T, int V>
__global__ void __launch_bounds__(THREADS) apply_kernel(MT_CALL c, float keep, float step)
{
    const int64_t row = blockIdx.x;
    float *w = row_of<float>(c, 0, row);
    const T *x = row_of<const T>(c, 1, row);
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'C') / V; i += THREADS) {
        float f[V], u[V];
        mt_load_f32(f, w, i);
        mt_load(u, x, i);
#pragma unroll
        for (int k = 0; k < V; k++) w[i * V + k] = f[k] * keep - step * u[k];
    }
}

/* Whether argument i, with elements of `size` bytes, is aligned in all of its rows. */
bool wide(const mt_call *c, int i, int64_t size)
{
    return mt_rows_wide(c, i, size, MT_DIM(*c, 'C')) && c->stride[i] % 16 == 0;
}
} // namespace

extern "C" cudaError_t mt_cuda_adamw(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &s = *MT_SCALARS(adamw, c);
    const double t = (double)s.step;
    const adamw_factors k = {(float)(1 - s.lr * s.wd),
                             (float)s.beta1,
                             (float)(1 - s.beta1),
                             (float)s.beta2,
                             (float)(1 - s.beta2),
                             (float)(s.lr / (1 - std::pow(s.beta1, t))),
                             (float)(1 / std::sqrt(1 - std::pow(s.beta2, t))),
                             (float)s.eps};
    const int64_t n = MT_DIM(*c, 'N');
    bool wide = n % 4 == 0;
    for (int i = 0; i < 4; i++) wide = wide && mt_aligned16(c->arg[i], 0);
    if (!n) return cudaSuccess;
    if (wide)
        return MT_LAUNCH(adamw_kernel<4>, dim3(mt_blocks(n / 4, THREADS)), dim3(THREADS), 0, q->stream, *c,
                         k);
    return MT_LAUNCH(adamw_kernel<1>, dim3(mt_blocks(n, THREADS)), dim3(THREADS), 0, q->stream, *c, k);
}
extern "C" cudaError_t mt_cuda_muon_momentum(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)(MT_DIM(*c, 'B') * MT_DIM(*c, 'R'))), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'C')) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        if (wide(c, 0, sizeof(T)) && wide(c, 1, 4) && wide(c, 2, 4))
            return MT_LAUNCH(MT_K(momentum_kernel<T, mt_wide<T>>), grid, block, 0, q->stream, *c);
        return MT_LAUNCH(MT_K(momentum_kernel<T, 1>), grid, block, 0, q->stream, *c);
    });
}
extern "C" cudaError_t mt_cuda_muon_apply(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &s = *MT_SCALARS(muon_apply, c);
    const float keep = (float)(1 - s.lr * s.wd), step = (float)(s.lr * s.factor);
    const dim3 grid((unsigned)(MT_DIM(*c, 'B') * MT_DIM(*c, 'R'))), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'C')) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        if (wide(c, 0, 4) && wide(c, 1, sizeof(T)))
            return MT_LAUNCH(MT_K(apply_kernel<T, mt_wide<T>>), grid, block, 0, q->stream, *c, keep, step);
        return MT_LAUNCH(MT_K(apply_kernel<T, 1>), grid, block, 0, q->stream, *c, keep, step);
    });
}
