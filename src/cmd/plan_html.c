#include "cmd/plan_html.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "cmd/html.h"
#include "cmd/plan_draw.h"

enum { MOST_KEY = 128 };
struct page {
    FILE *f;
    const struct mt_plan_report *r;
    const struct mt_timeline *line;
    const cJSON *json; /* the report: every number comes from there */
};

/* ---- numbers ---- */
/* "traffic.shard.net.sent_bytes_mean"; in a list, the index. */
static const cJSON *look_up(const cJSON *o, const char *key)
{
    char part[MOST_KEY];
    while (o && *key) {
        size_t n = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, key);
        o = cJSON_IsArray(o) ? cJSON_GetArrayItem(o, (int)strtol(part, NULL, 10))
                             : cJSON_GetObjectItemCaseSensitive(o, part);
        key += n + (key[n] == '.');
    }
    MT_ASSERT(o);
    return o;
}
/* A number of the report by its key, in units of `unit`. */
static void put(const struct page *p, const char *key, double unit, int digits)
{
    double v = look_up(p->json, key)->valuedouble;
    fputs("<data data-key=\"", p->f);
    mt_html_text(p->f, key);
    fprintf(p->f, "\" value=\"%.17g\">%.*f</data>", v, digits, v / unit);
}
static void put_word(const struct page *p, const char *key)
{
    const cJSON *x = look_up(p->json, key);
    const char *word = cJSON_IsString(x) ? x->valuestring : cJSON_IsTrue(x) ? "true" : "false";
    fputs("<data data-key=\"", p->f);
    mt_html_text(p->f, key);
    fputs("\" value=\"", p->f);
    mt_html_text(p->f, word);
    fputs("\">", p->f);
    mt_html_text(p->f, cJSON_IsString(x) ? word : cJSON_IsTrue(x) ? "yes" : "no");
    fputs("</data>", p->f);
}
static void cell(const struct page *p, double unit, int digits, const char *fmt, ...) MT_PRINTF(4, 5);
static void cell(const struct page *p, double unit, int digits, const char *fmt, ...)
{
    char key[MOST_KEY];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(key, sizeof key, fmt, ap);
    va_end(ap);
    fputs("<td class=\"n\">", p->f);
    put(p, key, unit, digits);
    fputs("</td>", p->f);
}
static void text_cell(const struct page *p, const char *text)
{
    fputs("<td>", p->f);
    mt_html_text(p->f, text);
    fputs("</td>", p->f);
}

/* ---- the top ---- */
static const double GIB = 1 << 30;

static void card(const struct page *p, const char *key, double unit, int digits, const char *after,
                 const char *what)
{
    fputs("<div class=\"card\"><b>", p->f);
    put(p, key, unit, digits);
    fprintf(p->f, "%s</b><span>%s</span></div>\n", after, what);
}

static void put_cards(const struct page *p)
{
    fputs("<div class=\"cards\">\n", p->f);
    card(p, "step_s", 1, 2, " s", "a step");
    card(p, "tokens_per_s_per_gpu", 1, 1, "", "tokens a second on each rank");
    card(p, "mfu", 0.01, 1, "%", "MFU, causal attention");
    card(p, "device_peak_bytes", GIB, 2, " GiB", "device memory of a rank");
    card(p, "host_peak_bytes", GIB, 2, " GiB", "host memory of a rank");
    card(p, "exposed_communication_s", 1, 2, " s", "communication that is not hidden");
    fputs("</div>\n", p->f);
}

static void put_head(const struct page *p)
{
    const struct mt_plan_report *r = p->r;
    const struct mt_shape *d = &r->f->s.rank[0].model.shape;
    static const char *const arena[] = {"device", "host"};
    char title[MT_CONFIG_PATH + 8];
    snprintf(title, sizeof title, "Plan: %s", r->ask->config);
    mt_page_begin(p->f, title);
    fputs("<h1>Plan of ", p->f);
    put_word(p, "config");
    fputs("</h1>\n<p>", p->f);
    put_word(p, "cluster");
    mt_html_printf(p->f,
                   ": %d ranks on nodes of %lld. %lld layers, width %lld, %lld experts top-%lld; sequences "
                   "of %lld tokens.",
                   r->f->o.world, (long long)r->f->cfg->mesh_ranks_per_node, (long long)d->L, (long long)d->D,
                   (long long)d->E, (long long)d->K, (long long)d->S);
    fputs(" Bytes are those of a run; times are a model's.</p>\n", p->f);
    for (int a = 0; a < MT_N_ARENAS; a++) {
        int64_t over = r->f->s.plan.peak[a] - r->limit[a];
        if (over <= 0) continue;
        fputs("<p class=\"bad\">", p->f);
        mt_html_printf(p->f, "Does not fit: %.2f GiB of %s memory too many on each rank.", (double)over / GIB,
                       arena[a]);
        fputs("</p>\n", p->f);
    }
    put_cards(p);
}

/* ---- pictures ---- */
static void heading(const struct page *p, const char *text, const char *what)
{
    fprintf(p->f, "<section>\n<h2>%s</h2>\n<p>%s</p>\n", text, what);
}

static void put_key(const struct page *p)
{
    fputs("<div class=\"key\">\n", p->f);
    for (int ink = 0; ink < MT_N_INKS; ink++) {
        if (ink == MT_INK_OF_STANDS + MT_STAND_HOST) continue;
        fprintf(p->f,
                "<span><svg viewBox=\"0 0 11 11\" aria-hidden=\"true\"><rect class=\"c%d\" width=\"11\" "
                "height=\"11\"/></svg>%s</span>\n",
                ink, mt_ink_text(ink));
    }
    fputs("<span>faint: the compute stream stands still for it, or it waits for other ranks; blank: nothing "
          "to do, or waits for the compute stream</span>\n</div>\n",
          p->f);
}

static mt_status put_streams(const struct page *p, mt_err *e)
{
    struct mt_window w[MT_MOST_WINDOWS];
    int n = mt_picture_windows(p->line, w);
    char text[96];
    snprintf(text, sizeof text, "Time line of rank %d", p->line->rank);
    heading(
        p, text,
        "What each stream does. A column of pixels shows what takes most of its time at work; as many are "
        "blank as the stream is idle for. Point at a stretch "
        "for its operations.");
    put_key(p);
    for (int i = 0; i < n; i++) {
        fprintf(p->f, "<h3>%s</h3>\n", w[i].text);
        MT_TRY(mt_draw_streams(p->f, p->line, &w[i], e));
    }
    fputs("</section>\n", p->f);
    return MT_OK;
}

static mt_status put_memory(const struct page *p, mt_err *e)
{
    static const char *const title[] = {"Device", "Host"};
    struct mt_filling *m = calloc(1, sizeof *m);
    mt_status st = m ? MT_OK : mt_err_set(e, MT_IO, "no memory for a picture");
    heading(p, "Memory over the step",
            "What is held at each moment of the rank above, by class. The arena is what the layout takes: "
            "above the most held, where pieces leave gaps or streams may overlap otherwise than here.");
    for (int a = 0; a < MT_N_ARENAS && st == MT_OK; a++) {
        int64_t peak = p->r->f->s.plan.peak[a];
        if (!peak) continue;
        fprintf(p->f, "<h3>%s</h3>\n", title[a]);
        st = mt_picture_memory(p->line, (enum mt_arena)a, m, e);
        if (st == MT_OK) mt_draw_memory(p->f, m, mt_timeline_length(p->line), peak, p->r->limit[a], title[a]);
    }
    free(m);
    fputs("</section>\n", p->f);
    return st;
}

/* ---- tables ---- */
/* Rows of one number each. unit 0: a word. */
struct line {
    const char *key, *text, *after;
    double unit;
    int digits;
};
static void put_lines(const struct page *p, const char *title, const struct line *x, int n)
{
    fprintf(p->f, "<div>\n<h3>%s</h3>\n<table>\n", title);
    for (int i = 0; i < n; i++) {
        if (!cJSON_HasObjectItem(p->json, x[i].key) && !strchr(x[i].key, '.')) continue;
        fprintf(p->f, "<tr><td>%s</td><td class=\"n\">", x[i].text);
        if (x[i].unit > 0)
            put(p, x[i].key, x[i].unit, x[i].digits);
        else
            put_word(p, x[i].key);
        fprintf(p->f, "%s</td></tr>\n", x[i].after);
    }
    fputs("</table>\n</div>\n", p->f);
}

static void put_job(const struct page *p)
{
    static const struct line job[] = {{"target", "target", "", 0, 0},
                                      {"ranks", "ranks", "", 1, 0},
                                      {"ranks_per_node", "ranks of a node", "", 1, 0},
                                      {"micro_batches", "micro-batches of a rank", "", 1, 0},
                                      {"tokens_per_step", "tokens of a step", " million", 1e6, 3},
                                      {"params_total", "parameters", " billion", 1e9, 3},
                                      {"params_active", "parameters that a token meets", " billion", 1e9, 3},
                                      {"collectives", "collectives", "", 0, 0},
                                      {"documents", "documents", "", 0, 0},
                                      {"document_mean", "their mean length", " tokens", 1, 0},
                                      {"document_sigma", "sigma of its logarithm", "", 1, 2},
                                      {"imbalance", "costliest rank over the mean", "", 1, 3},
                                      {"imbalance_in_order", "the same in the order of the data", "", 1, 3},
                                      {"skew", "sigma of experts' popularity", "", 1, 2},
                                      {"seed", "seed", "", 1, 0}};
    static const struct line result[] = {
        {"fits", "fits", "", 0, 0},
        {"device_limit_bytes", "device memory, limit", " GiB", 1 << 30, 2},
        {"host_limit_bytes", "host memory, limit", " GiB", 1 << 30, 2},
        {"mfu_full_attention", "MFU, full squares", "%", 0.01, 1},
        {"routing", "choice of experts", "", 0, 0},
        {"balanced_step_s", "a step, were it balanced", " s", 1, 3},
        {"balanced_tokens_per_s_per_gpu", "tokens a second and rank then", "", 1, 1},
        {"balanced_mfu", "MFU then", "%", 0.01, 1},
        {"bound", "bound", "", 0, 0},
        {"compute_s", "computing", " s", 1, 3},
        {"checkpoint_bytes", "checkpoint", " TB", 1e12, 3},
        {"checkpoint_s", "to write it", " s", 1, 1},
        {"local_node_bytes", "local checkpoints on a node", " GiB", 1 << 30, 2},
        {"local_sent_bytes", "sent for one to the buddy", " GiB", 1 << 30, 2},
        {"local_steps", "in so many steps", "", 1, 0},
        {"local_slice_s", "a slice of it", " s", 1, 3},
        {"joules_per_token", "energy of a token", " J", 1, 3},
        {"cost_per_million_tokens", "cost of a million tokens", "", 1, 4},
        {"simulated_operations", "operations simulated", "", 1, 0},
        {"simulated_programs", "different programs", "", 1, 0}};
    fputs("<section>\n<h2>Numbers</h2>\n<div class=\"pair\">\n", p->f);
    put_lines(p, "Job", job, sizeof job / sizeof *job);
    put_lines(p, "Result", result, sizeof result / sizeof *result);
    fputs("</div>\n", p->f);
}

/* The members of an object of seconds. */
static void put_seconds(const struct page *p, const char *title, const char *object)
{
    fprintf(p->f, "<div>\n<h3>%s</h3>\n<table>\n<tr><th></th><th class=\"n\">s</th></tr>\n", title);
    for (const cJSON *x = look_up(p->json, object)->child; x; x = x->next) {
        fputs("<tr>", p->f);
        text_cell(p, x->string);
        cell(p, 1, 3, "%s.%s", object, x->string);
        fputs("</tr>\n", p->f);
    }
    fputs("</table>\n</div>\n", p->f);
}

static void put_classes(const struct page *p)
{
    int n = 0;
    fputs("<div>\n<h3>Memory of a rank when it is fullest, GiB</h3>\n<table>\n"
          "<tr><th>class</th><th class=\"n\">device</th><th class=\"n\">host</th></tr>\n",
          p->f);
    for (const cJSON *x = look_up(p->json, "memory")->child; x; x = x->next, n++) {
        fputs("<tr>", p->f);
        text_cell(p, cJSON_GetObjectItem(x, "class")->valuestring);
        cell(p, GIB, 3, "memory.%d.device_bytes", n);
        cell(p, GIB, 3, "memory.%d.host_bytes", n);
        fputs("</tr>\n", p->f);
    }
    fputs("</table>\n</div>\n", p->f);
}

static void put_traffic(const struct page *p)
{
    static const char *const link[] = {"node", "net"}, *const number[] = {"sent_bytes_mean",
                                                                          "sent_bytes_most",
                                                                          "received_bytes_most"};
    fputs("<div class=\"wide\">\n<h3>Traffic of a rank in a step, GiB</h3>\n<table>\n"
          "<tr><th>group</th><th class=\"n\">inside nodes: sent, mean</th><th class=\"n\">most</th>"
          "<th class=\"n\">received, most</th><th class=\"n\">between nodes: sent, mean</th>"
          "<th class=\"n\">most</th><th class=\"n\">received, most</th></tr>\n",
          p->f);
    for (const cJSON *x = look_up(p->json, "traffic")->child; x; x = x->next) {
        fputs("<tr>", p->f);
        text_cell(p, x->string);
        for (int l = 0; l < 2; l++)
            for (int i = 0; i < 3; i++) cell(p, GIB, 3, "traffic.%s.%s.%s", x->string, link[l], number[i]);
        fputs("</tr>\n", p->f);
    }
    fputs("</table>\n</div>\n", p->f);
}

static void put_cluster(const struct page *p, const struct mt_plan_effects *x)
{
    const struct mt_cluster *c = &p->r->ask->cluster;
    char effect[160];
    heading(
        p, "Numbers of the machine",
        x->known
            ? "Assumed ones with the step time if they were 20% lower, and 20% higher, and what else changes."
            : "Each with its source; assumed ones have none. --assumptions adds what they matter.");
    fprintf(p->f,
            "<div class=\"wide\">\n<table>\n<tr><th>number</th><th "
            "class=\"n\">value</th><th>unit</th>%s<th>source</th></tr>\n",
            x->known ? "<th class=\"n\">-20%</th><th class=\"n\">+20%</th><th>besides</th>" : "");
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) {
        bool assumed = mt_cluster_assumed(c, (enum mt_cluster_key)k);
        fputs("<tr>", p->f);
        text_cell(p, mt_cluster_rows[k].key);
        fprintf(p->f, "<td class=\"n\">%.6g</td>", c->of[k].value);
        text_cell(p, mt_cluster_rows[k].unit);
        for (int i = 0; i < 2 && x->known && assumed; i++) {
            mt_plan_effect_step(x, p->r, k, i, effect, sizeof effect);
            fprintf(p->f, "<td class=\"n\">%s</td>", effect);
        }
        if (x->known && assumed) {
            mt_plan_effect_rest(x, p->r, k, effect, sizeof effect);
            text_cell(p, effect);
        } else if (x->known) {
            fputs("<td></td><td></td><td></td>", p->f);
        }
        text_cell(p, c->of[k].source);
        fputs("</tr>\n", p->f);
    }
    fputs("</table>\n</div>\n</section>\n", p->f);
}

static mt_status write_page(const struct page *p, const struct mt_plan_effects *x, mt_err *e)
{
    put_head(p);
    heading(p, "Where the time of a step goes", "The compute stream, mean over the ranks.");
    mt_draw_time(p->f, p->r);
    fputs("</section>\n", p->f);
    MT_TRY(put_streams(p, e));
    MT_TRY(put_memory(p, e));
    heading(p, "Traffic", "What a rank sends in a step: mean over the ranks, and a mark at the most.");
    mt_draw_traffic(p->f, p->r);
    fputs("</section>\n", p->f);
    put_job(p);
    fputs("<div class=\"pair\">\n", p->f);
    put_seconds(p, "Computing", "compute_by_kind_s");
    put_seconds(p, "Standing still, by cause", "idle_by_cause_s");
    put_seconds(p, "Floors", "floors_s");
    put_classes(p);
    fputs("</div>\n", p->f);
    put_traffic(p);
    fputs("</section>\n", p->f);
    put_cluster(p, x);
    mt_page_end(p->f);
    return MT_OK;
}

mt_status mt_plan_html(const struct mt_plan_report *r, const struct mt_plan_effects *x,
                       const struct mt_timeline *line, const char *path, mt_err *e)
{
    cJSON *json = mt_plan_report_object(r);
    struct page p = {.r = r, .line = line, .json = json};
    mt_status st = mt_print_open(&p.f, path, e);
    if (st == MT_OK) {
        st = write_page(&p, x, e);
        mt_status closed = mt_print_close(p.f, path, e);
        if (st == MT_OK) st = closed;
    }
    cJSON_Delete(json);
    return st;
}
