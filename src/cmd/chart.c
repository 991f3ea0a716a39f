#include "cmd/chart.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/html.h"

enum { WIDTH = 1100, LEFT = 90, PLOT = 820, HEAD = 18, HEIGHT = 250, FOOT = 40, LINE = 17 };
struct axes {
    double x0, x1, y0, y1;
};

/* ---- axes ---- */
static double place_x(const struct axes *a, double x)
{
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * PLOT;
}
static double place_y(const struct axes *a, double y)
{
    return HEAD + HEIGHT * (1 - (y - a->y0) / (a->y1 - a->y0));
}
static void widen(double *low, double *high, double v)
{
    if (!isfinite(v)) return;
    if (!(*low <= v)) *low = v;
    if (!(*high >= v)) *high = v;
}
/* Some room at both ends; a single value gets an axis, too. */
static void settle(double *low, double *high, double share)
{
    if (isnan(*low)) *low = 0, *high = 1;
    double room = (*high - *low) * share;
    if (!(room > 0)) room = *high > 0 || *high < 0 ? fabs(*high) * 0.05 : 1;
    *low -= room;
    *high += room;
}
static struct axes find_axes(const struct mt_chart *c)
{
    struct axes a = {(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    for (int s = 0; s < c->n; s++)
        for (int64_t i = 0; i < c->series[s].n; i++) {
            const struct mt_series *r = &c->series[s];
            if (!isfinite(r->y[i])) continue;
            widen(&a.x0, &a.x1, r->x[i]);
            widen(&a.y0, &a.y1, r->y[i]);
            if (r->low) widen(&a.y0, &a.y1, r->low[i]);
            if (r->high) widen(&a.y0, &a.y1, r->high[i]);
        }
    bool empty = isnan(a.y0);
    if (c->names) {
        a.x0 = -0.5;
        a.x1 = c->n_names - 0.5;
    } else {
        settle(&a.x0, &a.x1, 0.01);
    }
    settle(&a.y0, &a.y1, 0.05);
    if (c->zero && (empty || a.y0 > 0)) a.y0 = 0;
    return a;
}

static void draw_axes(FILE *f, const struct mt_chart *c, const struct axes *a)
{
    double step = mt_tick_step(a->y1 - a->y0, 6);
    for (double y = ceil(a->y0 / step) * step; y <= a->y1; y += step) {
        double at = fabs(y) < step * 1e-6 ? 0 : y;
        mt_svg_line(f, "grid", LEFT, place_y(a, at), LEFT + PLOT, place_y(a, at));
        mt_svg_text(f, "tick end", LEFT - 8, place_y(a, at) + 4, "%.6g", at);
    }
    step = mt_tick_step(a->x1 - a->x0, 10);
    for (int i = 0; c->names && i < c->n_names; i++)
        mt_svg_text(f, "tick mid", place_x(a, i), HEAD + HEIGHT + 16, "%s", c->names[i]);
    for (double x = ceil(a->x0 / step) * step; !c->names && x <= a->x1; x += step) {
        double at = fabs(x) < step * 1e-6 ? 0 : x;
        mt_svg_line(f, "grid", place_x(a, at), HEAD, place_x(a, at), HEAD + HEIGHT);
        mt_svg_text(f, "tick mid", place_x(a, at), HEAD + HEIGHT + 16, "%.6g", at);
    }
    mt_svg_text(f, "head", LEFT, HEAD - 6, "%s", c->y_text);
    mt_svg_text(f, "head end", LEFT + PLOT, HEAD + HEIGHT + 33, "%s", c->x_text);
}

/* ---- series ---- */
/* What lies in one pixel's column of a line, in the order in which it came. */
struct column {
    double first, low, high, last;
    bool low_first;
    int64_t n;
};
static void put_point(FILE *f, const struct axes *a, double x, double y, bool *pen)
{
    fprintf(f, "%c%.1f %.1f", *pen ? 'L' : 'M', x, place_y(a, y));
    *pen = true;
}
static void put_column(FILE *f, const struct axes *a, int at, struct column *k, bool *pen)
{
    double x = LEFT + at;
    if (k->n) put_point(f, a, x, k->first, pen);
    if (k->n > 2) {
        put_point(f, a, x, k->low_first ? k->low : k->high, pen);
        put_point(f, a, x, k->low_first ? k->high : k->low, pen);
    }
    if (k->n > 1) put_point(f, a, x, k->last, pen);
    *k = (struct column){.n = 0};
}
static void add_to_column(struct column *k, double y)
{
    if (!k->n) *k = (struct column){y, y, y, y, true, 0};
    if (y < k->low) k->low = y, k->low_first = false;
    if (y > k->high) k->high = y, k->low_first = true;
    k->last = y;
    k->n++;
}
static void draw_dense(FILE *f, const struct axes *a, const struct mt_series *s)
{
    struct column k = {.n = 0};
    bool pen = false;
    int at = -1;
    for (int64_t i = 0; i < s->n; i++) {
        int now = (int)((s->x[i] - a->x0) / (a->x1 - a->x0) * PLOT);
        if (now != at || isnan(s->y[i])) put_column(f, a, at, &k, &pen);
        if (isnan(s->y[i]))
            pen = false;
        else
            add_to_column(&k, s->y[i]);
        at = now;
    }
    put_column(f, a, at, &k, &pen);
}
static void draw_line(FILE *f, const struct axes *a, const struct mt_series *s)
{
    bool pen = false;
    fprintf(f, "<path class=\"line l%d%s\" d=\"", s->ink % MT_CHART_INKS, s->faint ? " faint" : "");
    if (s->n > 2 * PLOT) {
        draw_dense(f, a, s);
    } else {
        for (int64_t i = 0; i < s->n; i++) {
            if (isnan(s->y[i]))
                pen = false;
            else
                put_point(f, a, place_x(a, s->x[i]), s->y[i], &pen);
        }
    }
    fputs("\"/>\n", f);
}
static void draw_dots(FILE *f, const struct axes *a, const struct mt_series *s)
{
    char style[16];
    snprintf(style, sizeof style, "line l%d", s->ink % MT_CHART_INKS);
    for (int64_t i = 0; i < s->n; i++) {
        if (!isfinite(s->y[i]) || !isfinite(s->x[i])) continue;
        double x = place_x(a, s->x[i]);
        if (s->low && s->high && isfinite(s->low[i]) && isfinite(s->high[i]))
            mt_svg_line(f, style, x, place_y(a, s->low[i]), x, place_y(a, s->high[i]));
        fprintf(f, "<circle class=\"dot%d%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\">", s->ink % MT_CHART_INKS,
                s->faint ? " faint" : "", x, place_y(a, s->y[i]));
        if (s->tip) {
            fputs("<title>", f);
            mt_html_text(f, s->tip[i]);
            fputs("</title>", f);
        }
        fputs("</circle>\n", f);
    }
}

static void draw_marks(FILE *f, const struct mt_chart *c, const struct axes *a)
{
    for (int i = 0; i < c->n_marks; i++) {
        double x = place_x(a, c->mark[i].x);
        if (!(c->mark[i].x >= a->x0 && c->mark[i].x <= a->x1)) continue;
        fprintf(f, "<path class=\"event\" d=\"M%.1f %dV%d\"><title>", x, HEAD, HEAD + HEIGHT);
        mt_html_text(f, c->mark[i].tip);
        fputs("</title></path>\n", f);
    }
}
static void draw_key(FILE *f, const struct mt_chart *c)
{
    double y = HEAD + 10;
    char style[16];
    for (int s = 0; s < c->n; s++) {
        if (!c->series[s].name) continue;
        snprintf(style, sizeof style, "dot%d", c->series[s].ink % MT_CHART_INKS);
        mt_svg_rect(f, style, LEFT + PLOT + 14, y - 9, 10, 10, NULL);
        mt_svg_text(f, "tick", LEFT + PLOT + 30, y, "%s", c->series[s].name);
        y += LINE;
    }
}

void mt_chart_draw(FILE *f, const struct mt_chart *c)
{
    struct axes a = find_axes(c);
    double height = HEAD + HEIGHT + FOOT, keys = HEAD;
    for (int s = 0; s < c->n; s++) keys += c->series[s].name ? LINE : 0;
    if (keys > height) height = keys;
    (c->alone ? mt_svg_begin_alone : mt_svg_begin)(f, WIDTH, height, c->label);
    draw_axes(f, c, &a);
    draw_marks(f, c, &a);
    for (int s = 0; s < c->n; s++) (c->series[s].dots ? draw_dots : draw_line)(f, &a, &c->series[s]);
    draw_key(f, c);
    mt_svg_end(f);
}

/* ---- maps ---- */
enum { LEVELS = 9, CELL = 14 };
/* -LEVELS + 1 .. LEVELS - 1: how far from 1. */
static int level_of(const struct mt_map *m, double v)
{
    double part = v > 1 ? (v - 1) / (m->full - 1) : v - 1;
    if (part > 1) part = 1;
    return (int)lround(part * (LEVELS - 1));
}
static double further(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
    double x = a > 1 ? a : a > 0 ? 1 / a : 1e9, y = b > 1 ? b : b > 0 ? 1 / b : 1e9;
    return y > x ? b : a;
}
/* Of the cells that one place of the picture stands for. */
static double cell_at(const struct mt_map *m, int row, int column, int rows, int columns)
{
    int r0 = (int)((int64_t)row * m->rows / rows), r1 = (int)((int64_t)(row + 1) * m->rows / rows);
    int c0 = (int)((int64_t)column * m->columns / columns),
        c1 = (int)((int64_t)(column + 1) * m->columns / columns);
    double v = (double)NAN;
    for (int r = r0; r < r1; r++)
        for (int c = c0; c < c1; c++) v = further(v, m->cell[(int64_t)r * m->columns + c]);
    return v;
}

/* One path for all cells of a level. */
static void draw_level(FILE *f, const struct mt_map *m, int level, int rows, int columns, double w, double h)
{
    bool any = false;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            double v = cell_at(m, r, c, rows, columns);
            if (isnan(v) || level_of(m, v) != level) continue;
            if (!any)
                fprintf(f, "<path class=\"dot%d\" fill-opacity=\"%.2f\" d=\"", level > 0 ? 4 : 0,
                        (double)abs(level) / (LEVELS - 1));
            any = true;
            fprintf(f, "M%.1f %.1fh%.1fv%.1fh%.1fz", LEFT + c * w, HEAD + r * h, w, h, -w);
        }
    if (any) fputs("\"/>\n", f);
}

static void draw_scale(FILE *f, const struct mt_map *m)
{
    const double at[] = {0, 0.5, 1, (1 + m->full) / 2, m->full};
    for (int i = 0; i < 5; i++) {
        int level = level_of(m, at[i]);
        double y = HEAD + i * LINE;
        fprintf(f, "<path class=\"dot%d\" fill-opacity=\"%.2f\" d=\"M%d %.1fh12v12h-12z\"/>\n",
                level > 0 ? 4 : 0, (double)abs(level) / (LEVELS - 1), LEFT + PLOT + 14, y);
        mt_svg_text(f, "tick", LEFT + PLOT + 32, y + 10, i == 4 ? "%.3g times the mean" : "%.3g", at[i]);
    }
}

void mt_map_draw(FILE *f, const struct mt_map *m)
{
    enum { LABELS = 8 };
    int rows = m->rows < MT_MAP_ROWS ? m->rows : MT_MAP_ROWS,
        columns = m->columns < MT_MAP_COLUMNS ? m->columns : MT_MAP_COLUMNS;
    double w = (double)PLOT / columns, h = rows * CELL > HEIGHT ? (double)HEIGHT / rows : CELL;
    double bottom = HEAD + rows * h, least = HEAD + 5 * LINE;
    (m->alone ? mt_svg_begin_alone : mt_svg_begin)(f, WIDTH, (bottom > least ? bottom : least) + FOOT,
                                                   m->label);
    for (int level = 1 - LEVELS; level < LEVELS; level++)
        if (level) draw_level(f, m, level, rows, columns, w, h);
    fprintf(f, "<path class=\"frame\" d=\"M%d %dh%dv%.1fh%dz\"/>\n", LEFT, HEAD, PLOT, rows * h, -PLOT);
    for (int i = 0; i < LABELS && i < columns; i++) {
        int c = columns <= LABELS ? i : i * columns / LABELS;
        int64_t of = (int64_t)c * m->columns / columns;
        mt_svg_text(f, "tick", LEFT + c * w, bottom + 15, "%.6g", m->x ? m->x[of] : (double)of);
    }
    for (int r = 0; r<rows; r += rows> 16 ? (rows + 7) / 8 : 1)
        mt_svg_text(f, "tick end", LEFT - 8, HEAD + r * h + (h < 10 ? 8 : h - 3), "%lld",
                    m->row ? (long long)m->row[(int64_t)r * m->rows / rows]
                           : (long long)((int64_t)r * m->rows / rows));
    mt_svg_text(f, "head", LEFT, HEAD - 6, "%s", m->y_text);
    mt_svg_text(f, "head end", LEFT + PLOT, bottom + 33, "%s", m->x_text);
    draw_scale(f, m);
    mt_svg_end(f);
}
