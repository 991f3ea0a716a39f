/* gemm_vec_tn.h: the part of the template gemm_vec.h for dW = dY^T X: both operands are copied, since both have k, the rows, as their
 * slow dimension. */

enum { TN_ROWS = 256, TN_OUT = 512, TN_A_BYTES = TN_ROWS * TN_OUT * 4, TN_B_BYTES = TN_ROWS * MT_PANEL * 4 };
_Static_assert(TN_A_BYTES + TN_B_BYTES + MR * MT_PANEL * 4 <= MT_GEMM_SCRATCH, "scratch of mul_tn");

struct tn_job {
    const struct vec_ops *o;
    const struct mt_gemm_tn *g;
    struct mt_gemm_rect r;
    char *a, *b;
    float *edge; /* [MR][32] */
};

/* m rows and `rows` columns of dY, as [k][rows]. */
static void copy_dy_any(const struct vec_ops *o, void *out, const void *dy, int64_t ld, int64_t m,
                        int64_t rows)
{
    const mt_bf16 *h = dy;
    uint32_t *w = out;
    if (o->kind == KIND_F32) {
        for (int64_t k = 0; k < m; k++) memcpy(w + k * rows, (const float *)dy + k * ld, (size_t)(4 * rows));
        return;
    }
    for (int64_t k = 0; k < m; k += 2) {
        const mt_bf16 *h0 = h + k * ld, *h1 = k + 1 < m ? h0 + ld : NULL;
        if (o->kind == KIND_DOT) {
            for (int64_t r = 0; r < rows; r++) *w++ = (h1 ? (uint32_t)h1[r] << 16 : 0) | h0[r];
            continue;
        }
        for (int64_t r = 0; r < rows; r++) *w++ = (uint32_t)h0[r] << 16;
        for (int64_t r = 0; r < rows; r++) *w++ = h1 ? (uint32_t)h1[r] << 16 : 0;
    }
}

/* A vector of pairs. */
typedef uint16_t halves __attribute__((vector_size(2 * VW), aligned(2), may_alias));
INLINE vec_bits pairs_of(const mt_bf16 *h0, const mt_bf16 *h1)
{
#ifdef vec_pairs
    return vec_pairs(h0, h1);
#else
    vec_bits lo = __builtin_convertvector(*(const halves *)h0, vec_bits),
             hi = __builtin_convertvector(*(const halves *)h1, vec_bits);
    return hi << 16 | lo;
#endif
}
enum { AHEAD = 64 }; /* elements of a row fetched before their turn */
/* A strip of whole pairs by vectors: words too many fall on the next k, which follows, but for the last. */
static void copy_dy_strip(uint32_t *w, const mt_bf16 *h, int64_t ld, int64_t m, int64_t rows, bool last)
{
    for (; m > (last ? 2 : 0); m -= 2, h += 2 * ld, w += rows) {
        __builtin_prefetch(h + AHEAD);
        __builtin_prefetch(h + ld + AHEAD);
        *(vec_bits *)w = pairs_of(h, h + ld);
    }
    if (!last) return;
    vec_bits tail = pairs_of(h, h + ld);
    memcpy(w, &tail, (size_t)(4 * rows));
}

/* The same for f32, and for pairs widened: each k of a strip is a vector, of which words too many fall on the next k. */
static void copy_dy_f32_strip(float *w, const float *x, int64_t ld, int64_t m, int64_t rows, bool last)
{
    for (; m > (last ? 1 : 0); m--, x += ld, w += rows) {
        __builtin_prefetch(x + AHEAD / 2);
        put(w, *(const vec *)x);
    }
    if (last) memcpy(w, x, (size_t)(4 * rows));
}
static void copy_dy_split_strip(float *w, const mt_bf16 *h, int64_t ld, int64_t m, int64_t rows, bool last)
{
    for (; m > (last ? 1 : 0); m--, h += ld, w += rows) {
        __builtin_prefetch(h + AHEAD);
        put(w, (vec)(__builtin_convertvector(*(const halves *)h, vec_bits) << 16));
    }
    for (int64_t r = 0; last && r < rows; r++) w[r] = mt_f32_of(h[r]);
}

enum { COPY_ROWS = 32 }; /* whose lines stay in L1 for all strips */
/* n rows of a strip from dY on, whose columns have a whole vector behind them. */
static void copy_dy_strip_of(const struct vec_ops *o, void *out, const void *dy, int64_t ld, int64_t n,
                             int64_t rows, bool last)
{
    if (o->kind == KIND_F32)
        copy_dy_f32_strip(out, dy, ld, n, rows, last);
    else if (o->kind == KIND_SPLIT)
        copy_dy_split_strip(out, dy, ld, n, rows, last);
    else
        copy_dy_strip(out, dy, ld, n, rows, last);
}
/* All strips of m rows of dY from row `row` on. */
static void copy_dy(const struct tn_job *j, int64_t row, int64_t m)
{
    const struct mt_gemm_tn *g = j->g;
    int64_t size = mt_dtype_bytes(j->o->dtype), blocks = (j->r.rows + MR - 1) / MR;
    int64_t per_row = row_bytes(j->o, m);
    for (int64_t k = 0; k < m; k += COPY_ROWS)
        for (int64_t t = 0; t < blocks; t++) {
            int64_t lo = j->r.rows * t / blocks, rows = j->r.rows * (t + 1) / blocks - lo;
            int64_t n = lesser(m - k, COPY_ROWS), col = j->r.row + lo;
            char *out = j->a + lo * per_row + rows * row_bytes(j->o, k);
            const char *dy = (const char *)g->dy + ((row + k) * g->lddy + col) * size;
            /* The columns too many are there. */
            if (MR <= VW && (n % 2 == 0 || j->o->kind == KIND_F32) && col + VW <= g->o)
                copy_dy_strip_of(j->o, out, dy, g->lddy, n, rows, k + n == m);
            else
                copy_dy_any(j->o, out, dy, g->lddy, n, rows);
        }
}

INLINE void copy_x_pairs(uint32_t *w, const mt_bf16 *h, int64_t ld)
{
    __builtin_prefetch(h + AHEAD);
    __builtin_prefetch(h + ld + AHEAD);
    UNROLL for (int c = 0; c < MT_PANEL; c += VW) * (vec_bits *)(w + c) = pairs_of(h + c, h + ld + c);
}

/* m rows of a panel of X: [k][32] f32 or [k/2][32] pairs. */
static void copy_x(const struct vec_ops *o, void *out, const void *x, int64_t ld, int64_t m, int64_t cols)
{
    uint32_t *w = out;
    if (cols < MT_PANEL) memset(out, 0, (size_t)(4 * MT_PANEL * steps_of(o, m)));
    if (o->kind == KIND_F32) {
        for (int64_t k = 0; k < m; k++)
            memcpy(w + k * MT_PANEL, (const float *)x + k * ld, (size_t)(4 * cols));
        return;
    }
    for (int64_t k = 0; k < m; k += 2, w += MT_PANEL) {
        const mt_bf16 *h0 = (const mt_bf16 *)x + k * ld;
        if (k + 1 == m)
            for (int64_t c = 0; c < cols; c++) w[c] = h0[c];
        else if (cols == MT_PANEL)
            copy_x_pairs(w, h0, ld);
        else
            for (int64_t c = 0; c < cols; c++) w[c] = (uint32_t)h0[ld + c] << 16 | h0[c];
    }
}

/* m rows from m0 of the group: one panel of dW, all rows of the rectangle. */
static void tn_panel(const struct tn_job *j, int64_t panel, int64_t m, bool load)
{
    const struct mt_gemm_tn *g = j->g;
    int64_t col = panel * MT_PANEL, cols = lesser(g->i - col, MT_PANEL), blocks = (j->r.rows + MR - 1) / MR;
    int64_t per_row = row_bytes(j->o, m);
    for (int64_t t = 0; t < blocks; t++) {
        int64_t lo = j->r.rows * t / blocks, rows = j->r.rows * (t + 1) / blocks - lo;
        float *dw = g->dw + j->r.group * g->dw_stride + (j->r.row + lo) * g->lddw + col;
        float *acc = cols == MT_PANEL ? dw : j->edge;
        int64_t ld = cols == MT_PANEL ? g->lddw : MT_PANEL;
        for (int64_t r = 0; r < rows && t + 1 < blocks;
             r++) /* the next strip's sums: no prefetcher sees them coming */
            UNROLL for (int c = 0; c < MT_PANEL; c += 16)
                __builtin_prefetch(dw + (rows + r) * g->lddw + c, 1);
        for (int64_t r = 0; load && acc != dw && r < rows; r++)
            memcpy(acc + r * ld, dw + r * g->lddw, (size_t)(4 * cols));
        struct strip s = {j->a + lo * per_row, 4};
        for (int c = 0; c < MT_PANEL; c += NC)
            j->o->columns((int)rows, acc + c, ld, s, j->b + 4 * c, steps_of(j->o, m), load);
        for (int64_t r = 0; acc != dw && r < rows; r++)
            memcpy(dw + r * g->lddw, acc + r * ld, (size_t)(4 * cols));
    }
}

static void tn_rect(const struct tn_job *j)
{
    const struct mt_gemm_tn *g = j->g;
    int64_t size = mt_dtype_bytes(j->o->dtype), m0 = 0;
    do {
        int64_t m = lesser(j->r.extent - m0, TN_ROWS), row = j->r.first + m0;
        copy_dy(j, row, m);
        for (int64_t p = j->r.panel; p < j->r.panel + j->r.panels; p++) {
            int64_t cols = lesser(g->i - p * MT_PANEL, MT_PANEL);
            copy_x(j->o, j->b, (const char *)g->x + (row * g->ldx + p * MT_PANEL) * size, g->ldx, m, cols);
            tn_panel(j, p, m, m0 > 0 || g->accumulate);
        }
        m0 += TN_ROWS;
    } while (m0 < j->r.extent);
}

static void vec_mul_tn(const struct vec_ops *o, const struct mt_gemm_tn *g, int part, int parts,
                       void *scratch)
{
    struct mt_gemm_grid grid = mt_gemm_grid_tn(g, MR, TN_OUT / MR);
    struct tn_job job = {.o = o, .g = g, .a = scratch};
    job.b = job.a + TN_A_BYTES;
    job.edge = (float *)(void *)(job.b + TN_B_BYTES);
    struct mt_gemm_cut cut;
    mt_gemm_cut_init(&cut, &grid, part, parts);
    while (mt_gemm_cut_next(&cut, &job.r)) tn_rect(&job);
}
