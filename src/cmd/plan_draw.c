#include "cmd/plan_draw.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/html.h"
#include "device/order.h"

/* Labels on the left, columns from LEFT, what is said of each row on the right. */
enum { WIDTH = 1150, LEFT = 84, RIGHT = LEFT + MT_COLUMNS, ROW = 30, BAR = 22, TIP = 256 };

static double gib(double bytes)
{
    return bytes / (1 << 30);
}

/* ---- axes ---- */
struct scale {
    double per; /* of the unit in a second */
    const char *unit;
};
static struct scale scale_of(double seconds)
{
    return seconds >= 2      ? (struct scale){1, "s"}
           : seconds >= 2e-3 ? (struct scale){1e3, "ms"}
                             : (struct scale){1e6, "µs"};
}

/* Ticks of time below `bottom`; from: of the first column, since the step began. */
static void time_axis(FILE *f, int64_t from, int64_t to, double top, double bottom)
{
    double length = 1e-9 * (double)(to - from), begin = 1e-9 * (double)from;
    struct scale u = scale_of(length);
    double step = mt_tick_step(length * u.per, 8);
    for (int i = 0; i * step <= length * u.per * 1.0001; i++) {
        double x = LEFT + i * step / (length * u.per) * MT_COLUMNS;
        mt_svg_line(f, "grid", x, top, x, bottom);
        mt_svg_text(f, "tick mid", x, bottom + 14, i ? "%g" : "%g %s", i * step, u.unit);
    }
    if (from > 0) mt_svg_text(f, "tick", RIGHT + 12, bottom + 14, "from %.6g s on", begin);
}

/* ---- streams ---- */
static void run_tip(const struct mt_timeline *t, const struct mt_window *w, const struct mt_run *r, char *out)
{
    double per = 1e-9 * (double)(w->to - w->from) / MT_COLUMNS,
           begin = 1e-9 * (double)w->from + per * r->from;
    struct scale u = scale_of(per * (r->to - r->from));
    const struct mt_rec *rec = &t->q->rec[r->longest];
    bool waits = r->ink >= MT_N_INKS;
    int n = snprintf(out, TIP, "%s%s\nfrom %.6g s, %.4g %s", waits ? "waits: " : "",
                     mt_ink_text(r->ink % MT_N_INKS), begin, per * u.per * (r->to - r->from), u.unit);
    if (!waits && n < TIP)
        snprintf(out + n, (size_t)(TIP - n), "\n%lld operation%s begin; the longest: %s, %.4g ms",
                 (long long)r->operations, r->operations == 1 ? "" : "s", mt_rec_name(rec),
                 1e-6 * (double)(t->end[r->longest] - mt_timeline_moved(t, r->longest)));
}

/* Names lie on their stretch: dark on light colours. */
static const char *name_style(int ink)
{
    if (ink >= MT_N_INKS) return "over mid";
    bool light = ink == mt_ink_of_work(MT_WORK_ATTENTION) || ink == mt_ink_of_work(MT_WORK_ROWS) ||
                 ink == MT_INK_OF_STANDS + MT_STAND_DISPATCH;
    return light ? "dark mid" : "in mid";
}

/* Runs too short to point at: one path for each colour. */
static void short_runs(FILE *f, const struct mt_run *run, int n, double y)
{
    enum { SHORT = 4 };
    for (int ink = 0; ink < 2 * MT_N_INKS; ink++) {
        bool any = false;
        for (int i = 0; i < n; i++) {
            int width = run[i].to - run[i].from;
            if (run[i].ink != ink || width >= SHORT) continue;
            if (!any) fprintf(f, "<path class=\"c%d%s\" d=\"", ink % MT_N_INKS, ink < MT_N_INKS ? "" : " w");
            fprintf(f, "M%d %gh%dv%dh-%dz", LEFT + run[i].from, y, width, BAR, width);
            any = true;
        }
        if (any) fputs("\"/>\n", f);
    }
}
static void long_runs(FILE *f, const struct mt_timeline *t, const struct mt_window *w,
                      const struct mt_run *run, int n, double y)
{
    enum { LONG = 4, LABEL = 7 }; /* pixels a letter */
    char tip[TIP], style[24];
    for (int i = 0; i < n; i++) {
        int width = run[i].to - run[i].from;
        const char *text = mt_ink_text(run[i].ink % MT_N_INKS);
        if (width < LONG) continue;
        run_tip(t, w, &run[i], tip);
        snprintf(style, sizeof style, "c%d%s", run[i].ink % MT_N_INKS, run[i].ink < MT_N_INKS ? "" : " w");
        mt_svg_rect(f, style, LEFT + run[i].from, y, width, BAR, tip);
        if (width > LABEL * (int)strlen(text))
            mt_svg_text(f, name_style(run[i].ink), LEFT + run[i].from + 0.5 * width, y + 15, "%s", text);
    }
}

/* The share of the part's time in which the stream worked or moved. */
static double at_work(const struct mt_timeline *t, int stream, const struct mt_window *w)
{
    double sum = 0;
    for (int64_t i = 0; i < t->q->n; i++) {
        const struct mt_rec *r = &t->q->rec[i];
        if (r->stream != stream || r->op == MT_OP_wait) continue;
        int64_t from = mt_timeline_moved(t, i), to = t->end[i];
        if (from < w->from) from = w->from;
        if (to > w->to) to = w->to;
        if (to > from) sum += (double)(to - from);
    }
    return sum / (double)(w->to - w->from);
}

static bool has_stream(const struct mt_timeline *t, int stream)
{
    for (int64_t i = 0; i < t->q->n; i++)
        if (t->q->rec[i].stream == stream) return true;
    return false;
}

mt_status mt_draw_streams(FILE *f, const struct mt_timeline *t, const struct mt_window *w, mt_err *e)
{
    struct mt_run *run = calloc(MT_COLUMNS, sizeof *run);
    int rows = 0, n;
    double y = 4;
    mt_status st = run ? MT_OK : mt_err_set(e, MT_IO, "no memory for a picture");
    for (int s = 0; s < MT_N_STREAMS; s++) rows += has_stream(t, s);
    mt_svg_begin(f, WIDTH, rows * ROW + 24, w->text);
    time_axis(f, w->from, w->to, 0, rows * ROW);
    for (int s = 0; s < MT_N_STREAMS && st == MT_OK; s++) {
        if (!has_stream(t, s)) continue;
        st = mt_picture_stream(t, s, w, run, &n, e);
        mt_svg_text(f, "row end", LEFT - 10, y + 15, "%s", mt_stream_name(s));
        if (st == MT_OK) {
            short_runs(f, run, n, y);
            long_runs(f, t, w, run, n, y);
        }
        mt_svg_text(f, "tick", RIGHT + 12, y + 15, "works %.1f%% of the time", 100 * at_work(t, s, w));
        y += ROW;
    }
    mt_svg_end(f);
    free(run);
    return st;
}

/* ---- memory ---- */
enum { HEIGHT = 260, HEAD = 12 };
static double height_at(const struct mt_filling *m, int column, int upto, double most)
{
    double sum = 0;
    for (int c = 0; c < upto; c++) sum += (double)m->held[column][c];
    return HEAD + HEIGHT * (1 - sum / most);
}

/* The colours of the streams where they fill the rows: gathered weights, gradients on their way, copies of activations. */
static int ink_of_class(int c)
{
    static const int8_t ink[MT_N_ROW_CLASSES] = {[MT_ROW_WEIGHT] = 0,
                                                 [MT_ROW_MASTER] = 1,
                                                 [MT_ROW_MOMENT] = 2,
                                                 [MT_ROW_GRAD] = 3,
                                                 [MT_ROW_TABLE] = 4,
                                                 [MT_ROW_BATCH] = 5,
                                                 [MT_ROW_SCRATCH] = 8,
                                                 [MT_ROW_LOSS] = 11,
                                                 [MT_ROW_ROUTING] = 13,
                                                 [MT_ROW_OPTIM] = 9,
                                                 [MT_ROW_LIBRARY] = 9,
                                                 [MT_ROW_GATHERED] = MT_INK_OF_STANDS + MT_STAND_WEIGHTS,
                                                 [MT_ROW_STAGING] = MT_INK_OF_STANDS + MT_STAND_GRADIENTS,
                                                 [MT_ROW_ACTIVATION] = MT_INK_OF_STANDS + MT_STAND_COPIES};
    return ink[c];
}

/* A class's layer: its upper edge from left to right, its lower edge back. */
static void layer(FILE *f, const struct mt_filling *m, int class_, double most)
{
    double y = -1;
    fprintf(f, "<path class=\"c%d\" d=\"M%d %d", ink_of_class(class_), LEFT, HEAD + HEIGHT);
    for (int i = 0; i < MT_COLUMNS; i++) {
        double now = height_at(m, i, class_ + 1, most);
        if (now != y) fprintf(f, "H%dV%.1f", LEFT + i, now);
        y = now;
    }
    fprintf(f, "H%d", RIGHT);
    y = -1;
    for (int i = MT_COLUMNS - 1; i >= 0; i--) {
        double now = height_at(m, i, class_, most);
        if (now != y) fprintf(f, "H%dV%.1f", LEFT + i + 1, now);
        y = now;
    }
    fprintf(f, "H%dZ\"><title>", LEFT);
    mt_html_printf(f, "%s\n%.3f GiB when the arena is fullest", mt_row_class_text((enum mt_row_class)class_),
                   gib((double)m->held[m->fullest][class_]));
    fputs("</title></path>\n", f);
}

/* Names of the classes in the order of their layers, from the top. */
static void layer_names(FILE *f, const struct mt_filling *m, const bool *shown)
{
    double y = HEAD + 8;
    for (int c = MT_N_ROW_CLASSES - 1; c >= 0; c--) {
        if (!shown[c]) continue;
        char style[24];
        snprintf(style, sizeof style, "c%d", ink_of_class(c));
        mt_svg_rect(f, style, RIGHT + 12, y - 9, 10, 10, NULL);
        mt_svg_text(f, "tick end", RIGHT + 62, y, "%.1f", gib((double)m->held[m->fullest][c]));
        mt_svg_text(f, "tick", RIGHT + 67, y, "%s", mt_row_class_text((enum mt_row_class)c));
        y += 18;
    }
    mt_svg_text(f, "tick", RIGHT + 12, y + 4, "GiB when fullest");
}

static double height_of(double bytes, double most)
{
    return HEAD + HEIGHT * (1 - bytes / most);
}
/* The layout's size and, if `near`, the limit, whose names do not meet. */
static void marks(FILE *f, double peak, double limit, bool near, double most)
{
    enum { TEXT = 15 };
    double y = height_of(peak, most), high = height_of(limit, most), name = y - 4;
    if (near && y > high && y - high < TEXT) name = high - 4;
    mt_svg_line(f, "peak", LEFT, y, RIGHT, y);
    mt_svg_text(f, "end", RIGHT - 6, name, "arena %.2f GiB", gib(peak));
    if (!near) return;
    mt_svg_line(f, "limit", LEFT, high, RIGHT, high);
    mt_svg_text(f, "over", LEFT + 6, high - 4, "limit %.2f GiB", gib(limit));
}

void mt_draw_memory(FILE *f, const struct mt_filling *m, int64_t length, int64_t peak, int64_t limit,
                    const char *label)
{
    bool shown[MT_N_ROW_CLASSES] = {false};
    /* A limit far above would flatten all else: then it is not drawn. */
    bool near = limit < 8 * peak;
    double most = 1.06 * (double)(near && limit > peak ? limit : peak), step = mt_tick_step(gib(most), 5);
    mt_svg_begin(f, WIDTH, HEAD + HEIGHT + 24, label);
    for (int i = 0; i * step < gib(most); i++) {
        double y = HEAD + HEIGHT * (1 - i * step / gib(most));
        mt_svg_line(f, "grid", LEFT, y, RIGHT, y);
        mt_svg_text(f, "tick end", LEFT - 10, y + 4, i ? "%g" : "%g GiB", i * step);
    }
    time_axis(f, 0, length, HEAD + HEIGHT, HEAD + HEIGHT);
    for (int c = 0; c < MT_N_ROW_CLASSES; c++)
        for (int i = 0; i < MT_COLUMNS && !shown[c]; i++) shown[c] = (double)m->held[i][c] > 2e-3 * most;
    for (int c = 0; c < MT_N_ROW_CLASSES; c++)
        if (shown[c]) layer(f, m, c, most);
    marks(f, (double)peak, (double)limit, near, most);
    layer_names(f, m, shown);
    mt_svg_end(f);
}

/* ---- bars ---- */
enum { NAME = 300, LONGEST = 560, LINE = 22 };
static double bar(FILE *f, double y, int ink, const char *name, double value, double most, double mark_at,
                  const char *text)
{
    char style[24];
    snprintf(style, sizeof style, "c%d", ink);
    mt_svg_text(f, "row end", NAME - 10, y + 13, "%s", name);
    mt_svg_rect(f, style, NAME, y + 2, value / most * LONGEST, LINE - 8, text);
    if (mark_at > value)
        mt_svg_line(f, "mark", NAME + mark_at / most * LONGEST, y + 1, NAME + mark_at / most * LONGEST,
                    y + LINE - 5);
    double right = (mark_at > value ? mark_at : value) / most * LONGEST;
    mt_svg_text(f, "tick", NAME + right + 8, y + 13, "%s", text);
    return y + LINE;
}

struct part {
    int ink;
    bool waits;
    const char *name;
    double seconds;
};
static int time_parts(const struct mt_plan_report *r, struct part *out)
{
    const double least = 5e-4 * r->t->step_s; /* as the table for the terminal */
    int n = 0;
    for (int k = 1; k < MT_N_WORK_KINDS; k++)
        if (r->t->mean.busy[k] > least)
            out[n++] = (struct part){mt_ink_of_work((enum mt_work_kind)k), false,
                                     mt_work_kind_name((enum mt_work_kind)k), r->t->mean.busy[k]};
    for (int i = 0; i < MT_N_STANDS; i++)
        if (r->t->mean.idle[i] > least)
            out[n++] = (struct part){MT_INK_OF_STANDS + i, true, mt_stand_text((enum mt_stand)i),
                                     r->t->mean.idle[i]};
    return n;
}

/* All parts in one bar as long as the step. */
static void whole_bar(FILE *f, const struct part *part, int n, double step_s, double most)
{
    double x = NAME;
    char style[24], tip[TIP];
    for (int i = 0; i < n; i++) {
        double width = part[i].seconds / most * LONGEST;
        snprintf(style, sizeof style, "c%d%s", part[i].ink, part[i].waits ? " w" : "");
        snprintf(tip, sizeof tip, "%s%s: %.3f s", part[i].waits ? "waits for " : "", part[i].name,
                 part[i].seconds);
        mt_svg_rect(f, style, x, 2, width, 24, tip);
        x += width;
    }
    mt_svg_text(f, "row end", NAME - 10, 19, "the step");
    mt_svg_text(f, "tick", NAME + step_s / most * LONGEST + 8, 19, "%.3f s", step_s);
}

void mt_draw_time(FILE *f, const struct mt_plan_report *r)
{
    static const char *const floor_text[MT_N_BOUNDS] = {
#define X(name, key, text) text,
        MT_PLAN_BOUNDS(X)
#undef X
    };
    struct part part[MT_N_WORK_KINDS + MT_N_STANDS];
    char text[96], name[96];
    int n = time_parts(r, part);
    double step_s = r->t->step_s, most = step_s, y = 34;
    for (int b = 0; b < MT_N_BOUNDS; b++)
        if (r->floor[b] > most) most = r->floor[b];
    mt_svg_begin(f, WIDTH, y + LINE * (n + MT_N_BOUNDS) + 62, "Where the time of a step goes");
    whole_bar(f, part, n, step_s, most);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.3f s, %.1f%%", part[i].seconds, 100 * part[i].seconds / step_s);
        snprintf(name, sizeof name, "%s%s", part[i].waits ? "waits for " : "", part[i].name);
        y = bar(f, y, part[i].ink, name, part[i].seconds, most, 0, text);
    }
    mt_svg_text(f, "head end", NAME - 10, y + 34, "what each resource takes alone");
    y += 44;
    for (int b = 0; b < MT_N_BOUNDS; b++) {
        snprintf(text, sizeof text, "%.3f s%s", r->floor[b], b == (int)r->bound ? ": the bound" : "");
        y = bar(f, y, b == (int)r->bound ? 7 : 4, floor_text[b], r->floor[b], most, 0, text);
    }
    mt_svg_end(f);
}

void mt_draw_traffic(FILE *f, const struct mt_plan_report *r)
{
    static const char *const where[MT_N_LINKS] = {"inside nodes", "between nodes"};
    double most = 1, y = 2;
    int rows = 0;
    char text[96], name[64];
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int l = 0; l < MT_N_LINKS; l++) {
            if (!r->sent_most[g][l]) continue;
            rows++;
            if ((double)r->sent_most[g][l] > most) most = (double)r->sent_most[g][l];
        }
    mt_svg_begin(f, WIDTH, rows * LINE + 6, "Bytes that a rank sends in a step, by group of ranks and link");
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int l = 0; l < MT_N_LINKS; l++) {
            if (!r->sent_most[g][l]) continue;
            snprintf(name, sizeof name, "%s, %s", mt_mesh_group_name((enum mt_group_id)g), where[l]);
            snprintf(text, sizeof text, "%.3f GiB, most %.3f", gib(r->sent_mean[g][l]),
                     gib((double)r->sent_most[g][l]));
            y = bar(f, y, l == MT_LINK_NET ? 6 : 0, name, r->sent_mean[g][l], most,
                    (double)r->sent_most[g][l], text);
        }
    mt_svg_end(f);
}
