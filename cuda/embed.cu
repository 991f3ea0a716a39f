/* Token embedding: rows out, and gradients of rows, which several tokens may share, in the order of tokens. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 128;

template <class W> __global__ void __launch_bounds__(THREADS) fwd_kernel(MT_CALL c, int64_t el)
{
    const auto &a = *MT_ARGS(embed_fwd, &c);
    const int64_t row = blockIdx.x, from = static_cast<const int32_t *>(a.tok)[row];
    const W *w = reinterpret_cast<const W *>(static_cast<const char *>(a.w) + from * c.ld[2] * el);
    W *x = reinterpret_cast<W *>(static_cast<char *>(a.x) + row * c.ld[0] * el);
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'D') * el / (int64_t)sizeof(W); i += THREADS) x[i] = w[i];
}

/* The last place before n, going back, or the first from n on, that holds `id`; -1, or `end`, if there is none. Every
 * thread of the block gets it. */
MT_DEVICE bool stands_before(const int32_t *tok, int64_t n, int32_t id)
{
    for (int64_t end = n; end > 0; end -= THREADS) {
        const int64_t i = end - 1 - threadIdx.x;
        if (__syncthreads_or(i >= 0 && tok[i] == id)) return true;
    }
    return false;
}

/* A block a token: that of a row's first token adds all of the row's, THREADS of them looked at together. Threads own
 * columns, so a row's sum has the order of its tokens. */
template <class T> __global__ void __launch_bounds__(THREADS) bwd_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(embed_bwd, &c);
    MT_SHARED(hit, unsigned[THREADS / 32]);
    const int32_t *tok = static_cast<const int32_t *>(a.tok), id = tok[blockIdx.x];
    const int64_t n = blockIdx.x, N = MT_DIM(c, 'N'), D = MT_DIM(c, 'D');
    if (stands_before(tok, n, id)) return;
    float *dw = static_cast<float *>(a.dw) + id * c.ld[0];
    for (int64_t base = n; base < N; base += THREADS) {
        const int64_t i = base + threadIdx.x;
        const unsigned mine = __ballot_sync(MT_WARP_ALL, i < N && tok[i] == id);
        if (threadIdx.x % 32 == 0) hit[threadIdx.x / 32] = mine;
        __syncthreads();
        for (int64_t j = threadIdx.x; j < D; j += THREADS) {
            float sum = dw[j];
            for (int w = 0; w < THREADS / 32; w++)
                for (unsigned left = hit[w]; left; left &= left - 1) {
                    const int64_t row = base + w * 32 + __ffs((int)left) - 1;
                    sum += mt_get(static_cast<const T *>(a.dx)[row * c.ld[1] + j]);
                }
            dw[j] = sum;
        }
        __syncthreads();
    }
}
} // namespace

extern "C" cudaError_t mt_cuda_embed_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t el = mt_dtype_bytes((mt_dtype)c->dtype), width = MT_DIM(*c, 'D');
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x || !width) return cudaSuccess;
    if (mt_rows_wide(c, 0, el, width) && mt_rows_wide(c, 2, el, width))
        return MT_LAUNCH(fwd_kernel<uint4>, grid, block, 0, q->stream, *c, el);
    return MT_LAUNCH(fwd_kernel<uint16_t>, grid, block, 0, q->stream, *c, el);
}
extern "C" cudaError_t mt_cuda_embed_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'D')) return cudaSuccess;
    return mt_by_type(
        c, [=](auto t) { return MT_LAUNCH(bwd_kernel<decltype(t)>, grid, block, 0, q->stream, *c); });
}
