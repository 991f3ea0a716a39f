/* Keys of multi-head latent attention, from a part that all heads share and a part of each. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 128;

/* A block a token. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) join_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(key_join, &c);
    const int64_t n = blockIdx.x, shared = MT_DIM(c, 'R') / V, packs = MT_DIM(c, 'A') / V;
    const T *one = static_cast<const T *>(a.shared) + n * c.ld[1];
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'H') * packs; i += THREADS) {
        const int64_t h = i / packs, at = i % packs;
        const T *own = reinterpret_cast<const T *>(static_cast<const char *>(a.own) + n * c.stride[2]) +
                       h * c.ld[2];
        T *k = reinterpret_cast<T *>(static_cast<char *>(a.k) + n * c.stride[0]) + h * c.ld[0];
        float x[V];
        if (at < shared)
            mt_load(x, one, at);
        else
            mt_load(x, own, at - shared);
        mt_store(k, at, x);
    }
}

/* The gradient of the shared part is the sum over heads, in order. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) split_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(key_split, &c);
    const int64_t n = blockIdx.x, H = MT_DIM(c, 'H'), shared = MT_DIM(c, 'R') / V, packs = MT_DIM(c, 'C') / V;
    const T *dk = reinterpret_cast<const T *>(static_cast<const char *>(a.dk) + n * c.stride[2]);
    for (int64_t i = threadIdx.x; i < shared; i += THREADS) {
        float sum[V] = {0}, x[V];
        for (int64_t h = 0; h < H; h++) {
            mt_load(x, dk + h * c.ld[2], i);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += x[j];
        }
        mt_store(static_cast<T *>(a.dshared) + n * c.ld[0], i, sum);
    }
    for (int64_t i = threadIdx.x; i < H * packs; i += THREADS) {
        const int64_t h = i / packs, at = i % packs;
        T *to = reinterpret_cast<T *>(static_cast<char *>(a.dpart) + n * c.stride[1]) + h * c.ld[1];
        float x[V];
        mt_load(x, dk + h * c.ld[2], shared + at);
        mt_store(to, at, x);
    }
}

/* Whether all rows may be moved 16 bytes at a time. i3: the argument of whole keys, i2: of parts, i1: of the shared part. */
template <class T> bool wide(const mt_call *c, int i3, int i2, int i1)
{
    return MT_DIM(*c, 'R') % mt_wide<T> == 0 && MT_DIM(*c, 'C') % mt_wide<T> == 0 &&
           mt_rows_wide(c, i3, sizeof(T), MT_DIM(*c, 'A')) && c->stride[i3] % 16 == 0 &&
           mt_rows_wide(c, i2, sizeof(T), MT_DIM(*c, 'C')) && c->stride[i2] % 16 == 0 &&
           mt_rows_wide(c, i1, sizeof(T), MT_DIM(*c, 'R'));
}
} // namespace

extern "C" cudaError_t mt_cuda_key_join(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        return wide<T>(c, 0, 2, 1) ? MT_LAUNCH(MT_K(join_kernel<T, mt_wide<T>>), grid, block, 0, q->stream, *c)
                                   : MT_LAUNCH(MT_K(join_kernel<T, 1>), grid, block, 0, q->stream, *c);
    });
}
extern "C" cudaError_t mt_cuda_key_split(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        return wide<T>(c, 2, 1, 0) ? MT_LAUNCH(MT_K(split_kernel<T, mt_wide<T>>), grid, block, 0, q->stream, *c)
                                   : MT_LAUNCH(MT_K(split_kernel<T, 1>), grid, block, 0, q->stream, *c);
    });
}
