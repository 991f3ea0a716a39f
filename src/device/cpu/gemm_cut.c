#include "device/cpu/gemm_kernels.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

struct mt_gemm_grid mt_gemm_grid_mul(const struct mt_gemm_mul *g, int64_t unit, int64_t block)
{
    return (struct mt_gemm_grid){.groups = g->offset ? g->groups : 1,
                                 .offset = g->offset,
                                 .m = g->m,
                                 .rows = -1,
                                 .cols = g->n,
                                 .unit = unit,
                                 .block = block};
}
struct mt_gemm_grid mt_gemm_grid_tn(const struct mt_gemm_tn *g, int64_t unit, int64_t block)
{
    return (struct mt_gemm_grid){.groups = g->offset ? g->groups : 1,
                                 .offset = g->offset,
                                 .m = g->m,
                                 .rows = g->o,
                                 .cols = g->i,
                                 .unit = unit,
                                 .block = block,
                                 .skip_empty = g->accumulate};
}

static int64_t extent(const struct mt_gemm_grid *g, int64_t group)
{
    return g->offset ? g->offset[group + 1] - g->offset[group] : g->m;
}
static int64_t out_rows(const struct mt_gemm_grid *g, int64_t group)
{
    return g->rows < 0 ? extent(g, group) : g->rows;
}
/* Blocks of a group are of one height, as far as that goes: 43 units are 22 and 21, not 42 and 1. */
static int64_t block_of(const struct mt_gemm_grid *g, int64_t units)
{
    return ceil_div(units, ceil_div(units, g->block));
}
static int64_t cells(const struct mt_gemm_grid *g, int64_t group)
{
    return ceil_div(out_rows(g, group), g->unit) * ceil_div(g->cols, MT_PANEL);
}
/* Work of a cell. A weight gradient's grows with the rows summed; writing the cell counts as 32 rows. */
static int64_t weight(const struct mt_gemm_grid *g, int64_t group)
{
    if (g->rows < 0) return 1;
    int64_t m = extent(g, group);
    return m == 0 && g->skip_empty ? 0 : ceil_div(m, 32) + 1;
}

void mt_gemm_cut_init(struct mt_gemm_cut *cut, const struct mt_gemm_grid *grid, int part, int parts)
{
    int64_t total = 0;
    for (int64_t e = 0; e < grid->groups; e++) total += weight(grid, e) * cells(grid, e);
    *cut = (struct mt_gemm_cut){.grid = *grid, .lo = total * part / parts, .hi = total * (part + 1) / parts};
}

/* Units in the whole blocks that `n` cells can fill, beginning with one that they do fill. */
static int64_t merged(const struct mt_gemm_grid *g, int64_t block, int64_t units, int64_t n)
{
    int64_t panels = ceil_div(g->cols, MT_PANEL), tall = 0;
    while (tall < units) {
        int64_t high = clamp(units - tall, 0, block);
        if ((tall + high) * panels > n) break;
        tall += high;
    }
    return tall;
}

/* Cells are counted block of rows by block, in a block panel by panel, in a panel down the rows: a part that
 * gets many cells gets whole blocks. A cell belongs to the part in whose share its work begins. */
bool mt_gemm_cut_next(struct mt_gemm_cut *cut, struct mt_gemm_rect *r)
{
    const struct mt_gemm_grid *g = &cut->grid;
    int64_t panels = ceil_div(g->cols, MT_PANEL);
    for (; cut->group < g->groups && cut->base < cut->hi; cut->group++, cut->at = 0) {
        int64_t n = cells(g, cut->group), w = weight(g, cut->group);
        if (n == 0 || w == 0) continue;
        int64_t begin = clamp(ceil_div(clamp(cut->lo - cut->base, 0, n * w), w), cut->at, n);
        int64_t end = ceil_div(clamp(cut->hi - cut->base, 0, n * w), w);
        if (begin < end) {
            int64_t rows = out_rows(g, cut->group), units = ceil_div(rows, g->unit);
            int64_t most = block_of(g, units), block = begin / (most * panels) * most;
            int64_t high = units - block < most ? units - block : most;
            int64_t p = (begin - block * panels) / high, u = (begin - block * panels) % high;
            int64_t whole = u ? 0 : clamp((end - begin) / high, 0, panels - p);
            int64_t tall = whole ? high : clamp(end - begin, 0, high - u);
            if (g->merge && whole == panels) high = tall = merged(g, most, units - block, end - begin);
            /* Units of even height: 37 rows are 18 and 19, not 32 and 5. */
            int64_t row0 = rows * (block + u) / units, row1 = rows * (block + u + tall) / units;
            *r = (struct mt_gemm_rect){.group = cut->group,
                                       .row = row0,
                                       .rows = row1 - row0,
                                       .panel = p,
                                       .panels = whole ? whole : 1,
                                       .first = g->offset ? g->offset[cut->group] : 0,
                                       .extent = extent(g, cut->group)};
            cut->at = begin + (whole ? whole * high : tall);
            return true;
        }
        cut->base += n * w;
    }
    return false;
}
