/* mt_attention.cuh: what the tensor core kernels of attention share. Tiles of rows lie in shared memory, filled up with zeros;
 * a chunk of 16 bytes has a place that depends on its row, so that eight rows' chunks of one column lie in different banks. */
#ifndef MT_ATTENTION_CUH
#define MT_ATTENTION_CUH
#include "mt_kernel.cuh"

constexpr int MT_ATT_WARPS = 4, MT_ATT_THREADS = 32 * MT_ATT_WARPS, MT_ATT_ROWS = 16 * MT_ATT_WARPS;
constexpr float MT_LOG2E = 1.44269504f;

/* Rows (token, head) of one head of argument i. */
struct mt_att_rows {
    mt_bf *at;
    int64_t token, n, width; /* elements from token to token; tokens; elements of a row */
};
MT_DEVICE mt_att_rows mt_att_rows_of(const mt_call &c, int i, int64_t head, int64_t width)
{
    return mt_att_rows{static_cast<mt_bf *>(c.arg[i]) + head * c.ld[i], c.stride[i] / 2, MT_DIM(c, 'N'),
                       width};
}

template <int D> MT_DEVICE int mt_att_chunk(int row, int c)
{
    return row * D + ((c ^ (row & 7)) * 8);
}
/* ROWS rows from token n0 on. */
template <int D, int ROWS> MT_DEVICE void mt_att_load(mt_bf *to, const mt_att_rows &x, int64_t n0)
{
#pragma unroll
    for (int i = 0; i < ROWS * D / 8 / MT_ATT_THREADS; i++) {
        const int id = (int)threadIdx.x + i * MT_ATT_THREADS, row = id / (D / 8), c = id % (D / 8);
        const bool have = n0 + row < x.n && c * 8 < x.width;
        mt_cp_async16(to + mt_att_chunk<D>(row, c), have ? x.at + (n0 + row) * x.token + c * 8 : x.at, have);
    }
}

/* Fragments of 16 k: of rows as the A side; of rows as the columns of B; of the k of B as rows. */
template <int D> MT_DEVICE void mt_att_a(uint32_t (&r)[4], const mt_bf *s, int row, int k)
{
    const int lane = (int)threadIdx.x % 32;
    mt_ldmatrix_x4(r, s + mt_att_chunk<D>(row + lane % 16, k / 8 + lane / 16));
}
template <int D> MT_DEVICE void mt_att_b(uint32_t (&r)[4], const mt_bf *s, int n, int k)
{
    const int lane = (int)threadIdx.x % 32;
    mt_ldmatrix_x4(r, s + mt_att_chunk<D>(n + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2));
}
template <int D> MT_DEVICE void mt_att_b_lines(uint32_t (&r)[4], const mt_bf *s, int k, int n)
{
    const int lane = (int)threadIdx.x % 32;
    mt_ldmatrix_x4_trans(r, s + mt_att_chunk<D>(k + lane % 16, n / 8 + lane / 16));
}
MT_DEVICE void mt_att_mma2(float (&low)[4], float (&high)[4], const uint32_t (&a)[4], const uint32_t (&b)[4])
{
    const uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
    mt_mma_bf16(low, a, b0);
    mt_mma_bf16(high, a, b1);
}

/* s[16 rows][N columns] = rows x columns^T, D wide: rows of tile x from `row` on, columns the rows of tile y. */
template <int D, int N>
MT_DEVICE void mt_att_scores(float (&s)[N / 8][4], const mt_bf *x, int row, const mt_bf *y)
{
#pragma unroll
    for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[i][c] = 0;
#pragma unroll 2 /* all of them would take more registers for addresses than there are */
    for (int k = 0; k < D; k += 16) {
        uint32_t a[4];
        mt_att_a<D>(a, x, row, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            mt_att_b<D>(b, y, n * 16, k);
            mt_att_mma2(s[n * 2], s[n * 2 + 1], a, b);
        }
    }
}

MT_DEVICE uint32_t mt_att_pack(float low, float high)
{
    const __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
    uint32_t u;
    memcpy(&u, &p, 4);
    return u;
}
/* acc[16 rows][D] += p[16 rows][N] y, y the N rows of a tile; p rounded to bf16. */
template <int D, int N>
MT_DEVICE void mt_att_mix(float (&acc)[D / 8][4], const float (&p)[N / 8][4], const mt_bf *y)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const uint32_t a[4] = {mt_att_pack(p[k * 2][0], p[k * 2][1]), mt_att_pack(p[k * 2][2], p[k * 2][3]),
                               mt_att_pack(p[k * 2 + 1][0], p[k * 2 + 1][1]),
                               mt_att_pack(p[k * 2 + 1][2], p[k * 2 + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            mt_att_b_lines<D>(b, y, k * 16, n * 16);
            mt_att_mma2(acc[n * 2], acc[n * 2 + 1], a, b);
        }
    }
}

/* Rows n0 + (this lane's two rows) of x = acc * factor of each of the two. */
template <int D>
MT_DEVICE void mt_att_store(const mt_att_rows &x, int64_t n0, const float (&acc)[D / 8][4], float f0,
                            float f1)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64_t row = n0 + lane / 4 + h * 8;
        if (row >= x.n) continue;
        mt_bf *to = x.at + row * x.token + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            if (i * 8 < x.width)
                *reinterpret_cast<__nv_bfloat162 *>(to + i * 8) =
                    __floats2bfloat162_rn(acc[i][2 * h] * (h ? f1 : f0), acc[i][2 * h + 1] * (h ? f1 : f0));
    }
}

/* Whether arguments [first, last] but one, all [N, heads, width], may be moved in chunks of 16 bytes. */
static inline bool mt_att_wide(const mt_call *c, int first, int last, int but)
{
    bool all = c->dtype == MT_BF16 && MT_DIM(*c, 'A') % 8 == 0 && MT_DIM(*c, 'B') % 8 == 0;
    for (int i = first; i <= last; i++)
        all = all && (i == but || mt_aligned16(c->arg[i], c->ld[i] * 2 | c->stride[i]));
    return all;
}
#endif
