/* gemm_vec.h: products by vector registers. A source template: an instruction set's file defines
 *
 *   vec, VW        a vector of VW floats (GNU C vector type, unaligned, may alias)
 *   vec_fma(a, b, c), vec_set(x)
 *   MR, NV         rows and vectors of the block of C held in registers; NV * VW is 16 or 32
 *   MAX_STEPS      steps along k whose part of a panel stays in L1
 *
 * includes this file and builds its tables with VEC_TABLE. One step along k is one row of a panel: 32 f32, or
 * 32 pairs of bf16. Three kinds of kernels differ in what a step does:
 *   f32    c += a * b
 *   split  pairs split into two f32 each; A was widened beforehand, so that only B is split in the loop
 *   dot    pairs, by an instruction (vec_dot) */
#include "device/cpu/gemm_kernels.h"

#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { NC = NV * VW, PARTIAL_PANELS = 4, BLOCK_ROWS = 256 };
enum vec_kind { KIND_F32, KIND_SPLIT, KIND_DOT };
typedef uint32_t vec_bits __attribute__((vector_size(4 * VW), aligned(4), may_alias));
typedef float one_f32 __attribute__((may_alias));
typedef int one_pair __attribute__((aligned(2), may_alias));

/* Where a kernel reads A, whose words are f32, or pairs. In rows: word k of a row follows word k - 1, rows are `row` bytes apart. In
 * columns: word k of all rows of the strip, then word k + 1 of all. The distances that are constants leave the loop registers enough. */
enum strip_form { IN_ROWS, IN_COLUMNS };
struct strip {
    const char *p;
    int64_t row;
};

/* c + a * b for one vector of C: `a` is one f32 or one pair, the same for all columns. */
INLINE vec mac(enum vec_kind kind, vec c, const char *a, vec b)
{
#ifdef vec_dot
    if (kind == KIND_DOT) return vec_dot(c, *(const one_pair *)a, b);
#endif
    (void)kind;
    return vec_fma(vec_set(*(const one_f32 *)a), b, c);
}

/* Rows are addressed in threes, which needs few registers: base, base + row, base + 2 * row. */
INLINE const char *row_at(const char *a, int r, int64_t row)
{
    return a + r / 3 * (3 * row) + r % 3 * row;
}

INLINE void step(enum vec_kind kind, int rows, vec c[MR][NV], const char *a, int64_t row, const char *b)
{
    vec bv[NV];
    UNROLL for (int v = 0; v < NV; v++) bv[v] = *(const vec *)(b + 4 * VW * v);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < NV; v++)
        c[r][v] = mac(kind, c[r][v], row_at(a, r, row), bv[v]);
}

/* acc = fma(a0, b0, fma(a1, b1, acc)): the order of vdpbf16ps. */
INLINE void step_split(int rows, vec c[MR][NV], const char *a, int64_t row, int64_t k, const char *b)
{
    vec b0[NV], b1[NV];
    UNROLL for (int v = 0; v < NV; v++)
    {
        vec_bits w = *(const vec_bits *)(b + 4 * VW * v);
        b0[v] = (vec)(w << 16);
        b1[v] = (vec)(w & 0xffff0000u);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < NV; v++)
        c[r][v] = mac(KIND_F32, c[r][v], row_at(a, r, row) + k, b1[v]);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < NV; v++)
        c[r][v] = mac(KIND_F32, c[r][v], row_at(a, r, row), b0[v]);
}

INLINE void put(float *p, vec x)
{
    *(vec *)p = x;
}

INLINE void block(enum vec_kind kind, enum strip_form form, int rows, float *acc, int64_t ld, struct strip a,
                  const char *b, int64_t steps, bool load)
{
    int64_t row = form == IN_ROWS ? a.row : 4, k = form == IN_ROWS ? 4 : 4 * rows;
    vec c[MR][NV];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < NV; v++)
        c[r][v] = load ? *(const vec *)(acc + r * ld + VW * v) : vec_set(0);
    const char *p = a.p;
    for (int64_t s = 0; s < steps; s++) {
        if (kind == KIND_SPLIT)
            step_split(rows, c, p, row, k, b);
        else
            step(kind, rows, c, p, row, b);
        p += kind == KIND_SPLIT ? 2 * k : k;
        b += 4 * MT_PANEL;
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < NV; v++)
        put(acc + r * ld + VW * v, c[r][v]);
}

/* acc[rows][NC] (+)= A B, b at the first of NC columns of a panel. */
typedef void vec_kernel(int rows, float *acc, int64_t ld, struct strip a, const char *b, int64_t steps,
                        bool load);

#define ROWS(n) \
    case n: block(kind, form, n, acc, ld, a, b, steps, load); break
INLINE void by_rows(enum vec_kind kind, enum strip_form form, int rows, float *acc, int64_t ld,
                    struct strip a, const char *b, int64_t steps, bool load)
{
    switch (rows) {
        ROWS(1);
        ROWS(2);
        ROWS(3);
        ROWS(4);
        ROWS(5);
        ROWS(6);
#if MR > 6
        ROWS(7);
        ROWS(8);
        ROWS(9);
        ROWS(10);
        ROWS(11);
        ROWS(12);
#endif
    }
}
#undef ROWS

struct vec_ops {
    enum vec_kind kind;
    mt_dtype dtype;
    vec_kernel *rows, *columns; /* by form of the strip */
};

INLINE int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
/* Steps of k values; bytes of k values of a row of A as the kernel reads it. */
INLINE int64_t steps_of(const struct vec_ops *o, int64_t k)
{
    return o->kind == KIND_F32 ? k : (k + 1) / 2;
}
INLINE int64_t row_bytes(const struct vec_ops *o, int64_t k)
{
    return 4 * steps_of(o, k) * (o->kind == KIND_SPLIT ? 2 : 1);
}

/* A row of A as the kernel reads it, an odd k filled up with a zero. */
static void copy_row(const struct vec_ops *o, char *out, const void *row, int64_t k)
{
    if (o->kind == KIND_F32) {
        memcpy(out, row, (size_t)(4 * k));
        return;
    }
    const mt_bf16 *s = row;
    if (o->kind == KIND_DOT) {
        memcpy(out, s, (size_t)(2 * k));
        if (k % 2) ((mt_bf16 *)(void *)out)[k] = 0;
        return;
    }
    uint32_t *d = (uint32_t *)(void *)out;
    for (int64_t i = 0; i < k; i++) d[i] = (uint32_t)s[i] << 16;
    if (k % 2) d[k] = 0;
}

/* 64 bytes beyond a multiple of 512: rows that far apart would share the sets of L1. */
INLINE int64_t spread(int64_t bytes)
{
    int64_t b = (bytes + 63) / 64 * 64;
    return b % 512 ? b : b + 64;
}

enum {
    A_BYTES = BLOCK_ROWS * (8 * (MAX_STEPS + MAX_STEPS / 2) + 64),
    PARTIAL_BYTES = BLOCK_ROWS * PARTIAL_PANELS * MT_PANEL * 4
};
_Static_assert(A_BYTES + PARTIAL_BYTES <= MT_GEMM_SCRATCH, "scratch of mul");

/* One rectangle of the output being computed. */
struct vec_job {
    const struct vec_ops *o;
    const struct mt_gemm_mul *g;
    struct mt_gemm_rect r;
    char *a_copy;
    float *partial; /* [panel][rows][32] */
};

/* A row of sums becomes one of C. */
INLINE void finish_row(const struct vec_job *j, const float *sum, int64_t m, int64_t col, int64_t cols)
{
    const struct mt_gemm_mul *g = j->g;
    float x[MT_PANEL];
    mt_bf16 h[MT_PANEL];
    memcpy(x, sum, sizeof x);
    if (g->bias)
        for (int64_t c = 0; c < cols; c++) x[c] += g->bias[j->r.group * g->bias_stride + col + c];
    if (g->add && j->o->dtype == MT_F32)
        for (int64_t c = 0; c < cols; c++) x[c] += ((const float *)g->add)[m * g->ldadd + col + c];
    else if (g->add)
        for (int64_t c = 0; c < cols; c++)
            x[c] += mt_f32_of(((const mt_bf16 *)g->add)[m * g->ldadd + col + c]);
    if (g->c_dtype == MT_F32) {
        memcpy((float *)g->c + m * g->ldc + col, x, (size_t)(4 * cols));
        return;
    }
    for (int c = 0; c < MT_PANEL; c++) h[c] = mt_bf16_of(x[c]);
    memcpy((mt_bf16 *)g->c + m * g->ldc + col, h, (size_t)(2 * cols));
}
static void finish(const struct vec_job *j, const float *sum, int64_t row, int64_t rows, int64_t col,
                   int64_t cols)
{
    for (int64_t m = row; m < row + rows; m++, sum += MT_PANEL)
        if (cols == MT_PANEL) /* a constant count becomes a few vectors */
            finish_row(j, sum, m, col, MT_PANEL);
        else
            finish_row(j, sum, m, col, cols);
}

/* While a panel's strip is computed: the lines of C it will write, and its share, over all panels, of the rows of A behind those of
 * the rectangle, which are mostly the next rectangle's. Both are lines of many rows, which no prefetcher sees coming. */
INLINE void fetch_ahead(const struct vec_job *j, int64_t panel, int64_t row, int64_t rows)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t size = mt_dtype_bytes(j->o->dtype), lines = (g->k * size + 63) / 64, q = panel - j->r.panel;
    int64_t from = lines * q / j->r.panels, to = lines * (q + 1) / j->r.panels;
    const char *a = (const char *)g->a + (row + j->r.rows) * g->lda * size;
    const char *c = (const char *)g->c + (row * g->ldc + panel * MT_PANEL) * mt_dtype_bytes(g->c_dtype);
    for (int64_t r = 0; r < rows; r++, a += g->lda * size, c += g->ldc * mt_dtype_bytes(g->c_dtype)) {
        __builtin_prefetch(c, 1);
        for (int64_t l = from; l < to; l++) __builtin_prefetch(a + 64 * l, 0, 2);
    }
}

/* One panel, k values k0 .. k0 + k, all rows of the rectangle. Sums of full f32 panels grow in C itself,
 * others in `partial` until the last k. */
static void mul_panel(const struct vec_job *j, int64_t panel, int64_t k0, int64_t k, struct strip a,
                      float *partial)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t col = panel * MT_PANEL, cols = lesser(g->n - col, MT_PANEL), row0 = j->r.first + j->r.row;
    int64_t kpad = j->o->kind == KIND_F32 ? g->k : (g->k + 1) / 2;
    const char *b = (const char *)g->b + j->r.group * g->b_stride +
                    4 * MT_PANEL * (panel * kpad + steps_of(j->o, k0));
    bool direct = g->c_dtype == MT_F32 && !g->add && !g->bias && cols == MT_PANEL;
    int64_t blocks = (j->r.rows + MR - 1) / MR;
    for (int64_t t = 0; t < blocks; t++) {
        int64_t lo = j->r.rows * t / blocks, rows = j->r.rows * (t + 1) / blocks - lo;
        float *acc = direct ? (float *)g->c + (row0 + lo) * g->ldc + col : partial + lo * MT_PANEL;
        int64_t ld = direct ? g->ldc : MT_PANEL;
        if (g->accumulate && !direct && k0 == 0)
            for (int64_t r = 0; r < rows; r++)
                memcpy(acc + r * MT_PANEL, (const float *)g->c + (row0 + lo + r) * g->ldc + col,
                       (size_t)(4 * cols));
        struct strip s = {a.p + lo * a.row, a.row};
        if (k0 == 0) fetch_ahead(j, panel, row0 + lo, rows);
        for (int c = 0; c < MT_PANEL; c += NC)
            j->o->rows((int)rows, acc + c, ld, s, b + 4 * c, steps_of(j->o, k), k0 > 0 || g->accumulate);
        if (!direct && k0 + k == g->k) finish(j, acc, row0 + lo, rows, col, cols);
    }
}

/* Rows a power of two apart share the sets of L1, odd k has no whole last pair, and split wants f32. */
INLINE bool must_copy(const struct vec_job *j)
{
    const struct mt_gemm_mul *g = j->g;
    if (j->o->kind == KIND_SPLIT || (j->o->kind == KIND_DOT && g->k % 2)) return true;
    return g->lda * mt_dtype_bytes(j->o->dtype) % 2048 == 0 && j->r.rows > 4 && j->r.panels > 3;
}

/* k0 .. k0 + k of the rows of the rectangle, in scratch. */
static struct strip copy_rows(const struct vec_job *j, int64_t k0, int64_t k)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t size = mt_dtype_bytes(j->o->dtype);
    const char *from = (const char *)g->a + ((j->r.first + j->r.row) * g->lda + k0) * size;
    struct strip a = {j->a_copy, spread(row_bytes(j->o, k))};
    for (int64_t r = 0; r < j->r.rows; r++)
        copy_row(j->o, j->a_copy + r * a.row, from + r * g->lda * size, k);
    return a;
}

/* A is used in place, or copied once, or, where that does not fit, copied for every few panels and block of
 * k. */
static void mul_rect(const struct vec_job *j)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t kc = (int64_t)MAX_STEPS * (j->o->kind == KIND_F32 ? 1 : 2), size = mt_dtype_bytes(j->o->dtype);
    if (g->k <= kc + kc / 2) kc = g->k;
    int64_t group = kc < g->k ? PARTIAL_PANELS : j->r.panels, end = j->r.panel + j->r.panels;
    bool copy = must_copy(j), once = copy && j->r.rows * spread(row_bytes(j->o, g->k)) <= A_BYTES;
    struct strip all = {(const char *)g->a + (j->r.first + j->r.row) * g->lda * size, g->lda * size};
    int64_t step = once ? row_bytes(j->o, 2) / 2 : size; /* bytes from one k to the next */
    if (once) all = copy_rows(j, 0, g->k);
    for (int64_t p0 = j->r.panel; p0 < end; p0 += group) {
        int64_t k0 = 0;
        do {
            int64_t k = lesser(kc, g->k - k0);
            struct strip a = copy && !once ? copy_rows(j, k0, k) : (struct strip){all.p + k0 * step, all.row};
            for (int64_t p = p0; p < lesser(p0 + group, end); p++)
                mul_panel(j, p, k0, k, a, j->partial + (kc < g->k ? p - p0 : 0) * BLOCK_ROWS * MT_PANEL);
            k0 += kc;
        } while (k0 < g->k);
    }
}

static void vec_mul(const struct vec_ops *o, const struct mt_gemm_mul *g, int part, int parts, void *scratch)
{
    struct mt_gemm_grid grid = mt_gemm_grid_mul(g, MR, BLOCK_ROWS / MR);
    struct vec_job job = {.o = o, .g = g, .a_copy = scratch, .partial = (float *)scratch + A_BYTES / 4};
    struct mt_gemm_cut cut;
    mt_gemm_cut_init(&cut, &grid, part, parts);
    while (mt_gemm_cut_next(&cut, &job.r)) mul_rect(&job);
}

#include "device/cpu/gemm_vec_tn.h"

/* Defines kernel, operations and the two entry points of one kind. */
#define VEC_TABLE(name, table_isa, table_dtype, table_kind, align, form)                                    \
    static void name##_rows(int rows, float *acc, int64_t ld, struct strip a, const char *b, int64_t steps, \
                            bool load)                                                                      \
    {                                                                                                       \
        by_rows(table_kind, IN_ROWS, rows, acc, ld, a, b, steps, load);                                     \
    }                                                                                                       \
    static void name##_columns(int rows, float *acc, int64_t ld, struct strip a, const char *b,             \
                               int64_t steps, bool load)                                                    \
    {                                                                                                       \
        by_rows(table_kind, IN_COLUMNS, rows, acc, ld, a, b, steps, load);                                  \
    }                                                                                                       \
    static const struct vec_ops name##_ops = {table_kind, table_dtype, name##_rows, name##_columns};        \
    static void name##_mul(const struct mt_gemm_mul *g, int part, int parts, void *scratch)                 \
    {                                                                                                       \
        vec_mul(&name##_ops, g, part, parts, scratch);                                                      \
    }                                                                                                       \
    static void name##_mul_tn(const struct mt_gemm_tn *g, int part, int parts, void *scratch)               \
    {                                                                                                       \
        vec_mul_tn(&name##_ops, g, part, parts, scratch);                                                   \
    }                                                                                                       \
    const struct mt_gemm mt_gemm_##name = {table_isa,                                                       \
                                           table_dtype,                                                     \
                                           align,                                                           \
                                           mt_gemm_pack_nt_##form,                                          \
                                           mt_gemm_pack_nn_##form,                                          \
                                           mt_gemm_unpack_nt_##form,                                        \
                                           name##_mul,                                                      \
                                           name##_mul_tn,                                                   \
                                           NULL};
