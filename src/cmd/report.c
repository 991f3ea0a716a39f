/* moetitan report: runs as one page that needs nothing else. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "ckpt/file.h"
#include "cmd/cmd.h"
#include "cmd/html.h"
#include "cmd/report_draw.h"
#include "config/table.h"
#include "launch/spawn.h"
#include "train/say.h"

#define USAGE "usage: moetitan report RUN_DIR ... [-o FILE.html] [--svg FOLDER] [--png FOLDER]"
enum { MOST_RUNS = 16, MOST_EVENTS = 200 };

struct report {
    struct mt_report_run *run; /* owned: [n] */
    const char *dir[MOST_RUNS];
    int n;
    const char *out, *svg, *png;
};

static mt_status read_arguments(int argc, char **argv, struct report *r, mt_err *e)
{
    *r = (struct report){.out = "report.html"};
    for (int i = 1; i < argc; i++) {
        const char **value = !strcmp(argv[i], "-o")      ? &r->out
                             : !strcmp(argv[i], "--svg") ? &r->svg
                             : !strcmp(argv[i], "--png") ? &r->png
                                                         : NULL;
        if (value) {
            MT_REQUIRE(i + 1 < argc, e, MT_CONFIG, "report: %s needs a value; " USAGE, argv[i]);
            *value = argv[++i];
        } else {
            MT_REQUIRE(argv[i][0] != '-', e, MT_CONFIG, "report: no flag '%.40s'; " USAGE, argv[i]);
            MT_REQUIRE(r->n < MOST_RUNS, e, MT_CONFIG, "report: more than %d runs in one picture", MOST_RUNS);
            r->dir[r->n++] = argv[i];
        }
    }
    MT_REQUIRE(r->n, e, MT_CONFIG, USAGE);
    return MT_OK;
}

/* Two runs whose folders end alike are called by all of their paths. */
static void tell_apart(struct report *r)
{
    bool twice[MOST_RUNS] = {false};
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->n; k++) twice[i] |= k != i && !strcmp(r->run[i].name, r->run[k].name);
    for (int i = 0; i < r->n; i++) {
        size_t length = strlen(r->run[i].dir), most = sizeof r->run[i].name - 1;
        if (twice[i])
            snprintf(r->run[i].name, sizeof r->run[i].name, "%.63s",
                     r->run[i].dir + (length > most ? length - most : 0));
    }
}

/* ---- the page ---- */
static void cell(FILE *f, double v, double unit, const char *fmt)
{
    fputs("<td class=\"n\">", f);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (isfinite(v)) fprintf(f, fmt, v / unit);
#pragma GCC diagnostic pop
    fputs("</td>", f);
}
static void text_cell(FILE *f, const char *text)
{
    fputs("<td>", f);
    mt_html_text(f, text);
    fputs("</td>", f);
}
/* The last line's value that is there. */
static double last(const struct mt_history *h, enum mt_history_key k)
{
    for (int64_t i = h->n; i-- > 0;)
        if (!isnan(h->row[i].value[k])) return h->row[i].value[k];
    return (double)NAN;
}
static double mean_rate(const struct mt_history *h)
{
    double sum = 0, seconds = 0;
    for (int64_t i = 0; i < h->n; i++) {
        const struct mt_history_row *r = &h->row[i];
        double rate = r->value[MT_HISTORY_tokens_per_s],
               tokens = r->value[MT_HISTORY_tokens] / (double)r->step;
        if (!(rate > 0) || r->step < 3) continue;
        sum += tokens;
        seconds += tokens / rate;
    }
    return seconds > 0 ? sum / seconds : (double)NAN;
}

static void put_runs(FILE *f, const struct report *r)
{
    fputs("<div class=\"wide\">\n<table>\n<tr><th>run</th><th class=\"n\">steps</th><th class=\"n\">million "
          "tokens</th>"
          "<th class=\"n\">loss</th><th class=\"n\">validation</th><th class=\"n\">tokens/s</th><th "
          "class=\"n\">MFU %</th>"
          "<th class=\"n\">device MiB</th><th class=\"n\">host MiB</th><th class=\"n\">starts</th></tr>\n",
          f);
    for (int i = 0; i < r->n; i++) {
        const struct mt_report_run *x = &r->run[i];
        int starts = 0;
        for (int k = 0; k < x->n_events; k++)
            starts += !strcmp(x->event[k].kind, "start") || !strcmp(x->event[k].kind, "resume");
        fputs("<tr>", f);
        text_cell(f, x->name);
        cell(f, (double)x->h.steps, 1, "%.0f");
        cell(f, last(&x->h, MT_HISTORY_tokens), 1e6, "%.3f");
        cell(f, last(&x->h, MT_HISTORY_loss), 1, "%.4f");
        cell(f, last(&x->h, MT_HISTORY_val_loss), 1, "%.4f");
        cell(f, mean_rate(&x->h), 1, "%.1f");
        cell(f, last(&x->h, MT_HISTORY_mfu), 0.01, "%.1f");
        cell(f, last(&x->h, MT_HISTORY_device_bytes), 1 << 20, "%.1f");
        cell(f, last(&x->h, MT_HISTORY_host_bytes), 1 << 20, "%.1f");
        cell(f, starts, 1, "%.0f");
        fputs("</tr>\n", f);
    }
    fputs("</table>\n</div>\n", f);
}

static mt_status put_curves(FILE *f, const struct report *r, mt_err *e)
{
    for (int c = 0; c < MT_N_CURVES; c++) {
        enum mt_report_curve curve = (enum mt_report_curve)c;
        if (!mt_curve_there(r->run, r->n, curve)) continue;
        fprintf(f, "<section id=\"%s\">\n<h2>%s</h2>\n", mt_curve_file(curve), mt_curve_title(curve));
        MT_TRY(mt_curve_draw(f, r->run, r->n, curve, false, e));
        fputs("</section>\n", f);
    }
    return MT_OK;
}

static mt_status put_experts(FILE *f, const struct report *r, mt_err *e)
{
    for (int i = 0; i < r->n; i++) {
        if (!r->run[i].n_experts) continue;
        fputs("<section class=\"experts\">\n<h2>Balance of experts: ", f);
        mt_html_text(f, r->run[i].name);
        fputs("</h2>\n<p>Rows that an expert got, over the mean of its layer: 1 is balance. Of more experts "
              "or steps than there is room "
              "for, the one furthest from it is shown.</p>\n",
              f);
        MT_TRY(mt_experts_draw(f, &r->run[i], true, false, e));
        MT_TRY(mt_experts_draw(f, &r->run[i], false, false, e));
        fputs("</section>\n", f);
    }
    return MT_OK;
}

static void put_trace(FILE *f, const struct mt_report_run *r)
{
    const struct mt_report_trace *t = &r->trace[r->n_traces - 1];
    fputs("<div>\n<h3>", f);
    mt_html_printf(f, "%s, step %lld: %.2f ms", r->name, (long long)t->step, t->mean_ms);
    fputs("</h3>\n<table>\n<tr><th></th><th class=\"n\">ms</th><th class=\"n\">%</th></tr>\n", f);
    for (int k = 0; k < t->n; k++) {
        if (!(t->cause[k].ms > 0)) continue;
        fputs("<tr><td>", f);
        mt_html_printf(f, "%s%s", t->cause[k].exposed ? "not hidden: " : "", t->cause[k].name);
        fputs("</td>", f);
        cell(f, t->cause[k].ms, 1, "%.3f");
        cell(f, t->cause[k].ms, t->mean_ms / 100, "%.1f");
        fputs("</tr>\n", f);
    }
    fputs("</table>\n</div>\n", f);
}
static void put_traces(FILE *f, const struct report *r)
{
    bool any = false;
    for (int i = 0; i < r->n; i++) {
        if (!r->run[i].n_traces) continue;
        if (!any)
            fputs("<section id=\"traces\">\n<h2>Where a traced step's time went</h2>\n<div class=\"pair\">\n",
                  f);
        any = true;
        put_trace(f, &r->run[i]);
    }
    if (any) fputs("</div>\n</section>\n", f);
}

static void put_events(FILE *f, const struct report *r)
{
    fputs("<section id=\"events\">\n<h2>Events</h2>\n<div "
          "class=\"wide\">\n<table>\n<tr><th>run</th><th>time</th>"
          "<th class=\"n\">step</th><th>event</th><th></th></tr>\n",
          f);
    for (int i = 0; i < r->n; i++) {
        const struct mt_report_run *x = &r->run[i];
        int from = x->n_events > MOST_EVENTS ? x->n_events - MOST_EVENTS : 0;
        for (int k = from; k < x->n_events; k++) {
            fputs("<tr>", f);
            text_cell(f, x->name);
            text_cell(f, x->event[k].time);
            cell(f, (double)x->event[k].step, 1, "%.0f");
            text_cell(f, x->event[k].kind);
            text_cell(f, x->event[k].text);
            fputs("</tr>\n", f);
        }
        if (from)
            fprintf(f,
                    "<tr><td></td><td></td><td></td><td></td><td>%d earlier ones are not shown</td></tr>\n",
                    from);
    }
    fputs("</table>\n</div>\n</section>\n", f);
}

/* Options in which the runs differ, or, of one run, those that are not the table's defaults. */
static bool tells(const struct report *r, const mt_option *o, int id)
{
    char a[MT_VALUE_TEXT], b[MT_VALUE_TEXT];
    if (o->list) return false;
    if (r->n == 1)
        return r->run[0].cfg.origin[id].from == MT_FROM_FILE &&
               strcmp(mt_value_text(o, &r->run[0].cfg, a), o->def) != 0;
    for (int i = 1; i < r->n; i++)
        if (strcmp(mt_value_text(o, &r->run[0].cfg, a), mt_value_text(o, &r->run[i].cfg, b)) != 0)
            return true;
    return false;
}
static void put_options(FILE *f, const struct report *r)
{
    char value[MT_VALUE_TEXT];
    for (int i = 0; i < r->n; i++)
        if (!r->run[i].configured) return;
    fprintf(f, "<section id=\"options\">\n<h2>%s</h2>\n<div class=\"wide\">\n<table>\n<tr><th>option</th>",
            r->n > 1 ? "Options that differ" : "Options that are not the defaults");
    for (int i = 0; i < r->n; i++) {
        fputs("<th>", f);
        mt_html_text(f, r->run[i].name);
        fputs("</th>", f);
    }
    fputs("</tr>\n", f);
    for (int id = 0; id < MT_OPTION_COUNT; id++) {
        if (!tells(r, &mt_options[id], id)) continue;
        fputs("<tr>", f);
        text_cell(f, mt_options[id].key);
        for (int i = 0; i < r->n; i++) text_cell(f, mt_value_text(&mt_options[id], &r->run[i].cfg, value));
        fputs("</tr>\n", f);
    }
    fputs("</table>\n</div>\n</section>\n", f);
}

static mt_status write_page(FILE *f, const struct report *r, mt_err *e)
{
    char title[160];
    if (r->n == 1)
        snprintf(title, sizeof title, "Run: %s", r->run[0].name);
    else
        snprintf(title, sizeof title, "%d runs", r->n);
    mt_page_begin(f, title);
    fputs("<h1>", f);
    mt_html_text(f, title);
    fputs("</h1>\n", f);
    put_runs(f, r);
    MT_TRY(put_curves(f, r, e));
    MT_TRY(put_experts(f, r, e));
    put_traces(f, r);
    put_events(f, r);
    put_options(f, r);
    mt_page_end(f);
    return MT_OK;
}

/* ---- files ---- */
/* One picture, by its place among the curves; behind them, the two of experts. */
static mt_status draw(FILE *f, const struct report *r, int which, mt_err *e)
{
    return which < MT_N_CURVES ? mt_curve_draw(f, r->run, r->n, (enum mt_report_curve)which, true, e)
                               : mt_experts_draw(f, r->run, which > MT_N_CURVES, true, e);
}
static mt_status svg_file(const struct report *r, const char *name, int which, mt_err *e)
{
    char path[MT_CONFIG_PATH + 128];
    FILE *f;
    snprintf(path, sizeof path, "%.1023s/%s.svg", r->svg, name);
    MT_TRY(mt_print_open(&f, path, e));
    mt_status st = draw(f, r, which, e);
    mt_status closed = mt_print_close(f, path, e);
    return st == MT_OK ? closed : st;
}
/* librsvg's own program, which knows neither variables of CSS nor what a reader's system prefers. */
static mt_status png_file(const struct report *r, const char *name, int which, mt_err *e)
{
    char path[MT_CONFIG_PATH + 128], out[MT_CONFIG_PATH + 160];
    char *drawn = NULL, *plain = NULL;
    size_t bytes;
    struct mt_spawned x;
    snprintf(path, sizeof path, "%.1023s/%s.png", r->png, name);
    snprintf(out, sizeof out, "--output=%s", path);
    const char *const argv[] = {"rsvg-convert", "--format=png", "--zoom=2", out, NULL};
    FILE *f = open_memstream(&drawn, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for a picture");
    mt_status st = draw(f, r, which, e);
    fclose(f);
    f = st == MT_OK ? open_memstream(&plain, &bytes) : NULL;
    if (f) {
        mt_svg_resolved(f, drawn);
        fclose(f);
        st = mt_spawn(&x, argv, plain, e);
        if (st == MT_OK && x.code)
            st = mt_err_set(e, MT_IO, "%s: rsvg-convert cannot write it (exit code %d): %.300s", path, x.code,
                            x.err);
    }
    free(drawn);
    free(plain);
    return st;
}

static mt_status each_picture(const struct report *r, const char *folder,
                              mt_status (*file)(const struct report *, const char *, int, mt_err *),
                              mt_err *e)
{
    MT_TRY(mt_make_folders(folder, e));
    for (int c = 0; c < MT_N_CURVES; c++)
        if (mt_curve_there(r->run, r->n, (enum mt_report_curve)c))
            MT_TRY(file(r, mt_curve_file((enum mt_report_curve)c), c, e));
    if (r->n > 1 || !r->run[0].n_experts) return MT_OK;
    MT_TRY(file(r, "experts", MT_N_CURVES, e));
    return file(r, "experts-over-steps", MT_N_CURVES + 1, e);
}
/* Asked before anything is written. */
static mt_status find_converter(mt_err *e)
{
    struct mt_spawned x;
    mt_err why = {0};
    const char *const argv[] = {"rsvg-convert", "--version", NULL};
    MT_REQUIRE(
        mt_spawn(&x, argv, NULL, &why) == MT_OK && !x.code, e, MT_CONFIG,
        "report: --png needs librsvg's program rsvg-convert, and %s; install it (Debian: apt-get install "
        "librsvg2-bin), or take --svg",
        why.code ? why.msg : "it fails here");
    return MT_OK;
}

static mt_status write_report(const struct report *r, mt_err *e)
{
    FILE *f;
    MT_TRY(mt_print_open(&f, r->out, e));
    mt_status st = write_page(f, r, e), closed = mt_print_close(f, r->out, e);
    if (st == MT_OK) st = closed;
    if (st == MT_OK && r->svg) st = each_picture(r, r->svg, svg_file, e);
    if (st == MT_OK && r->png) st = each_picture(r, r->png, png_file, e);
    if (st == MT_OK && strcmp(r->out, "-") != 0)
        mt_say("report    %d run%s: %s\n", r->n, r->n > 1 ? "s" : "", r->out);
    return st;
}

mt_status mt_cmd_report(int argc, char **argv, mt_err *e)
{
    struct report r;
    MT_TRY(read_arguments(argc, argv, &r, e));
    if (r.png) MT_TRY(find_converter(e));
    r.run = calloc((size_t)r.n, sizeof *r.run);
    mt_status st = r.run ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d runs", r.n);
    for (int i = 0; i < r.n && st == MT_OK; i++) st = mt_report_read(&r.run[i], r.dir[i], e);
    if (st == MT_OK) {
        tell_apart(&r);
        st = write_report(&r, e);
    }
    for (int i = 0; i < r.n && r.run; i++) mt_report_release(&r.run[i]);
    free(r.run);
    return st;
}
