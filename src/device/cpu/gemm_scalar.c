/* The reference: plain loops over the packed form, readable rather than fast. */
#include "device/cpu/gemm_kernels.h"

enum { UNIT = 8, BLOCK = 32 };

static inline float get(const void *p, mt_dtype t, int64_t i)
{
    return t == MT_F32 ? ((const float *)p)[i] : mt_f32_of(((const mt_bf16 *)p)[i]);
}
static inline void put(void *p, mt_dtype t, int64_t i, float x)
{
    if (t == MT_F32)
        ((float *)p)[i] = x;
    else
        ((mt_bf16 *)p)[i] = mt_bf16_of(x);
}

/* One row of A times one panel: the 32 sums are kept side by side, so that the panel is read in order. */
static void row_times_panel(float sum[MT_PANEL], const void *a, const void *b, int64_t k, mt_dtype t)
{
    if (t == MT_F32) {
        for (int64_t q = 0; q < k; q++)
            for (int j = 0; j < MT_PANEL; j++)
                sum[j] += ((const float *)a)[q] * ((const float *)b)[q * MT_PANEL + j];
        return;
    }
    const mt_bf16 *x = a, *w = b;
    for (int64_t q = 0; q < k; q++)
        for (int j = 0; j < MT_PANEL; j++)
            sum[j] += mt_f32_of(x[q]) * mt_f32_of(w[(q / 2 * MT_PANEL + j) * 2 + q % 2]);
}

static void mul_rect(const struct mt_gemm_mul *g, const struct mt_gemm_rect *r, mt_dtype t)
{
    int64_t size = mt_dtype_bytes(t), kpad = t == MT_F32 ? g->k : (g->k + 1) / 2 * 2;
    for (int64_t p = r->panel; p < r->panel + r->panels; p++) {
        const char *b = (const char *)g->b + r->group * g->b_stride + p * MT_PANEL * kpad * size;
        int64_t col = p * MT_PANEL, cols = g->n - col < MT_PANEL ? g->n - col : MT_PANEL;
        for (int64_t m = r->first + r->row; m < r->first + r->row + r->rows; m++) {
            float sum[MT_PANEL] = {0};
            for (int64_t j = 0; g->accumulate && j < cols; j++)
                sum[j] = ((const float *)g->c)[m * g->ldc + col + j];
            row_times_panel(sum, (const char *)g->a + m * g->lda * size, b, g->k, t);
            for (int64_t j = 0; j < cols; j++) {
                if (g->bias) sum[j] += g->bias[r->group * g->bias_stride + col + j];
                if (g->add) sum[j] += get(g->add, t, m * g->ldadd + col + j);
                put(g->c, g->c_dtype, m * g->ldc + col + j, sum[j]);
            }
        }
    }
}

static void mul(const struct mt_gemm_mul *g, int part, int parts, mt_dtype t)
{
    struct mt_gemm_grid grid = mt_gemm_grid_mul(g, UNIT, BLOCK);
    struct mt_gemm_cut cut;
    struct mt_gemm_rect rect;
    mt_gemm_cut_init(&cut, &grid, part, parts);
    while (mt_gemm_cut_next(&cut, &rect)) mul_rect(g, &rect, t);
}

static void mul_tn(const struct mt_gemm_tn *g, int part, int parts, mt_dtype t)
{
    struct mt_gemm_grid grid = mt_gemm_grid_tn(g, UNIT, BLOCK);
    struct mt_gemm_cut cut;
    struct mt_gemm_rect r;
    mt_gemm_cut_init(&cut, &grid, part, parts);
    while (mt_gemm_cut_next(&cut, &r)) {
        int64_t col = r.panel * MT_PANEL, end = col + r.panels * MT_PANEL;
        if (end > g->i) end = g->i;
        for (int64_t o = r.row; o < r.row + r.rows; o++) {
            float *row = g->dw + r.group * g->dw_stride + o * g->lddw;
            for (int64_t j = col; !g->accumulate && j < end; j++) row[j] = 0;
            for (int64_t m = r.first; m < r.first + r.extent; m++)
                for (int64_t j = col; j < end; j++)
                    row[j] += get(g->dy, t, m * g->lddy + o) * get(g->x, t, m * g->ldx + j);
        }
    }
}

static void mul_f32(const struct mt_gemm_mul *g, int part, int parts, void *scratch)
{
    (void)scratch;
    mul(g, part, parts, MT_F32);
}
static void mul_bf16(const struct mt_gemm_mul *g, int part, int parts, void *scratch)
{
    (void)scratch;
    mul(g, part, parts, MT_BF16);
}
static void mul_tn_f32(const struct mt_gemm_tn *g, int part, int parts, void *scratch)
{
    (void)scratch;
    mul_tn(g, part, parts, MT_F32);
}
static void mul_tn_bf16(const struct mt_gemm_tn *g, int part, int parts, void *scratch)
{
    (void)scratch;
    mul_tn(g, part, parts, MT_BF16);
}

const struct mt_gemm mt_gemm_scalar_f32 = {
    MT_ISA_SCALAR, MT_F32,     1,   mt_gemm_pack_nt_f32, mt_gemm_pack_nn_f32, mt_gemm_unpack_nt_f32,
    mul_f32,       mul_tn_f32, NULL};
const struct mt_gemm mt_gemm_scalar_bf16 = {MT_ISA_SCALAR,
                                            MT_BF16,
                                            2,
                                            mt_gemm_pack_nt_bf16_pairs,
                                            mt_gemm_pack_nn_bf16_pairs,
                                            mt_gemm_unpack_nt_bf16_pairs,
                                            mul_bf16,
                                            mul_tn_bf16,
                                            NULL};
