/* Attention forward on tensor cores: a block has 64 queries of a head, and takes 64 keys at a time, the next ones on their way
 * meanwhile. A row keeps its maximum, its sum and its output so far, relative to the maximum. */
#include "attention.h"
#include "mt_attention.cuh"

namespace
{
constexpr int KEYS = 64;
constexpr float NONE = -1e30f; /* a maximum of nothing: finite, so that differences are numbers */

template <int A, int B> struct buffers {
    mt_bf q[MT_ATT_ROWS * A], k[2][KEYS * A], v[2][KEYS * B];
};

/* Scores of keys that a row does not see to -infinity. row: this lane's first; begin: of its two rows. */
MT_DEVICE void mask(float (&s)[KEYS / 8][4], int row, const int (&begin)[2], int key0)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int key = key0 + i * 8 + lane % 4 * 2 + c % 2;
            if (key > row + c / 2 * 8 || key < begin[c / 2]) s[i][c] = -INFINITY;
        }
}
/* Scores become probabilities; h: which of the lane's two rows. sl: the scale, for powers of 2. Returns the factor for what
 * was summed before. */
MT_DEVICE float softmax(float (&s)[KEYS / 8][4], int h, float sl, float &top, float &sum)
{
    float most = top, add = 0;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) most = fmaxf(most, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
    most = fmaxf(most, __shfl_xor_sync(MT_WARP_ALL, most, 1));
    most = fmaxf(most, __shfl_xor_sync(MT_WARP_ALL, most, 2));
    const float fade = mt_exp2((top - most) * sl), off = most * sl;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
        s[i][2 * h] = mt_exp2(s[i][2 * h] * sl - off);
        s[i][2 * h + 1] = mt_exp2(s[i][2 * h + 1] * sl - off);
        add += s[i][2 * h] + s[i][2 * h + 1];
    }
    top = most;
    sum = sum * fade + add;
    return fade;
}

/* This lane's two rows, 8 apart. */
template <int B> struct rows {
    float acc[B / 8][4], top[2], sum[2];
    int begin[2], row;
};
/* A tile of keys, from key0 on. */
template <int A, int B>
MT_DEVICE void add_keys(rows<B> &r, const mt_bf *q, const mt_bf *k, const mt_bf *v, bool some, int key0,
                        float sl)
{
    float s[KEYS / 8][4];
    mt_att_scores<A, KEYS>(s, q, (int)threadIdx.x / 32 * 16, k);
    if (some) mask(s, r.row, r.begin, key0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float fade = softmax(s, i, sl, r.top[i], r.sum[i]);
#pragma unroll
        for (int n = 0; n < B / 8; n++) {
            r.acc[n][2 * i] *= fade;
            r.acc[n][2 * i + 1] *= fade;
        }
    }
    mt_att_mix<B, KEYS>(r.acc, s, v);
}

template <int A, int B> __global__ void __launch_bounds__(MT_ATT_THREADS) fwd_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    typedef buffers<A, B> memory;
    const auto &a = *MT_ARGS(attention_fwd, &c);
    MT_DYN_SMEM(memory, m);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int N = (int)MT_DIM(c, 'N'), h = (int)blockIdx.y, g = h / (int)(MT_DIM(c, 'H') / MT_DIM(c, 'G'));
    const int q0 = (int)(gridDim.x - 1 - blockIdx.x) * MT_ATT_ROWS,
              last = q0 + MT_ATT_ROWS < N ? q0 + MT_ATT_ROWS : N;
    const int32_t *begins = static_cast<const int32_t *>(a.begin);
    const mt_att_rows k = mt_att_rows_of(c, 3, g, MT_DIM(c, 'A')),
                      v = mt_att_rows_of(c, 4, g, MT_DIM(c, 'B'));
    const int row = q0 + warp * 16 + lane / 4, most = begins[last - 1];
    const float scale = (float)MT_SCALARS(attention_fwd, &c)->scale;
    rows<B> r = {
        {{0}}, {NONE, NONE}, {0, 0}, {row < N ? begins[row] : N, row + 8 < N ? begins[row + 8] : N}, row};
    const int first = begins[q0] / KEYS * KEYS;
    mt_att_load<A, MT_ATT_ROWS>(m->q, mt_att_rows_of(c, 2, h, MT_DIM(c, 'A')), q0);
    mt_att_load<A, KEYS>(m->k[0], k, first);
    mt_att_load<B, KEYS>(m->v[0], v, first);
    mt_cp_async_commit();
    int now = 0;
    for (int key0 = first; key0 < last; key0 += KEYS, now ^= 1) {
        if (key0 + KEYS < last) {
            mt_att_load<A, KEYS>(m->k[now ^ 1], k, key0 + KEYS);
            mt_att_load<B, KEYS>(m->v[now ^ 1], v, key0 + KEYS);
        }
        mt_cp_async_commit();
        mt_cp_async_wait<1>();
        __syncthreads();
        add_keys<A, B>(r, m->q, m->k[now], m->v[now], key0 + KEYS > q0 || key0 < most, key0,
                       scale * MT_LOG2E);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        r.sum[i] += __shfl_xor_sync(MT_WARP_ALL, r.sum[i], 1);
        r.sum[i] += __shfl_xor_sync(MT_WARP_ALL, r.sum[i], 2);
        if (lane % 4 == 0 && row + i * 8 < N) {
            static_cast<float *>(a.lse)[h * c.ld[1] + row + i * 8] = r.top[i] * scale + logf(r.sum[i]);
            if (float *most = mt_attention_top(c)) most[h * c.ld[6] + row + i * 8] = r.top[i] * scale;
        }
    }
    mt_att_store<B>(mt_att_rows_of(c, 0, h, MT_DIM(c, 'B')), q0 + warp * 16, r.acc, 1 / r.sum[0],
                    1 / r.sum[1]);
}

template <int A, int B> cudaError_t run(const mt_call *c, cudaStream_t s)
{
    constexpr int bytes = (int)sizeof(buffers<A, B>);
    const dim3 grid(mt_blocks(MT_DIM(*c, 'N'), MT_ATT_ROWS), (unsigned)MT_DIM(*c, 'H'));
    cudaError_t e = cudaFuncSetAttribute((const void *)fwd_kernel<A, B>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return e ? e : MT_LAUNCH(MT_K(fwd_kernel<A, B>), grid, dim3(MT_ATT_THREADS), bytes, s, *c);
}
} // namespace

cudaError_t mt_attention_fwd_mma(const mt_call *c, cudaStream_t s)
{
    const int64_t a = MT_DIM(*c, 'A'), b = MT_DIM(*c, 'B');
    if (!mt_att_wide(c, 0, 4, 1)) return cudaErrorNotSupported;
#define TRY(A, B) \
    if (a <= A && b <= B) return run<A, B>(c, s);
    MT_ATTENTION_WIDTHS(TRY)
#undef TRY
    return cudaErrorNotSupported;
}
