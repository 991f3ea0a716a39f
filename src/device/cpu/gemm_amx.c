/* bf16 products by AMX tiles: blocks of 32x32 in four tiles of C.
 *
 * Four loads of 1 KiB feed four products of 16 cycles each: the L1 can do that, or half of it the L2. So 32
 * rows of A stay in L1 while panels of B (2 KiB per step of 32 k), loaded with the streaming hint, come from
 * L2, where a chunk of panels stays while all rows pass. Rows are cut in tiles of equal height (37 rows:
 * three of 13, the last overlapping), so that one tile configuration serves a call and few rows are computed
 * twice. */
#include "device/cpu/attention_amx.h"
#include "device/cpu/gemm_kernels.h"

#include <stddef.h>
enum {
    K_BLOCK = 512,         /* values of k summed in tiles at a time: 32 rows of A are 32 KiB of L1 */
    K_WHOLE = 768,         /* up to here k is not cut */
    UNIT = 32,             /* rows of a block */
    CHUNK_BYTES = 1 << 20, /* panels of B that stay in L2 while rows pass */
    CHUNK = 8,             /* panels and ... */
    CUT_ROWS = 256,        /* ... rows, if k is cut: their sums wait in scratch between blocks of k */
    WHOLE_ROWS = 512,      /* rows of a rectangle, if not, before it goes to the next panel */
    A_BYTES = UNIT * K_WHOLE * 2,
    PARTIAL_BYTES = CUT_ROWS * CHUNK * MT_PANEL * 4,
    SUM_BYTES = UNIT * MT_PANEL * 4
};
_Static_assert(A_BYTES + PARTIAL_BYTES + 2 * SUM_BYTES <= MT_GEMM_SCRATCH, "scratch of mul");

/* Rows of a finished block waiting to be written to C. They are written a few per step inside the next
 * block's loop: the vector work then runs beside the tile unit instead of after it. */
struct pending {
    const float *sum; /* [n][32] */
    int64_t n, row, col, cols;
};

/* Memory wanted soon, asked for a few lines per step, since from L3 a core gets 9 bytes a cycle and many
 * requests at once stop the tile unit. */
struct ahead {
    const char *b, *a;        /* the panels behind the chunk; the rows behind the block */
    int64_t b_lines, a_lines; /* per step, every other one: its neighbour comes by itself */
};

struct job {
    const struct mt_gemm_mul *g;
    struct mt_gemm_rect r;
    int64_t tiles, height; /* tiles of rows, and rows of each */
    bool plain;            /* C is bf16 and gets the rounded sums */
    bool copy;             /* A is copied to a_copy, 32 rows at a time */
    bool far;              /* A is larger than L2 */
    char *a_copy;
    float *partial; /* [panel of the chunk][row][32] */
    float *sum[2];  /* blocks leaving the tiles, in turns */
    int turn;
    struct pending wait;
    struct ahead ahead;
};

static void add_row(const struct job *j, float *x, int64_t row, int64_t col, int64_t cols)
{
    const struct mt_gemm_mul *g = j->g;
    if (g->bias)
        for (int64_t c = 0; c < cols; c++) x[c] += g->bias[j->r.group * g->bias_stride + col + c];
    if (g->add)
        for (int64_t c = 0; c < cols; c++)
            x[c] += mt_f32_of(((const mt_bf16 *)g->add)[row * g->ldadd + col + c]);
}

static inline void round_row(mt_bf16 *h, const float *x)
{
#if AMX_VECTORS
    _mm512_storeu_si512(h, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)));
#else
    for (int c = 0; c < MT_PANEL; c++) h[c] = mt_bf16_of(x[c]);
#endif
}

static void write_row(const struct job *j, const float *sum, int64_t row, int64_t col, int64_t cols)
{
    const struct mt_gemm_mul *g = j->g;
    float x[MT_PANEL];
    if (g->bias || g->add) {
        memcpy(x, sum, sizeof x);
        add_row(j, x, row, col, cols);
        sum = x;
    }
    if (g->c_dtype == MT_F32) {
        memcpy((float *)g->c + row * g->ldc + col, sum, (size_t)(4 * cols));
        return;
    }
    mt_bf16 *c = (mt_bf16 *)g->c + row * g->ldc + col, h[MT_PANEL];
    if (cols == MT_PANEL) {
        round_row(c, sum);
    } else {
        round_row(h, sum);
        memcpy(c, h, (size_t)(2 * cols));
    }
}

static void write_pending(struct job *j, int64_t count)
{
    struct pending *w = &j->wait;
    if (count > w->n) count = w->n;
    w->n -= count;
    for (; count > 0; count--, w->sum += MT_PANEL) write_row(j, w->sum, w->row++, w->col, w->cols);
}

/* Rows of A of two tiles as the kernel reads them: bytes between rows, and from one step of k to the next. */
struct strip {
    const char *a0, *a1;
    int64_t row, step;
};

static inline void copy_rows(char *to, const char *from, int64_t row, int64_t height)
{
    for (int64_t r = 0; r < height; r++) memcpy(to + 64 * r, from + r * row, 64);
}

/* C in tiles 0-3 += A times a panel. What else there is to do is done a little per step, in the shadow of the
 * products: rows of the block before are written, rows of A are copied as [tile][step][row][64 bytes], lines
 * are fetched. */
static inline __attribute__((always_inline)) void products(struct job *j, struct strip a, const char *b,
                                                           int64_t steps, bool two, bool copy)
{
    struct pending *w = &j->wait;
    if (steps == 0) return;
    int64_t per = (w->n + steps - 1) / steps, ldc = j->g->ldc,
            left = j->plain && w->cols == MT_PANEL ? w->n : 0;
    const float *sum = w->sum;
    mt_bf16 *c = left ? (mt_bf16 *)j->g->c + w->row * ldc + w->col : NULL;
    struct ahead f = j->ahead;
    char *to = j->a_copy;
    if (left) w->n = 0;
    for (int64_t s = 0; s < steps; s++, b += STEP_BYTES) {
        amx_step(a.a0, two ? a.a1 : NULL, a.row, b);
        if (copy) {
            copy_rows(to, a.a0, a.row, j->height);
            if (two) copy_rows(to + steps * 64 * j->height, a.a1, a.row, j->height);
            to += 64 * j->height;
        }
        int64_t rows = left < per ? left : per;
        left -= rows;
        for (; rows > 0; rows--, c += ldc, sum += MT_PANEL) round_row(c, sum);
        if (w->n) write_pending(j, per);
        for (int64_t i = 0; i < f.b_lines; i++, f.b += 128) __builtin_prefetch(f.b, 0, 2);
        for (int64_t i = 0; i < f.a_lines; i++, f.a += 128) __builtin_prefetch(f.a, 0, 2);
        a.a0 += a.step;
        a.a1 += a.step;
    }
    j->ahead = f;
}

/* Rows are relative to the rectangle here. Tiles t and t + 1 begin at r0 and r1. */
struct block {
    int64_t t, r0, r1;
    bool two;
};

static void gather_c(const struct job *j, const struct block *b, float *sum, int64_t col, int64_t cols)
{
    const struct mt_gemm_mul *g = j->g;
    const float *c = (const float *)g->c + (j->r.first + j->r.row) * g->ldc + col;
    for (int64_t i = 0; i < j->height; i++) {
        memcpy(sum + i * MT_PANEL, c + (b->r0 + i) * g->ldc, (size_t)(4 * cols));
        if (b->two) memcpy(sum + (j->height + i) * MT_PANEL, c + (b->r1 + i) * g->ldc, (size_t)(4 * cols));
    }
}

/* The block's sums go where they may: to C itself, or through scratch, to be written in the next block's
 * shadow. */
static void finish_block(struct job *j, const struct block *b, float *sum, int64_t col, int64_t cols)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t row = j->r.first + j->r.row, h = j->height;
    if (g->c_dtype == MT_F32 && !g->add && !g->bias && !g->accumulate && cols == MT_PANEL) {
        float *c = (float *)g->c + row * g->ldc + col;
        amx_store(c + b->r0 * g->ldc, b->two ? c + b->r1 * g->ldc : NULL, g->ldc);
        return;
    }
    amx_store(sum, b->two ? sum + h * MT_PANEL : NULL, MT_PANEL);
    j->wait = (struct pending){sum, b->two ? 2 * h : h, row + b->r0, col, cols};
    int64_t last = b->two ? b->r1 : b->r0, repeated = (b->t + b->two) * h - last;
    if (repeated == 0) return;
    /* The last tile overlaps the one before, which has written the rows they share. */
    if (b->two) {
        j->wait.n = h;
        write_pending(j, h);
    }
    j->wait = (struct pending){sum + ((b->two ? h : 0) + repeated) * MT_PANEL, h - repeated,
                               row + last + repeated, col, cols};
}

static struct strip copied(const struct job *j, int64_t k)
{
    return (struct strip){j->a_copy, j->a_copy + (k + STEP - 1) / STEP * j->height * 64, 64, 64 * j->height};
}

/* The same copy made at once, k filled up with zeros. */
static void copy_a(const struct job *j, const struct block *b, const mt_bf16 *a, int64_t k)
{
    int64_t h = j->height, tile = (k + STEP - 1) / STEP * h * 64, whole = k / STEP;
    for (int t = 0; t <= b->two; t++)
        for (int64_t r = 0; r < h; r++) {
            const mt_bf16 *from = a + ((t ? b->r1 : b->r0) + r) * j->g->lda;
            char *to = j->a_copy + t * tile + r * 64;
            for (int64_t s = 0; s < whole; s++) memcpy(to + s * h * 64, from + s * STEP, 64);
            if (k % STEP == 0) continue;
            memset(to + whole * h * 64, 0, 64);
            memcpy(to + whole * h * 64, from + whole * STEP, (size_t)(2 * (k % STEP)));
        }
}

/* What a block of C starts from, and where it goes. */
static void one_block(struct job *j, const struct block *b, struct strip a, bool copy, int64_t panel,
                      int64_t k0, int64_t k, float *part0)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t steps = (k + STEP - 1) / STEP, kpad = (g->k + STEP - 1) / STEP * STEP, h = j->height;
    int64_t col = panel * MT_PANEL, cols = lesser(g->n - col, MT_PANEL);
    const char *panel_at = (const char *)g->b + j->r.group * g->b_stride + (panel * kpad + k0) * MT_PANEL * 2;
    float *part1 = b->two ? part0 + 16 * MT_PANEL : NULL, *sum = j->sum[j->turn ^= 1];
    if (k0 > 0) {
        amx_load(part0, part1, MT_PANEL);
    } else if (g->accumulate) {
        gather_c(j, b, sum, col, cols);
        amx_load(sum, b->two ? sum + h * MT_PANEL : NULL, MT_PANEL);
    } else {
        amx_zero();
    }
    if (copy && b->two)
        products(j, a, panel_at, steps, true, true);
    else if (copy)
        products(j, a, panel_at, steps, false, true);
    else if (b->two)
        products(j, a, panel_at, steps, true, false);
    else
        products(j, a, panel_at, steps, false, false);
    if (k0 + k < g->k) {
        amx_store(part0, part1, MT_PANEL);
        return;
    }
    write_pending(j, 2 * UNIT);
    finish_block(j, b, sum, col, cols);
}

/* `panels` panels from `first`, all rows of the rectangle. */
static void mul_chunk(struct job *j, int64_t first, int64_t panels)
{
    const struct mt_gemm_mul *g = j->g;
    int64_t k0 = 0, h = j->height, kc = g->k > K_WHOLE ? K_BLOCK : K_WHOLE;
    do {
        int64_t k = lesser(kc, g->k - k0);
        const mt_bf16 *rows = (const mt_bf16 *)g->a + (j->r.first + j->r.row) * g->lda + k0;
        /* The panels behind the chunk, perhaps of the next group, are fetched during all the work on the
         * chunk; the rows behind a block during the work on the block, unless they lie far apart. */
        int64_t kpad = (k + STEP - 1) / STEP * STEP, bytes = panels * kpad * MT_PANEL * 2,
                steps = panels * kpad / STEP;
        const char *b_at = (const char *)g->b + j->r.group * g->b_stride +
                           (first + panels) * kpad * MT_PANEL * 2;
        bool more = (first + panels) * MT_PANEL < g->n || j->r.group + 1 < (g->offset ? g->groups : 1);
        j->ahead = (struct ahead){.b = b_at,
                                  .b_lines = more ? lines_per_step(bytes, (j->tiles + 1) / 2 * steps) : 0};
        for (int64_t t = 0; t < j->tiles; t += 2) {
            struct block b = {t, lesser(t * h, j->r.rows - h), lesser((t + 1) * h, j->r.rows - h),
                              t + 1 < j->tiles};
            struct strip a = {(const char *)(rows + b.r0 * g->lda), (const char *)(rows + b.r1 * g->lda),
                              2 * g->lda, 64};
            bool copy = j->copy && k % STEP == 0;
            j->ahead.a = (const char *)(rows + (b.two ? b.r1 + h : b.r0 + h) * g->lda);
            j->ahead.a_lines = j->far && g->lda < 2 * k ? lines_per_step(2 * UNIT * g->lda, steps) : 0;
            if (k % STEP) copy_a(j, &b, rows, k);
            for (int64_t p = 0; p < panels; p++) {
                if (k % STEP || (copy && p == 1)) a = copied(j, k);
                one_block(j, &b, a, copy && p == 0, first + p, k0, k,
                          j->partial + (p * CUT_ROWS + t * 16) * MT_PANEL);
            }
        }
        k0 += kc;
    } while (k0 < g->k);
}

/* Rows a multiple of 512 bytes apart share sets of L1, and tiles must not read beyond k: then A is copied. */
static void mul_rect(struct job *j)
{
    const struct mt_gemm_mul *g = j->g;
    j->tiles = (j->r.rows + 15) / 16;
    j->height = (j->r.rows + j->tiles - 1) / j->tiles;
    j->plain = g->c_dtype == MT_BF16 && !g->add && !g->bias;
    j->far = 2 * g->lda * (g->offset ? g->offset[g->groups] - g->offset[0] : g->m) > CHUNK_BYTES;
    j->copy = g->lda * 2 % 512 == 0 && j->r.rows > 1 && j->r.panels > 3;
    struct tile_config config = tile_config_of((int)j->height);
    TILE_CONFIG(&config);
    int64_t chunk = g->k > K_WHOLE ? CHUNK : CHUNK_BYTES / ((g->k + STEP) * MT_PANEL * 2);
    for (int64_t p = 0; p < j->r.panels; p += chunk)
        mul_chunk(j, j->r.panel + p, lesser(chunk, j->r.panels - p));
    write_pending(j, 2 * UNIT);
}

static void mul(const struct mt_gemm_mul *g, int part, int parts, void *scratch)
{
    bool whole = g->k <= K_WHOLE;
    struct mt_gemm_grid grid = mt_gemm_grid_mul(g, UNIT, (whole ? WHOLE_ROWS : CUT_ROWS) / UNIT);
    grid.merge = whole;
    struct job job = {.g = g, .a_copy = scratch};
    job.partial = (float *)(void *)(job.a_copy + A_BYTES);
    job.sum[0] = job.partial + PARTIAL_BYTES / 4;
    job.sum[1] = job.sum[0] + SUM_BYTES / 4;
    struct mt_gemm_cut cut;
    mt_gemm_cut_init(&cut, &grid, part, parts);
    bool any = false;
    while (mt_gemm_cut_next(&cut, &job.r)) {
        mul_rect(&job);
        any = true;
    }
    if (any) TILE_RELEASE();
}

static const struct mt_att_kernels attention = {ATT_WIDEST, AMX_ATTENTION(fwd), AMX_ATTENTION(bwd)};

#ifdef MT_AMX_SOFT
#define TABLE mt_gemm_amx_soft
#define PACK(form) mt_gemm_pack_##form##_bf16_tiles
#else
#define TABLE mt_gemm_amx_bf16
#define PACK(form) mt_gemm_pack_##form##_bf16_tiles_wide
#endif
const struct mt_gemm TABLE = {
    MT_ISA_AMX_BF16, MT_BF16,   STEP, PACK(nt), PACK(nn), mt_gemm_unpack_nt_bf16_tiles, mul,
    AMX_MUL_TN,      &attention};
