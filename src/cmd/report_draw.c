#include "cmd/report_draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/chart.h"

enum { MOST_SERIES = 64 };
static const struct {
    const char *file, *title, *unit;
} curves[MT_N_CURVES] = {
#define X(name, file, title, unit) {file, title, unit},
    MT_REPORT_CURVES(X)
#undef X
};
const char *mt_curve_file(enum mt_report_curve c)
{
    return curves[c].file;
}
const char *mt_curve_title(enum mt_report_curve c)
{
    return curves[c].title;
}

/* What a curve is made of: numbers of metrics.jsonl, in units; memory has three of them. */
struct part {
    enum mt_history_key key;
    double unit;
    const char *name; /* "": the run's alone */
};
static const double MIB = 1 << 20;
static int parts_of(enum mt_report_curve c, struct part out[3])
{
    const struct part one[MT_N_CURVES] = {[MT_CURVE_LOSS] = {MT_HISTORY_loss, 1, ""},
                                          [MT_CURVE_VALIDATION] = {MT_HISTORY_val_loss, 1, ""},
                                          [MT_CURVE_RATE] = {MT_HISTORY_tokens_per_s, 1, ""},
                                          [MT_CURVE_MFU] = {MT_HISTORY_mfu, 0.01, ""},
                                          [MT_CURVE_NORM] = {MT_HISTORY_grad_norm, 1, ""},
                                          [MT_CURVE_LR] = {MT_HISTORY_lr, 1, ""},
                                          [MT_CURVE_DATA] = {MT_HISTORY_data_wait_s, 1e-3, ""},
                                          [MT_CURVE_BALANCE] = {MT_HISTORY_expert_balance, 1, ""},
                                          [MT_CURVE_IMBALANCE] = {MT_HISTORY_rank_imbalance, 1, ""}};
    if (c == MT_CURVE_EXPOSED) return 0;
    out[0] = one[c];
    if (c != MT_CURVE_MEMORY) return 1;
    out[0] = (struct part){MT_HISTORY_device_bytes, MIB, "device arena"};
    out[1] = (struct part){MT_HISTORY_host_bytes, MIB, "host arena"};
    out[2] = (struct part){MT_HISTORY_resident_bytes, MIB, "first process, resident"};
    return 3;
}
static bool has(const struct mt_history *h, enum mt_history_key k)
{
    for (int64_t i = 0; i < h->n; i++)
        if (!isnan(h->row[i].value[k])) return true;
    return false;
}
bool mt_curve_there(const struct mt_report_run *run, int n, enum mt_report_curve c)
{
    struct part part[3];
    int parts = parts_of(c, part);
    for (int i = 0; i < n; i++) {
        if (!parts && (run[i].n_traces || has(&run[i].h, MT_HISTORY_exposed_s))) return true;
        for (int k = 0; k < parts; k++)
            if (has(&run[i].h, part[k].key)) return true;
    }
    return false;
}

/* ---- series ---- */
struct drawing {
    struct mt_series series[MOST_SERIES];
    char name[MOST_SERIES][128];
    double *block[MOST_SERIES]; /* owned */
    int n;
};
static mt_status add_series(struct drawing *d, int64_t n, int ink, double **x, double **y, mt_err *e)
{
    d->block[d->n] = malloc(2 * ((size_t)n + 1) * sizeof *d->block[0]);
    MT_REQUIRE(d->block[d->n], e, MT_IO, "no memory for a picture");
    *x = d->block[d->n];
    *y = *x + n + 1;
    d->series[d->n] = (struct mt_series){.name = d->name[d->n], .ink = ink, .x = *x, .y = *y};
    d->n++;
    return MT_OK;
}

static mt_status add_part(struct drawing *d, const struct mt_report_run *r, const struct part *p, int ink,
                          bool many, mt_err *e)
{
    double *x, *y;
    int64_t n = 0;
    if (d->n == MOST_SERIES || !has(&r->h, p->key)) return MT_OK;
    MT_TRY(add_series(d, r->h.n, ink, &x, &y, e));
    for (int64_t i = 0; i < r->h.n; i++) {
        double v = r->h.row[i].value[p->key];
        if (isnan(v)) continue; /* lines of validations lie between those of steps */
        x[n] = (double)r->h.row[i].step;
        y[n++] = v / p->unit;
    }
    struct mt_series *s = &d->series[d->n - 1];
    s->n = n;
    s->dots = n == 1;
    snprintf(d->name[d->n - 1], sizeof d->name[0], "%s%s%s", many || !*p->name ? r->name : "",
             many && *p->name ? ": " : "", p->name);
    return MT_OK;
}
/* Of every step; of a run that does not tell it, of those that were traced. */
static double exposed_of(const struct mt_history_row *r)
{
    double tokens = r->value[MT_HISTORY_tokens] / (double)r->step,
           seconds = tokens / r->value[MT_HISTORY_tokens_per_s];
    return seconds > 0 ? 100 * r->value[MT_HISTORY_exposed_s] / seconds : (double)NAN;
}
static double exposed_when_traced(const struct mt_report_trace *t)
{
    double ms = 0;
    for (int k = 0; k < t->n; k++) ms += t->cause[k].exposed ? t->cause[k].ms : 0;
    return t->mean_ms > 0 ? 100 * ms / t->mean_ms : (double)NAN;
}
static mt_status add_exposed(struct drawing *d, const struct mt_report_run *r, int ink, mt_err *e)
{
    double *x, *y;
    bool all = has(&r->h, MT_HISTORY_exposed_s);
    int64_t n = 0, most = all ? r->h.n : r->n_traces;
    if (d->n == MOST_SERIES || !most) return MT_OK;
    MT_TRY(add_series(d, most, ink, &x, &y, e));
    for (int64_t i = 0; i < most; i++) {
        x[n] = (double)(all ? r->h.row[i].step : r->trace[i].step);
        y[n] = all ? exposed_of(&r->h.row[i]) : exposed_when_traced(&r->trace[i]);
        if (!isnan(y[n])) n++;
    }
    struct mt_series *s = &d->series[d->n - 1];
    s->n = n;
    s->dots = !all || n == 1;
    snprintf(d->name[d->n - 1], sizeof d->name[0], "%s", r->name);
    return MT_OK;
}
static mt_status fill(struct drawing *d, const struct mt_report_run *run, int n, enum mt_report_curve c,
                      mt_err *e)
{
    struct part part[3];
    int parts = parts_of(c, part);
    for (int i = 0; i < n; i++) {
        if (!parts) MT_TRY(add_exposed(d, &run[i], i, e));
        for (int k = 0; k < parts; k++) MT_TRY(add_part(d, &run[i], &part[k], i * parts + k, n > 1, e));
    }
    return MT_OK;
}

/* Checkpoints come too often to be marked. */
static mt_status find_marks(const struct mt_report_run *r, struct mt_chart_mark **mark, char (**text)[320],
                            int *n, mt_err *e)
{
    *n = 0;
    *mark = malloc(((size_t)r->n_events + 1) * sizeof **mark);
    *text = malloc(((size_t)r->n_events + 1) * sizeof **text);
    MT_REQUIRE(*mark && *text, e, MT_IO, "no memory for the events of a run");
    for (int i = 0; i < r->n_events; i++) {
        const struct mt_report_event *x = &r->event[i];
        if (!strcmp(x->kind, "checkpoint") || !strcmp(x->kind, "end")) continue;
        snprintf((*text)[*n], sizeof **text, "step %lld: %s %s", (long long)x->step, x->kind, x->text);
        (*mark)[*n] = (struct mt_chart_mark){(double)x->step, (*text)[*n]};
        ++*n;
    }
    return MT_OK;
}

mt_status mt_curve_draw(FILE *f, const struct mt_report_run *run, int n, enum mt_report_curve c, bool alone,
                        mt_err *e)
{
    struct drawing *d = calloc(1, sizeof *d);
    struct mt_chart_mark *mark = NULL;
    char(*text)[320] = NULL;
    int marks = 0;
    mt_status st = d ? MT_OK : mt_err_set(e, MT_IO, "no memory for a picture");
    if (st == MT_OK && n == 1) st = find_marks(run, &mark, &text, &marks, e);
    if (st == MT_OK) st = fill(d, run, n, c, e);
    if (st == MT_OK) {
        const struct mt_chart chart = {.label = curves[c].title,
                                       .x_text = "step",
                                       .y_text = curves[c].unit,
                                       .series = d->series,
                                       .n = d->n,
                                       .mark = mark,
                                       .n_marks = marks,
                                       .alone = alone,
                                       .zero = c == MT_CURVE_RATE || c == MT_CURVE_MFU ||
                                               c == MT_CURVE_MEMORY || c == MT_CURVE_EXPOSED};
        mt_chart_draw(f, &chart);
    }
    for (int i = 0; d && i < d->n; i++) free(d->block[i]);
    free(d);
    free(mark);
    free(text);
    return st;
}

/* ---- experts ---- */
static double busiest(const double *share, int n)
{
    double most = share[0];
    for (int i = 1; i < n; i++)
        if (share[i] > most) most = share[i];
    return most;
}
mt_status mt_experts_draw(FILE *f, const struct mt_report_run *r, bool over_steps, bool alone, mt_err *e)
{
    int columns = over_steps ? r->n_experts : r->width;
    double *cell = malloc(((size_t)r->layers * (size_t)columns + (size_t)columns + 1) * sizeof *cell),
           full = 2;
    MT_REQUIRE(cell, e, MT_IO, "no memory for a picture");
    double *x = cell + (size_t)r->layers * (size_t)columns;
    for (int k = 0; k < columns; k++) x[k] = over_steps ? (double)r->experts[k].step : k;
    for (int l = 0; l < r->layers; l++)
        for (int k = 0; k < columns; k++) {
            const double *share = r->experts[over_steps ? k : r->n_experts - 1].share +
                                  (size_t)l * (size_t)r->width;
            double v = over_steps ? busiest(share, r->width) : share[k];
            cell[(size_t)l * (size_t)columns + (size_t)k] = v;
            if (v > full) full = v;
        }
    const struct mt_map m = {
        .label = over_steps ? "Busiest expert of each layer over the steps" : "Rows of each expert",
        .x_text = over_steps ? "step" : "expert",
        .y_text = over_steps ? "layer: its busiest expert" : "layer: its experts, in the last of these steps",
        .cell = cell,
        .rows = r->layers,
        .columns = columns,
        .x = x,
        .row = r->layer,
        .full = full,
        .alone = alone};
    mt_map_draw(f, &m);
    free(cell);
    return MT_OK;
}
