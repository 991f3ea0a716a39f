#include "cmd/report_read.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = MT_CONFIG_PATH + 280 };

static mt_status no_memory(mt_err *e)
{
    return mt_err_set(e, MT_IO, "no memory for a report");
}
/* Room for one more at the end of a list of n; grows by doubling. */
static bool grow(void *list, int n, size_t size)
{
    void **at = list;
    if (n & (n - 1)) return true;
    void *more = realloc(*at, (size_t)(n ? 2 * n : 1) * size);
    if (more) *at = more;
    return more != NULL;
}
static const char *string(const cJSON *o, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(x) ? x->valuestring : "";
}
static double number(const cJSON *o, const char *key, double otherwise)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(x) && fabs(x->valuedouble) < 9e15 ? x->valuedouble : otherwise;
}

/* ---- events ---- */
static mt_status add_event(struct mt_report_run *r, int64_t step, const char *kind, const char *time,
                           const char *text, mt_err *e)
{
    if (!grow(&r->event, r->n_events, sizeof *r->event)) return no_memory(e);
    struct mt_report_event *x = &r->event[r->n_events++];
    x->step = step;
    snprintf(x->kind, sizeof x->kind, "%s", kind);
    snprintf(x->time, sizeof x->time, "%s", time);
    snprintf(x->text, sizeof x->text, "%s", text);
    return MT_OK;
}
static mt_status take_event(void *arg, const struct cJSON *o, mt_err *e)
{
    return add_event(arg, (int64_t)number(o, "step", 0), string(o, "event"), string(o, "time"),
                     string(o, "text"), e);
}
static mt_status take_exit(void *arg, const struct cJSON *o, mt_err *e)
{
    char text[256];
    if (!(number(o, "code", 0) > 0)) return MT_OK; /* a good end has its event */
    snprintf(text, sizeof text, "%s (exit code %.0f): %s", string(o, "name"), number(o, "code", 0),
             string(o, "message"));
    return add_event(arg, (int64_t)number(o, "step", 0), "exit", string(o, "time"), text, e);
}
static mt_status take_skips(struct mt_report_run *r, mt_err *e)
{
    char text[96];
    for (int64_t i = 0; i < r->h.n; i++) {
        const struct mt_history_row *x = &r->h.row[i];
        if (!x->skipped) continue;
        snprintf(text, sizeof text,
                 x->back >= 0 ? "back to the weights of step %lld" : "its update was left out",
                 (long long)x->back);
        MT_TRY(add_event(r, x->step, "skipped", "", text, e));
    }
    return MT_OK;
}

/* ---- experts ---- */
/* One layer's counts as shares of their mean. False: not as many as in the other layers. */
static bool take_layer(const cJSON *counts, int width, double *share)
{
    double sum = 0;
    int n = 0;
    for (const cJSON *x = counts->child; x; x = x->next, n++) {
        if (n >= width || !cJSON_IsNumber(x)) return false;
        share[n] = x->valuedouble;
        sum += share[n];
    }
    for (int i = 0; i < n; i++) share[i] = sum > 0 ? share[i] * n / sum : (double)NAN;
    return n == width;
}
static mt_status take_experts(void *arg, const struct cJSON *o, mt_err *e)
{
    struct mt_report_run *r = arg;
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(o, "layers");
    int n = cJSON_IsObject(layers) ? cJSON_GetArraySize(layers) : 0, k = 0;
    if (!n || n > (int)(sizeof r->layer / sizeof *r->layer)) return MT_OK;
    if (!r->layers) {
        r->layers = n;
        r->width = cJSON_GetArraySize(layers->child);
        for (const cJSON *x = layers->child; x; x = x->next) r->layer[k++] = (int)strtol(x->string, NULL, 10);
    }
    if (n != r->layers || r->width < 1) return MT_OK;
    if (!grow(&r->experts, r->n_experts, sizeof *r->experts)) return no_memory(e);
    struct mt_report_experts *x = &r->experts[r->n_experts];
    x->step = (int64_t)number(o, "step", 0);
    x->share = malloc((size_t)n * (size_t)r->width * sizeof *x->share);
    if (!x->share) return no_memory(e);
    bool good = true;
    k = 0;
    for (const cJSON *y = layers->child; y && good; y = y->next, k++)
        good = take_layer(y, r->width, x->share + k * r->width);
    if (good)
        r->n_experts++;
    else
        free(x->share);
    return MT_OK;
}

/* ---- traced steps ---- */
static bool is_summary(const char *name)
{
    size_t n = strlen(name), end = strlen("-summary.json");
    return !strncmp(name, "trace-", 6) && n > end && !strcmp(name + n - end, "-summary.json");
}
static mt_status take_trace(struct mt_report_run *r, const char *path, mt_err *e)
{
    char *text = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "r");
    MT_REQUIRE(f, e, MT_IO, "cannot read '%s': %s", path, strerror(errno));
    ssize_t n = getdelim(&text, &room, 0, f); /* all of it */
    fclose(f);
    cJSON *o = n > 0 ? cJSON_ParseWithLength(text, (size_t)n) : NULL;
    free(text);
    const cJSON *causes = cJSON_GetObjectItemCaseSensitive(o, "causes");
    mt_status st = MT_OK;
    if (cJSON_IsObject(causes)) {
        if (!grow(&r->trace, r->n_traces, sizeof *r->trace))
            st = no_memory(e);
        else {
            struct mt_report_trace *t = &r->trace[r->n_traces++];
            *t = (struct mt_report_trace){.step = (int64_t)number(o, "step", 0),
                                          .mean_ms = number(o, "mean_ms", 0)};
            for (const cJSON *x = causes->child; x && t->n < MT_REPORT_CAUSES; x = x->next, t->n++) {
                snprintf(t->cause[t->n].name, sizeof t->cause[t->n].name, "%s", x->string);
                t->cause[t->n].ms = number(x, "mean_ms", 0);
                t->cause[t->n].exposed = cJSON_HasObjectItem(x, "hidden");
            }
        }
    }
    cJSON_Delete(o);
    return st;
}
static int by_step(const void *a, const void *b)
{
    const struct mt_report_trace *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}
static mt_status read_traces(struct mt_report_run *r, mt_err *e)
{
    char path[PATH];
    mt_status st = MT_OK;
    DIR *d = opendir(r->dir);
    MT_REQUIRE(d, e, MT_CONFIG, "report: cannot read the folder '%s': %s", r->dir, strerror(errno));
    for (struct dirent *x; st == MT_OK && (x = readdir(d));) {
        if (!is_summary(x->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", r->dir, x->d_name);
        st = take_trace(r, path, e);
    }
    closedir(d);
    if (r->n_traces) qsort(r->trace, (size_t)r->n_traces, sizeof *r->trace, by_step);
    return st;
}

/* ---- the folder ---- */
static int event_order(const void *a, const void *b)
{
    const struct mt_report_event *x = a, *y = b;
    /* Those of events.jsonl keep their own order, which is that of time. */
    if (*x->time && *y->time) return strcmp(x->time, y->time);
    return (x->step > y->step) - (x->step < y->step);
}
static void sort_events(struct mt_report_run *r)
{
    /* By insertion: few, nearly in order, and stable. */
    for (int i = 1; i < r->n_events; i++)
        for (int k = i; k > 0 && event_order(&r->event[k - 1], &r->event[k]) > 0; k--) {
            struct mt_report_event x = r->event[k];
            r->event[k] = r->event[k - 1];
            r->event[k - 1] = x;
        }
}

static mt_status read_files(struct mt_report_run *r, mt_err *e)
{
    char path[PATH];
    int64_t others;
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->dir);
    MT_REQUIRE(!access(path, R_OK), e, MT_CONFIG,
               "report: '%s' is no run's folder: it has no metrics.jsonl that can be read", r->dir);
    MT_TRY(mt_history_open(&r->h, path, e));
    snprintf(path, sizeof path, "%s/events.jsonl", r->dir);
    MT_TRY(mt_json_lines(path, take_event, r, &others, e));
    snprintf(path, sizeof path, "%s/exit.json", r->dir);
    MT_TRY(mt_json_lines(path, take_exit, r, &others, e));
    MT_TRY(take_skips(r, e));
    sort_events(r);
    snprintf(path, sizeof path, "%s/experts.jsonl", r->dir);
    MT_TRY(mt_json_lines(path, take_experts, r, &others, e));
    return read_traces(r, e);
}

mt_status mt_report_read(struct mt_report_run *r, const char *dir, mt_err *e)
{
    char path[PATH];
    mt_err ignored = {0};
    *r = (struct mt_report_run){.n_events = 0};
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    MT_REQUIRE(n < sizeof r->dir, e, MT_CONFIG, "report: the path is too long");
    snprintf(r->dir, sizeof r->dir, "%.*s", (int)n, dir);
    const char *slash = strrchr(r->dir, '/');
    snprintf(r->name, sizeof r->name, "%.63s", slash && slash[1] ? slash + 1 : r->dir);
    snprintf(path, sizeof path, "%s/config.yaml", r->dir);
    r->configured = mt_config_load(&r->cfg, path, 0, NULL, &ignored) == MT_OK;
    return read_files(r, e);
}

void mt_report_release(struct mt_report_run *r)
{
    mt_history_close(&r->h);
    for (int i = 0; i < r->n_experts; i++) free(r->experts[i].share);
    free(r->experts);
    free(r->event);
    free(r->trace);
}
