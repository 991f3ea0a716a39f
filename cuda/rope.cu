/* Rotary positions. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 128;

/* Angles are f64, since positions go to millions. */
__global__ void __launch_bounds__(THREADS) table_kernel(MT_CALL c)
{
    const int64_t R = MT_DIM(c, 'R'), half = R / 2, p = blockIdx.x;
    float *row = static_cast<float *>(MT_ARGS(rope_table, &c)->table) + p * c.ld[0];
    const auto &s = *MT_SCALARS(rope_table, &c);
    for (int64_t i = threadIdx.x; i < half; i += THREADS) {
        const double t = fmin(fmax(((double)i - s.low) / (s.high - s.low), 0.0), 1.0);
        const double angle = (double)p * (pow(s.theta, -2.0 * (double)i / (double)R) * ((1 - t) + t / s.factor));
        row[i] = (float)(s.gain * cos(angle));
        row[half + i] = (float)(s.gain * sin(angle));
    }
}

/* A block a token; elements at and half further on make a pair. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) turn_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(rope, &c);
    const int64_t half = MT_DIM(c, 'R') / 2, packs = half / V, n = blockIdx.x;
    const float sign = (float)MT_SCALARS(rope, &c)->sign;
    const float *cosine = static_cast<const float *>(a.table) +
                          static_cast<const int32_t *>(a.pos)[n] * c.ld[2];
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'H') * packs; i += THREADS) {
        T *x = reinterpret_cast<T *>(static_cast<char *>(a.x) + n * c.stride[0]) + i / packs * c.ld[0];
        const int64_t at = i % packs;
        float p[V], q[V], co[V], si[V];
        mt_load(p, x, at);
        mt_load(q, x + half, at);
        mt_load_f32(co, cosine, at);
        mt_load_f32(si, cosine + half, at);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float s = si[k] * sign, first = p[k];
            p[k] = first * co[k] - q[k] * s;
            q[k] = q[k] * co[k] + first * s;
        }
        mt_store(x, at, p);
        mt_store(x + half, at, q);
    }
}

template <class T> cudaError_t turn(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t half = MT_DIM(*c, 'R') / 2;
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    bool wide = half % V == 0 && mt_rows_wide(c, 0, sizeof(T), half) && c->stride[0] % 16 == 0 &&
                mt_rows_wide(c, 2, 4, half);
    if (!grid.x || !half || !MT_DIM(*c, 'H')) return cudaSuccess;
    if (wide) return MT_LAUNCH(MT_K(turn_kernel<T, V>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(turn_kernel<T, 1>), grid, block, 0, s, *c);
}
} // namespace

extern "C" cudaError_t mt_cuda_rope_table(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'S')), block(THREADS);
    return grid.x ? MT_LAUNCH(table_kernel, grid, block, 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_rope(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return turn<decltype(t)>(c, q->stream); });
}
