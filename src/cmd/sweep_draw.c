#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "cmd/chart.h"
#include "cmd/sweep_tell.h"
#include "config/table.h"

/* Arrays of one picture's dots, a place for each point of the sweep. */
struct dots {
    int n;
    double *x, *y, *low, *high;
    char (*text)[256];
    const char **tip;
};
static mt_status open_dots(struct dots *d, int most, mt_err *e)
{
    size_t n = (size_t)most + 1;
    *d = (struct dots){.x = malloc(4 * n * sizeof *d->x),
                       .text = malloc(n * sizeof *d->text),
                       .tip = malloc(n * sizeof *d->tip)};
    MT_REQUIRE(d->x && d->text && d->tip, e, MT_IO, "no memory for a picture of %d points", most);
    d->y = d->x + n;
    d->low = d->y + n;
    d->high = d->low + n;
    return MT_OK;
}
static void close_dots(struct dots *d)
{
    free(d->x);
    free(d->text);
    free(d->tip);
}
static void add_dot(struct dots *d, const struct mt_study *t, int i, double x, enum mt_choice_metric m)
{
    const struct mt_study_point *p = &t->point[i];
    char words[200];
    double unit = mt_metric_unit(m);
    int n = d->n++;
    d->x[n] = x;
    d->y[n] = p->mean[m] / unit;
    d->low[n] = p->low[m] / unit;
    d->high[n] = p->high[m] / unit;
    snprintf(d->text[n], sizeof d->text[n], "point %d: %.6g\n%s", i + 1, d->y[n],
             mt_sweep_words(p->p, words, sizeof words));
    d->tip[n] = d->text[n];
}
static struct mt_series points_of(const struct dots *d)
{
    return (struct mt_series){.name = "a point, mean of its repeats",
                              .x = d->x,
                              .y = d->y,
                              .n = d->n,
                              .low = d->low,
                              .high = d->high,
                              .tip = d->tip,
                              .dots = true};
}
static bool shown(const struct mt_study *t, int i, enum mt_choice_metric m)
{
    return t->point[i].done && isfinite(t->point[i].mean[m]);
}

/* ---- the metric over an option's values ---- */
struct values {
    int n;
    const char *text[MT_SWEEP_POINTS]; /* borrowed, each once */
};
static int compare(const void *a, const void *b)
{
    const char *const *s = a, *const *t = b;
    char *s_end, *t_end;
    double x = strtod(*s, &s_end), y = strtod(*t, &t_end);
    /* "64Ki" and "1Mi" are in the order of their texts' numbers only if their units are equal. */
    if (s_end == *s || t_end == *t || strcmp(s_end, t_end) != 0) return 0;
    return (x > y) - (x < y);
}
/* Numbers sort if all have one unit; else they stay as they come. */
static void sort_values(struct values *v)
{
    char *end, *unit = NULL;
    for (int i = 0; i < v->n; i++) {
        (void)strtod(v->text[i], &end);
        if (end == v->text[i] || (unit && strcmp(unit, end) != 0)) return;
        unit = end;
    }
    qsort(v->text, (size_t)v->n, sizeof *v->text, compare);
}
static int find_value(const struct values *v, const char *text)
{
    int i = 0;
    while (i < v->n && strcmp(v->text[i], text) != 0) i++;
    return i;
}
/* Values of the option that points with a number have; points that leave it alone have the configuration's. */
static void find_values(const struct mt_study *t, mt_option_id option, struct values *v)
{
    v->n = 0;
    for (int i = 0; i < t->n; i++) {
        const char *text = mt_sweep_value(t->point[i].p, option);
        if (!text) text = "as given";
        if (shown(t, i, t->sweep->o.metric) && find_value(v, text) == v->n) v->text[v->n++] = text;
    }
    sort_values(v);
}

/* A faint line through the best of each value. */
static void best_of_values(const struct dots *d, int values, bool higher, double *y)
{
    for (int i = 0; i < values; i++) y[i] = (double)NAN;
    for (int k = 0; k < d->n; k++) {
        double *best = &y[(int)d->x[k]];
        if (isnan(*best) || (d->y[k] > *best) == higher) *best = d->y[k];
    }
}

static mt_status write_chart(const struct mt_study *t, const char *name, const struct mt_chart *c, mt_err *e)
{
    char path[MT_CONFIG_PATH + 128];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s.svg", t->sweep->o.dir, name);
    MT_TRY(mt_print_open(&f, path, e));
    mt_chart_draw(f, c);
    return mt_print_close(f, path, e);
}

static mt_status draw_option(const struct mt_study *t, mt_option_id option, const struct values *v,
                             struct dots *d, mt_err *e)
{
    enum mt_choice_metric m = t->sweep->o.metric;
    const char *key = mt_options[option].key;
    char label[160], name[128];
    double *best = malloc(2 * (size_t)v->n * sizeof *best);
    MT_REQUIRE(best, e, MT_IO, "no memory for a picture");
    d->n = 0;
    for (int i = 0; i < t->n; i++) {
        const char *text = mt_sweep_value(t->point[i].p, option);
        if (shown(t, i, m)) add_dot(d, t, i, find_value(v, text ? text : "as given"), m);
    }
    best_of_values(d, v->n, mt_metric_higher(m), best);
    for (int i = 0; i < v->n; i++) best[v->n + i] = i;
    snprintf(label, sizeof label, "%s against %s", mt_metric_text(m), key);
    snprintf(name, sizeof name, "option-%s", key);
    const struct mt_series series[] = {
        {.name = "best of each value", .ink = 1, .x = best + v->n, .y = best, .n = v->n, .faint = true},
        points_of(d)};
    const struct mt_chart c = {.label = label,
                               .x_text = key,
                               .y_text = mt_metric_text(m),
                               .names = v->text,
                               .n_names = v->n,
                               .series = series,
                               .n = 2,
                               .alone = true};
    mt_status st = write_chart(t, name, &c, e);
    free(best);
    return st;
}

static mt_status draw_options(const struct mt_study *t, struct dots *d, mt_err *e)
{
    struct values *v = malloc(sizeof *v);
    mt_status st = v ? MT_OK : mt_err_set(e, MT_IO, "no memory for a picture");
    for (int id = 0; id < MT_OPTION_COUNT && st == MT_OK; id++) {
        find_values(t, (mt_option_id)id, v);
        if (v->n > 1) st = draw_option(t, (mt_option_id)id, v, d, e);
    }
    free(v);
    return st;
}

/* ---- speed over memory ---- */
struct corner {
    double memory, speed;
};
static int by_memory(const void *a, const void *b)
{
    const struct corner *x = a, *y = b;
    if (x->memory < y->memory || x->memory > y->memory) return x->memory > y->memory ? 1 : -1;
    return (x->speed < y->speed) - (x->speed > y->speed);
}
/* Corners of the stairs under which every point lies. Returns how many. */
static int64_t find_front(const struct dots *d, double *x, double *y)
{
    struct corner *all = malloc(((size_t)d->n + 1) * sizeof *all);
    int64_t n = 0;
    double best = -INFINITY;
    MT_ASSERT(all);
    for (int i = 0; i < d->n; i++) all[i] = (struct corner){d->x[i], d->y[i]};
    qsort(all, (size_t)d->n, sizeof *all, by_memory);
    for (int i = 0; i < d->n; i++) {
        if (!(all[i].speed > best)) continue;
        if (n) x[n] = all[i].memory, y[n++] = best;
        best = all[i].speed;
        x[n] = all[i].memory, y[n++] = best;
    }
    free(all);
    return n;
}

static mt_status draw_front(const struct mt_study *t, struct dots *d, mt_err *e)
{
    double *x = malloc(4 * ((size_t)t->n + 1) * sizeof *x), *y = x ? x + 2 * (t->n + 1) : NULL;
    MT_REQUIRE(x, e, MT_IO, "no memory for a picture");
    d->n = 0;
    for (int i = 0; i < t->n; i++)
        if (shown(t, i, MT_METRIC_TOKENS_PER_S) && shown(t, i, MT_METRIC_DEVICE_BYTES))
            add_dot(d, t, i,
                    (t->point[i].mean[MT_METRIC_DEVICE_BYTES] + t->point[i].mean[MT_METRIC_HOST_BYTES]) /
                        (1 << 20),
                    MT_METRIC_TOKENS_PER_S);
    int64_t n = find_front(d, x, y);
    const struct mt_series series[] = {{.name = "Pareto front", .ink = 1, .x = x, .y = y, .n = n},
                                       points_of(d)};
    const struct mt_chart c = {.label = "Tokens a second against memory of a rank",
                               .x_text = "device and host memory of a rank, MiB",
                               .y_text = "tokens/s",
                               .series = series,
                               .n = 2,
                               .alone = true};
    mt_status st = d->n ? write_chart(t, "pareto", &c, e) : MT_OK;
    free(x);
    return st;
}

mt_status mt_sweep_pictures(const struct mt_study *t, mt_err *e)
{
    struct dots d;
    mt_status st = open_dots(&d, t->n, e);
    if (st == MT_OK) st = draw_options(t, &d, e);
    if (st == MT_OK) st = draw_front(t, &d, e);
    close_dots(&d);
    return st;
}
