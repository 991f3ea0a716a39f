/* Attention backward on tensor cores. Probabilities come back from the scores and lse. Two independent passes, so that neither
 * needs sums that others write: dk and dv of 64 keys over all queries that see them, dq of 64 queries over their keys.
 * With P the probabilities and dP = dO V^T:  dS = P (dP - delta) scale, dV = P^T dO, dK = dS^T Q, dQ = dS K. */
#include "attention.h"
#include "mt_attention.cuh"

namespace
{
/* Queries, or keys, at a time against the block's own rows: as many as registers allow. */
template <int A> constexpr int others = A > 128 ? 16 : 32;

template <int A, int B> struct buffers {
    static constexpr int OTHER = others<A>;
    mt_bf own_a[MT_ATT_ROWS * A], own_b[MT_ATT_ROWS * B]; /* K and V, or Q and dO */
    mt_bf a[OTHER * A], b[OTHER * B];                     /* Q and dO, or K and V */
    float lse[OTHER], delta[OTHER];
    int32_t begin[OTHER];
};

/* s, dp [16 own rows][others columns]: scores become probabilities, dp becomes dS. */
MT_DEVICE void grads(float &s, float &dp, bool sees, float lse, float delta, float scale)
{
    const float p = sees ? mt_exp2((s * scale - lse) * MT_LOG2E) : 0;
    s = p;
    dp = sees ? p * (dp - delta) * scale : 0;
}

/* First query from `from` on that does not see key j: documents are in order. */
MT_DEVICE int end_of(const int32_t *begin, int from, int n, int j)
{
    int lo = from, hi = n;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (begin[mid] <= j)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Queries [n0, n0 + others) of head h: rows, lse, delta, begins. */
template <int A, int B> MT_DEVICE void load_queries(const mt_call &c, buffers<A, B> *m, int64_t h, int64_t n0)
{
    constexpr int OTHER = others<A>;
    const auto &a = *MT_ARGS(attention_bwd, &c);
    mt_att_load<A, OTHER>(m->a, mt_att_rows_of(c, 6, h, MT_DIM(c, 'A')), n0);
    mt_att_load<B, OTHER>(m->b, mt_att_rows_of(c, 3, h, MT_DIM(c, 'B')), n0);
    mt_cp_async_commit();
    if (threadIdx.x < OTHER) {
        const int64_t n = n0 + threadIdx.x;
        const bool have = n < MT_DIM(c, 'N');
        m->lse[threadIdx.x] = have ? static_cast<const float *>(a.lse)[h * c.ld[5] + n] : 0;
        m->delta[threadIdx.x] = have ? static_cast<const float *>(a.delta)[h * c.ld[10] + n] : 0;
        m->begin[threadIdx.x] = have ? static_cast<const int32_t *>(a.begin)[n] : INT32_MAX; /* sees none */
    }
    mt_cp_async_wait<0>();
    __syncthreads();
}

template <int A, int B> __global__ void __launch_bounds__(MT_ATT_THREADS) keys_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    typedef buffers<A, B> memory;
    constexpr int OTHER = others<A>;
    MT_DYN_SMEM(memory, m);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int N = (int)MT_DIM(c, 'N'), g = (int)blockIdx.y, per = (int)(MT_DIM(c, 'H') / MT_DIM(c, 'G'));
    const int k0 = (int)blockIdx.x * MT_ATT_ROWS, last = k0 + MT_ATT_ROWS < N ? k0 + MT_ATT_ROWS : N;
    const int end =
        end_of(static_cast<const int32_t *>(MT_ARGS(attention_bwd, &c)->begin), last - 1, N, last - 1);
    const float scale = (float)MT_SCALARS(attention_bwd, &c)->scale;
    float dk[A / 8][4] = {{0}}, dv[B / 8][4] = {{0}};
    mt_att_load<A, MT_ATT_ROWS>(m->own_a, mt_att_rows_of(c, 7, g, MT_DIM(c, 'A')), k0);
    mt_att_load<B, MT_ATT_ROWS>(m->own_b, mt_att_rows_of(c, 8, g, MT_DIM(c, 'B')), k0);
    for (int h = g * per; h < (g + 1) * per; h++)
        for (int n0 = k0; n0 < end; n0 += OTHER) {
            float s[OTHER / 8][4], dp[OTHER / 8][4];
            load_queries(c, m, h, n0);
            mt_att_scores<A, OTHER>(s, m->own_a, warp * 16, m->a);
            mt_att_scores<B, OTHER>(dp, m->own_b, warp * 16, m->b);
#pragma unroll
            for (int i = 0; i < OTHER / 8; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int q = i * 8 + lane % 4 * 2 + e % 2;
                    const int key = k0 + warp * 16 + lane / 4 + e / 2 * 8;
                    grads(s[i][e], dp[i][e], key <= n0 + q && key >= m->begin[q], m->lse[q], m->delta[q],
                          scale);
                }
            mt_att_mix<B, OTHER>(dv, s, m->b);
            mt_att_mix<A, OTHER>(dk, dp, m->a);
            __syncthreads();
        }
    mt_att_store<A>(mt_att_rows_of(c, 1, g, MT_DIM(c, 'A')), k0 + warp * 16, dk, 1, 1);
    mt_att_store<B>(mt_att_rows_of(c, 2, g, MT_DIM(c, 'B')), k0 + warp * 16, dv, 1, 1);
}

template <int A, int B> __global__ void __launch_bounds__(MT_ATT_THREADS) queries_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    typedef buffers<A, B> memory;
    constexpr int OTHER = others<A>;
    const auto &a = *MT_ARGS(attention_bwd, &c);
    MT_DYN_SMEM(memory, m);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int N = (int)MT_DIM(c, 'N'), h = (int)blockIdx.y, g = h / (int)(MT_DIM(c, 'H') / MT_DIM(c, 'G'));
    const int q0 = (int)(gridDim.x - 1 - blockIdx.x) * MT_ATT_ROWS,
              last = q0 + MT_ATT_ROWS < N ? q0 + MT_ATT_ROWS : N;
    const int row = q0 + warp * 16 + lane / 4;
    const int32_t *begins = static_cast<const int32_t *>(a.begin);
    const float scale = (float)MT_SCALARS(attention_bwd, &c)->scale;
    const mt_att_rows k = mt_att_rows_of(c, 7, g, MT_DIM(c, 'A')),
                      v = mt_att_rows_of(c, 8, g, MT_DIM(c, 'B'));
    float dq[A / 8][4] = {{0}}, lse[2] = {0, 0}, delta[2] = {0, 0};
    int begin[2] = {N, N};
    for (int i = 0; i < 2; i++) {
        if (row + i * 8 >= N) continue;
        begin[i] = begins[row + i * 8];
        lse[i] = static_cast<const float *>(a.lse)[h * c.ld[5] + row + i * 8];
        delta[i] = static_cast<const float *>(a.delta)[h * c.ld[10] + row + i * 8];
    }
    mt_att_load<A, MT_ATT_ROWS>(m->own_a, mt_att_rows_of(c, 6, h, MT_DIM(c, 'A')), q0);
    mt_att_load<B, MT_ATT_ROWS>(m->own_b, mt_att_rows_of(c, 3, h, MT_DIM(c, 'B')), q0);
    for (int key0 = begins[q0] / OTHER * OTHER; key0 < last; key0 += OTHER) {
        float s[OTHER / 8][4], dp[OTHER / 8][4];
        mt_att_load<A, OTHER>(m->a, k, key0);
        mt_att_load<B, OTHER>(m->b, v, key0);
        mt_cp_async_commit();
        mt_cp_async_wait<0>();
        __syncthreads();
        mt_att_scores<A, OTHER>(s, m->own_a, warp * 16, m->a);
        mt_att_scores<B, OTHER>(dp, m->own_b, warp * 16, m->b);
#pragma unroll
        for (int i = 0; i < OTHER / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = key0 + i * 8 + lane % 4 * 2 + e % 2;
                grads(s[i][e], dp[i][e], key <= row + e / 2 * 8 && key >= begin[e / 2], lse[e / 2],
                      delta[e / 2], scale);
            }
        mt_att_mix<A, OTHER>(dq, dp, m->a);
        __syncthreads();
    }
    mt_att_store<A>(mt_att_rows_of(c, 0, h, MT_DIM(c, 'A')), q0 + warp * 16, dq, 1, 1);
}

template <int A, int B> cudaError_t run(const mt_call *c, cudaStream_t s)
{
    constexpr int bytes = (int)sizeof(buffers<A, B>);
    const unsigned tiles = mt_blocks(MT_DIM(*c, 'N'), MT_ATT_ROWS);
    const dim3 keys(tiles, (unsigned)MT_DIM(*c, 'G')), queries(tiles, (unsigned)MT_DIM(*c, 'H')),
        block(MT_ATT_THREADS);
    cudaError_t e = cudaFuncSetAttribute((const void *)keys_kernel<A, B>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (!e)
        e = cudaFuncSetAttribute((const void *)queries_kernel<A, B>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (!e) e = MT_LAUNCH(MT_K(keys_kernel<A, B>), keys, block, bytes, s, *c);
    return e ? e : MT_LAUNCH(MT_K(queries_kernel<A, B>), queries, block, bytes, s, *c);
}
} // namespace

cudaError_t mt_attention_bwd_mma(const mt_call *c, cudaStream_t s)
{
    const int64_t a = MT_DIM(*c, 'A'), b = MT_DIM(*c, 'B');
    if (!mt_att_wide(c, 0, 8, 5)) return cudaErrorNotSupported;
#define TRY(A, B) \
    if (a <= A && b <= B) return run<A, B>(c, s);
    MT_ATTENTION_WIDTHS(TRY)
#undef TRY
    return cudaErrorNotSupported;
}
