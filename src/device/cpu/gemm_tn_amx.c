/* dW = dY^T X by AMX tiles. The sum runs over rows, so both operands are copied: dY transposed (it becomes
 * A), X with its rows interleaved in pairs (it becomes B). Groups of 32 rows are filled up with zeros. 32
 * columns of dY stay in L1 while panels of X come from L2, so that dW is written along its rows. */
#include "device/cpu/amx_copy.h"
#include "device/cpu/gemm_kernels.h"

enum {
    TN_ROWS = 512,  /* rows summed at a time */
    TN_PANELS = 16, /* panels of X whose copy stays in L2 */
    TN_UNIT = 32,
    TN_OUT = 512, /* outputs of a rectangle */
    TILE_BYTES = 1024,
    Y_BYTES = TN_ROWS * TN_UNIT * 2,
    X_BYTES = TN_PANELS * TN_ROWS * MT_PANEL * 2,
    EDGE_BYTES = TN_UNIT * MT_PANEL * 4,
    STREAM_BYTES =
        2 << 20 /* a dW that no L2 holds is written past the caches, which saves reading it first */
};
_Static_assert(Y_BYTES + X_BYTES + EDGE_BYTES <= MT_GEMM_SCRATCH, "scratch of mul_tn");

/* A piece at an edge of the matrix, filled up with zeros to 32 rows of `width`. */
static const mt_bf16 *fill_up(mt_bf16 *out, const mt_bf16 *s, int64_t ld, int64_t rows, int64_t cols,
                              int64_t width)
{
    memset(out, 0, (size_t)(STEP * width) * sizeof *out);
    for (int64_t r = 0; r < rows; r++) memcpy(out + r * width, s + r * ld, (size_t)cols * sizeof *out);
    return out;
}

/* m rows of `outputs` columns of dY: tiles [output / 16][step][16][32]. */
static void copy_dy(mt_bf16 *out, const mt_bf16 *y, int64_t ld, int64_t m, int64_t outputs)
{
    _Alignas(64) mt_bf16 piece[STEP * 16];
    for (int64_t o = 0; o < outputs; o += 16)
        for (int64_t r = 0; r < m; r += STEP, out += TILE_BYTES / 2) {
            int64_t rows = lesser(m - r, STEP), cols = lesser(outputs - o, 16);
            const mt_bf16 *s = y + r * ld + o;
            if (rows == STEP && cols == 16)
                transpose(out, s, ld);
            else
                transpose(out, fill_up(piece, s, ld, rows, cols, 16), 16);
        }
}
/* m rows of a panel of X: [step][16 pairs][32][2]. */
static void copy_x(mt_bf16 *out, const mt_bf16 *x, int64_t ld, int64_t m, int64_t cols)
{
    _Alignas(64) mt_bf16 piece[STEP * MT_PANEL];
    for (int64_t r = 0; r < m; r += STEP, out += STEP_BYTES / 2) {
        int64_t rows = lesser(m - r, STEP);
        const mt_bf16 *s = x + r * ld;
        if (rows == STEP && cols == MT_PANEL)
            interleave(out, s, ld);
        else
            interleave(out, fill_up(piece, s, ld, rows, cols, MT_PANEL), MT_PANEL);
    }
}

struct tn_job {
    const struct mt_gemm_tn *g;
    struct mt_gemm_rect r;
    bool stream;
    mt_bf16 *y, *x;
    float *edge; /* [32][32] */
};

static void stream_block(float *dw, int64_t ld, const float *block)
{
    for (int64_t r = 0; r < TN_UNIT; r++, dw += ld, block += MT_PANEL) {
#if AMX_VECTORS
        _mm512_stream_ps(dw, _mm512_load_ps(block));
        _mm512_stream_ps(dw + 16, _mm512_load_ps(block + 16));
#else
        memcpy(dw, block, MT_PANEL * 4);
#endif
    }
}

/* A block of dW, rows from o of the rectangle: += what `steps` steps of copied rows give. */
static void tn_block(const struct tn_job *j, int64_t o, int64_t panel, const mt_bf16 *x, int64_t steps,
                     bool load)
{
    const struct mt_gemm_tn *g = j->g;
    int64_t rows = lesser(j->r.rows - o, TN_UNIT), col = panel * MT_PANEL,
            cols = lesser(g->i - col, MT_PANEL);
    float *dw = g->dw + j->r.group * g->dw_stride + (j->r.row + o) * g->lddw + col;
    bool inside = (rows == 16 || rows == 32) && cols == MT_PANEL, two = rows > 16;
    bool stream = j->stream && rows == 32 && cols == MT_PANEL && !load && steps * STEP >= j->r.extent;
    float *c = inside && !stream ? dw : j->edge;
    int64_t ld = c == dw ? g->lddw : MT_PANEL, lines = lines_per_step(rows * MT_PANEL * 4, steps);
    if (load && !inside)
        for (int64_t r = 0; r < rows; r++) memcpy(c + r * ld, dw + r * g->lddw, (size_t)(4 * cols));
    if (load)
        amx_load(c, two ? c + 16 * ld : NULL, ld);
    else
        amx_zero();
    const char *a0 = (const char *)j->y, *a1 = two ? a0 + steps * TILE_BYTES : NULL, *b = (const char *)x;
    const float *next = dw + MT_PANEL; /* the block to the right */
    for (int64_t s = 0; s < steps; s++, b += STEP_BYTES) {
        amx_step(a0 + s * TILE_BYTES, two ? a1 + s * TILE_BYTES : NULL, 64, b);
        for (int64_t i = 0; !stream && i < lines; i++, next += g->lddw) __builtin_prefetch(next, 1, 2);
    }
    amx_store(c, two ? c + 16 * ld : NULL, ld);
    if (stream) {
        stream_block(dw, g->lddw, c);
        return;
    }
    for (int64_t r = 0; !inside && r < rows; r++) memcpy(dw + r * g->lddw, c + r * ld, (size_t)(4 * cols));
}

/* `panels` panels from `first`, all rows of the rectangle. */
static void tn_chunk(const struct tn_job *j, int64_t first, int64_t panels)
{
    const struct mt_gemm_tn *g = j->g;
    int64_t m0 = 0;
    do {
        int64_t m = lesser(j->r.extent - m0, TN_ROWS), steps = (m + STEP - 1) / STEP, row = j->r.first + m0;
        for (int64_t p = 0; p < panels; p++) {
            int64_t col = (first + p) * MT_PANEL;
            copy_x(j->x + p * steps * STEP_BYTES / 2, (const mt_bf16 *)g->x + row * g->ldx + col, g->ldx, m,
                   lesser(g->i - col, MT_PANEL));
        }
        for (int64_t o = 0; o < j->r.rows; o += TN_UNIT) {
            copy_dy(j->y, (const mt_bf16 *)g->dy + row * g->lddy + j->r.row + o, g->lddy, m,
                    lesser(j->r.rows - o, TN_UNIT));
            for (int64_t p = 0; p < panels; p++)
                tn_block(j, o, first + p, j->x + p * steps * STEP_BYTES / 2, steps, m0 > 0 || g->accumulate);
        }
        m0 += TN_ROWS;
    } while (m0 < j->r.extent);
}

static bool may_stream(const struct mt_gemm_tn *g)
{
    int64_t groups = g->offset ? g->groups : 1;
    bool aligned =
        ((uintptr_t)g->dw | (uintptr_t)(g->lddw * 4) | (uintptr_t)(groups > 1 ? g->dw_stride * 4 : 0)) % 64 ==
        0;
    return aligned && !g->accumulate && groups * g->o * g->i * 4 >= STREAM_BYTES;
}

void AMX_MUL_TN(const struct mt_gemm_tn *g, int part, int parts, void *scratch)
{
    struct mt_gemm_grid grid = mt_gemm_grid_tn(g, TN_UNIT, TN_OUT / TN_UNIT);
    struct tn_job job = {.g = g, .y = scratch, .stream = may_stream(g)};
    job.x = job.y + Y_BYTES / 2;
    job.edge = (float *)(void *)(job.x + X_BYTES / 2);
    struct mt_gemm_cut cut;
    struct tile_config config = tile_config_of(16);
    mt_gemm_cut_init(&cut, &grid, part, parts);
    for (bool first = true; mt_gemm_cut_next(&cut, &job.r); first = false) {
        if (first) TILE_CONFIG(&config);
        for (int64_t p = 0; p < job.r.panels; p += TN_PANELS)
            tn_chunk(&job, job.r.panel + p, lesser(TN_PANELS, job.r.panels - p));
    }
    TILE_RELEASE();
#if AMX_VECTORS
    if (job.stream) _mm_sfence();
#endif
}
