#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "cmd/sweep_tell.h"
#include "config/table.h"

enum { WORDS = 2048 };
static const double MIB = 1 << 20;

double mt_metric_unit(enum mt_choice_metric m)
{
    return m == MT_METRIC_DEVICE_BYTES || m == MT_METRIC_HOST_BYTES ? MIB : 1;
}
const char *mt_metric_text(enum mt_choice_metric m)
{
    static const char *const text[] = {"tokens/s",        "MFU",        "step, s", "loss",
                                       "validation loss", "device MiB", "host MiB"};
    return text[m];
}

/* Of the baseline's mean; NaN: one of the two is not known. */
static double ratio(const struct mt_study *t, const struct mt_study_point *p)
{
    enum mt_choice_metric m = t->sweep->o.metric;
    double base = t->point[t->baseline].mean[m];
    if (p->due != t->point[t->baseline].due && p->left) return (double)NAN; /* of fewer steps */
    return fabs(base) > 0 ? p->mean[m] / base : (double)NAN;
}
/* Highest less lowest of the repeats, over the mean. */
static double spread(const struct mt_study_point *p, enum mt_choice_metric m)
{
    return p->done > 1 && fabs(p->mean[m]) > 0 ? (p->high[m] - p->low[m]) / fabs(p->mean[m]) : (double)NAN;
}

/* Why a point has no number, or fewer runs than it should; "" if nothing is amiss. */
static void reason(const struct mt_study *t, const struct mt_study_point *p, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    if (p->verdict != MT_POINT_RUNS) {
        snprintf(out, size, "%s: %s", mt_point_verdict_text(p->verdict), p->why);
        return;
    }
    if (p->left) n = (size_t)snprintf(out, size, "%s", p->why);
    for (int k = 0; k < t->repeats && n < size && !p->left; k++) {
        const struct mt_study_run *r = &p->run[k];
        if (r->state == MT_RUN_FAILED)
            n += (size_t)snprintf(out + n, size - n, "%srepeat %d failed, exit code %d: %s", n ? "; " : "",
                                  k + 1, r->exit_code, r->why);
        else if (r->state == MT_RUN_WAITING && r->steps)
            n += (size_t)snprintf(out + n, size - n, "%srepeat %d has %lld steps of %lld", n ? "; " : "",
                                  k + 1, (long long)r->steps, (long long)p->due);
    }
    if (!n && p->done < t->repeats)
        snprintf(out, size, "%d of %d runs to come", t->repeats - p->done, t->repeats);
}

/* ---- the screen ---- */
static void cell(FILE *out, int width, const char *fmt, double v)
{
    char text[48];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, isnan(v) ? "-" : fmt, v);
#pragma GCC diagnostic pop
    fprintf(out, " %*s", width, text);
}
static void print_point(const struct mt_study *t, int i, int place, FILE *out)
{
    const struct mt_study_point *p = &t->point[i];
    enum mt_choice_metric m = t->sweep->o.metric;
    char words[WORDS], why[512];
    reason(t, p, why, sizeof why);
    fprintf(out, "%4d%c %5d", place, i == t->baseline ? '=' : ' ', i + 1);
    cell(out, 13, "%.6g", p->mean[m] / mt_metric_unit(m));
    cell(out, 8, "%.1f%%", 100 * spread(p, m));
    cell(out, 7, "%.3f", ratio(t, p));
    cell(out, 10, "%.2f",
         p->done      ? p->mean[MT_METRIC_DEVICE_BYTES] / MIB
         : p->peak[0] ? (double)p->peak[0] / MIB
                      : (double)NAN);
    cell(out, 10, "%.2f",
         p->done      ? p->mean[MT_METRIC_HOST_BYTES] / MIB
         : p->peak[1] ? (double)p->peak[1] / MIB
                      : (double)NAN);
    cell(out, 12, "%.6g", p->planned > 0 ? p->planned : (double)NAN);
    fprintf(out, "  %s%s%s\n", mt_sweep_words(p->p, words, sizeof words), *why ? " -- " : "", why);
}

/* A speed is that of a routing: which, where all points with experts have the same, and so nothing in the table says it. */
static void print_routing(const struct mt_study *t, FILE *out)
{
    enum mt_choice_metric m = t->sweep->o.metric;
    mt_config *c = malloc(sizeof *c);
    bool has[2] = {false};
    mt_err e = {0};
    MT_ASSERT(c);
    for (int i = 0; i < t->n; i++)
        if (mt_sweep_config(t->sweep, t->point[i].p, false, c, &e) == MT_OK && c->model_experts)
            has[c->moe_routing == MT_ROUTING_BALANCED] = true;
    free(c);
    if ((m != MT_METRIC_TOKENS_PER_S && m != MT_METRIC_MFU && m != MT_METRIC_STEP_S) || has[0] == has[1])
        return;
    fprintf(out,
            "routing   %s in every point; `moe.routing: [learned, balanced]` in the grid tells the speed of "
            "both\n",
            has[0] ? "learned" : "balanced by force");
}

void mt_sweep_table(const struct mt_study *t, FILE *out)
{
    enum mt_choice_metric m = t->sweep->o.metric;
    int *order = malloc(((size_t)t->n + 1) * sizeof *order), run = 0, done = 0, failed = 0;
    MT_ASSERT(order);
    for (int i = 0; i < t->n; i++) {
        run += t->point[i].verdict == MT_POINT_RUNS;
        done += t->point[i].done;
        failed += t->point[i].failed;
    }
    mt_study_order(t, order);
    fprintf(out, "sweep     %s: %d points, %d of them to run, %d time%s each; %d runs done, %d failed",
            t->sweep->name, t->n, run, t->repeats, t->repeats > 1 ? "s" : "", done, failed);
    if (t->sweep->left_out) fprintf(out, "; where left %d out", t->sweep->left_out);
    fprintf(out, "\n%5s %5s %13s %8s %7s %10s %10s %12s  %s\n", "", "point", mt_metric_text(m), "spread",
            "ratio", "device MiB", "host MiB", "planned t/s",
            "what differs (= is the baseline) -- why there is no number");
    for (int i = 0; i < t->n; i++) print_point(t, order[i], i + 1, out);
    free(order);
    print_routing(t, out);
}

/* ---- CSV ---- */
static void put_text(FILE *f, const char *s)
{
    fputs(",\"", f);
    for (; *s; s++) {
        if (*s == '"') fputc('"', f);
        fputc(*s == '\n' ? ' ' : *s, f);
    }
    fputc('"', f);
}
static void put_number(FILE *f, double v)
{
    if (isfinite(v))
        fprintf(f, ",%.17g", v);
    else
        fputc(',', f);
}
/* Options that some point sets. */
static void find_options(const struct mt_study *t, bool set[MT_OPTION_COUNT])
{
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->point[i].p->n; k++) set[t->point[i].p->setting[k].option] = true;
}
static void csv_head(FILE *f, const bool set[MT_OPTION_COUNT])
{
    fputs("place,point,id,verdict,reason,baseline,round,steps,runs_done,runs_failed,ratio", f);
    for (int m = 0; m < MT_N_METRICS; m++)
        fprintf(f, ",%s,%s_low,%s_high", mt_choices_metric[m], mt_choices_metric[m], mt_choices_metric[m]);
    fputs(",planned_device_bytes,planned_host_bytes,planned_tokens_per_s", f);
    for (int k = 0; k < MT_OPTION_COUNT; k++)
        if (set[k]) fprintf(f, ",%s", mt_options[k].key);
    fputc('\n', f);
}
static void csv_line(FILE *f, const struct mt_study *t, int i, int place, const bool set[MT_OPTION_COUNT])
{
    const struct mt_study_point *p = &t->point[i];
    char why[512];
    reason(t, p, why, sizeof why);
    fprintf(f, "%d,%d,%s", place, i + 1, p->id);
    put_text(f, p->left ? "left out" : mt_point_verdict_text(p->verdict));
    put_text(f, why);
    fprintf(f, ",%d,%d,%lld,%d,%d", i == t->baseline, p->round + 1, (long long)p->due, p->done, p->failed);
    put_number(f, ratio(t, p));
    for (int m = 0; m < MT_N_METRICS; m++) {
        put_number(f, p->mean[m]);
        put_number(f, p->low[m]);
        put_number(f, p->high[m]);
    }
    fprintf(f, ",%lld,%lld", (long long)p->peak[0], (long long)p->peak[1]);
    put_number(f, p->planned > 0 ? p->planned : (double)NAN);
    for (int k = 0; k < MT_OPTION_COUNT; k++)
        if (set[k]) {
            const char *text = mt_sweep_value(p->p, (mt_option_id)k);
            put_text(f, text ? text : "");
        }
    fputc('\n', f);
}

mt_status mt_sweep_csv(const struct mt_study *t, const char *path, mt_err *e)
{
    bool set[MT_OPTION_COUNT] = {false};
    FILE *f;
    int *order = malloc(((size_t)t->n + 1) * sizeof *order);
    MT_REQUIRE(order, e, MT_IO, "no memory for the order of %d points", t->n);
    mt_status st = mt_print_open(&f, path, e);
    if (st == MT_OK) {
        find_options(t, set);
        mt_study_order(t, order);
        csv_head(f, set);
        for (int i = 0; i < t->n; i++) csv_line(f, t, order[i], i + 1, set);
        st = mt_print_close(f, path, e);
    }
    free(order);
    return st;
}
