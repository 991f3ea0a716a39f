#include "cmd/plan_search.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "cmd/plan_report.h"
#include "config/table.h"

enum { TEXT = 1024 };

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* ---- the screen ---- */
static void print_point(const struct mt_search *s, int i, int place, FILE *out)
{
    const struct mt_point *p = &s->point[i];
    const struct mt_estimate *x = mt_point_estimate(p);
    char changes[TEXT], reason[TEXT], rate[64];
    mt_space_changes(&s->space, &p->choice, changes, sizeof changes);
    mt_search_reason(s, i, reason, sizeof reason);
    snprintf(rate, sizeof rate, "%12s %10s", "-", "-");
    if (x->rate > 0) snprintf(rate, sizeof rate, "%12.1f %10.4g", x->rate, x->step_s);
    if (p->verdict == MT_REFUSED)
        fprintf(out, "%4d  %s %10s %10s  ", place, rate, "-", "-");
    else
        fprintf(out, "%4d%c %s %10.4g %10.4g  ", place, p->whole.rate > 0 ? '*' : ' ', rate,
                gib(p->peak[MT_DEVICE_ARENA]), gib(p->peak[MT_HOST_ARENA]));
    fprintf(out, "%s%s%s%s%s\n", x->rate > 0 ? mt_plan_bound_text(x->bound) : "", x->rate > 0 ? "; " : "",
            *changes ? changes : "as given", *reason ? " -- " : "", reason);
}

static void print_notes(const struct mt_search *s, const struct mt_point *p, FILE *out)
{
    for (int i = 0; i < s->space.n; i++)
        if (p->choice.at[i] && *s->space.axis[i].note)
            fprintf(out, "note      %s=%s: %s\n", mt_options[s->space.axis[i].option].key,
                    s->space.axis[i].value[p->choice.at[i]], s->space.axis[i].note);
}

static void print_table(const struct mt_search *s, FILE *out)
{
    int *order = malloc(((size_t)s->n + 1) * sizeof *order);
    MT_ASSERT(order);
    mt_search_order(s, order);
    fprintf(out, "search    %d of %s%lld combinations planned for %d ranks (budget %d), %d of them timed",
            s->n, mt_space_size(&s->space) == INT64_MAX ? "more than " : "",
            (long long)mt_space_size(&s->space), s->forecast.world, s->budget, s->timed);
    if (s->sampled && s->timed) fprintf(out, " by the programs of %d ranks, those with * by all", s->sampled);
    fprintf(out, "\n%4s  %12s %10s %10s %10s  %s\n", "", "tokens/s/GPU", "step s", "device GiB", "host GiB",
            "bound; what differs from the given options -- why it is not the best");
    for (int i = 0; i < s->n; i++) print_point(s, order[i], i + 1, out);
    print_notes(s, &s->point[s->best], out);
    free(order);
}

/* Options and numbers of a search's best, in words. */
static void describe(const struct mt_search *s, char *out, size_t size)
{
    const struct mt_point *p = &s->point[s->best];
    const struct mt_estimate *x = mt_point_estimate(p);
    char changes[TEXT], reason[TEXT];
    mt_space_changes(&s->space, &p->choice, changes, sizeof changes);
    mt_search_reason(s, s->best, reason, sizeof reason);
    if (p->verdict != MT_FITS)
        snprintf(out, size, "of %d combinations that were planned the nearest, %s, %s", s->n,
                 *changes ? changes : "the given options", reason);
    else if (x->rate > 0)
        snprintf(out, size,
                 "%.4g tokens/s (%.1f on each of %d ranks, %.4g s a step, bound by %s) with %s, in %.4g GiB "
                 "of device "
                 "and %.4g GiB of host memory",
                 x->rate * s->forecast.world, x->rate, s->forecast.world, x->step_s,
                 mt_plan_bound_text(x->bound), *changes ? changes : "the given options",
                 gib(p->peak[MT_DEVICE_ARENA]), gib(p->peak[MT_HOST_ARENA]));
    else
        snprintf(out, size, "with %s it fits, in %.4g GiB of device and %.4g GiB of host memory",
                 *changes ? changes : "the given options", gib(p->peak[MT_DEVICE_ARENA]),
                 gib(p->peak[MT_HOST_ARENA]));
}

static void paragraph(const struct mt_asked *a, double target, char *out, size_t size)
{
    static const char *const of[] = {"%lld nodes", "%lld tokens a sequence", "%lld nodes"};
    char value[64], beyond[64], yes[3 * TEXT], no[3 * TEXT] = "", goal[96] = "";
    if (a->question == MT_TARGET_RATE) snprintf(goal, sizeof goal, " for %.6g tokens/s", target);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(value, sizeof value, of[a->question], (long long)a->value);
    snprintf(beyond, sizeof beyond, of[a->question], (long long)a->beyond);
#pragma GCC diagnostic pop
    describe(&a->yes, yes, sizeof yes);
    if (a->beyond) describe(&a->no, no, sizeof no);
    if (!a->found)
        snprintf(out, size, "Not found%s: even with %s: %s.", goal, value, yes);
    else
        snprintf(out, size, "%s %s%s: %s. %s %s%s%s. %d searches were made.",
                 a->question == MT_LONGEST_SEQUENCE ? "At most" : "At least", value, goal, yes,
                 a->beyond ? "Not" : "No harder size", a->beyond ? beyond : "is legal", a->beyond ? ": " : "",
                 no, a->tried);
}

/* ---- JSON ---- */
static void put(cJSON *o, const char *key, double v)
{
    cJSON_AddNumberToObject(o, key, v);
}

static cJSON *json_point(const struct mt_search *s, int i)
{
    static const char *const verdict[] = {"refused", "does_not_fit", "fits"};
    const struct mt_point *p = &s->point[i];
    const struct mt_estimate *x = mt_point_estimate(p);
    char reason[TEXT];
    cJSON *o = cJSON_CreateObject(), *changes = cJSON_AddObjectToObject(o, "changes");
    for (int k = 0; k < s->space.n; k++)
        if (p->choice.at[k])
            cJSON_AddStringToObject(changes, mt_options[s->space.axis[k].option].key,
                                    s->space.axis[k].value[p->choice.at[k]]);
    cJSON_AddStringToObject(o, "verdict", verdict[p->verdict]);
    mt_search_reason(s, i, reason, sizeof reason);
    cJSON_AddStringToObject(o, "reason", reason);
    if (p->verdict != MT_REFUSED) {
        put(o, "device_peak_bytes", (double)p->peak[MT_DEVICE_ARENA]);
        put(o, "host_peak_bytes", (double)p->peak[MT_HOST_ARENA]);
        put(o, "excess_bytes", (double)p->excess);
    }
    if (x->rate > 0) {
        put(o, "step_s", x->step_s);
        put(o, "tokens_per_s_per_gpu", x->rate);
        cJSON_AddStringToObject(o, "bound", mt_plan_bound_key(x->bound));
        cJSON_AddBoolToObject(o, "all_ranks", x == &p->whole || !s->sampled);
    }
    return o;
}

static cJSON *json_search(const struct mt_search *s)
{
    int *order = malloc(((size_t)s->n + 1) * sizeof *order);
    cJSON *o = cJSON_CreateObject();
    MT_ASSERT(order);
    put(o, "ranks", s->forecast.world);
    put(o, "budget", s->budget);
    put(o, "planned", s->n);
    put(o, "timed", s->timed);
    put(o, "sampled_ranks", s->sampled);
    cJSON_AddBoolToObject(o, "every_combination", s->all);
    cJSON *list = cJSON_AddArrayToObject(o, "candidates");
    mt_search_order(s, order);
    for (int i = 0; i < s->n; i++) cJSON_AddItemToArray(list, json_point(s, order[i]));
    free(order);
    return o;
}

/* Takes o. */
static mt_status write_json(const struct mt_search_words *w, cJSON *o, mt_err *e)
{
    cJSON_AddStringToObject(o, "config", w->config);
    cJSON_AddStringToObject(o, "cluster", w->cluster);
    return mt_print_json(o, true, w->json, e);
}

/* ---- the command ---- */
static mt_status tell_search(const struct mt_search_words *w, struct mt_search *s, mt_err *e)
{
    MT_TRY(mt_search_run(s, e));
    if (!w->json || strcmp(w->json, "-") != 0) print_table(s, stdout);
    if (w->json) MT_TRY(write_json(w, json_search(s), e));
    MT_REQUIRE(s->point[s->best].verdict == MT_FITS, e, MT_NOFIT,
               "none of %d combinations fits the memory of %s", s->n, w->cluster);
    return MT_OK;
}

static mt_status tell_answer(const struct mt_search_words *w, const struct mt_asked *a, mt_err *e)
{
    static const char *const key[] = {"fewest_nodes", "longest_sequence", "target"};
    char text[8 * TEXT];
    paragraph(a, w->target, text, sizeof text);
    if (!w->json || strcmp(w->json, "-") != 0) {
        printf("%s\n", text);
        print_notes(&a->yes, &a->yes.point[a->yes.best], stdout);
    }
    if (w->json) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "question", key[a->question]);
        cJSON_AddBoolToObject(o, "found", a->found);
        put(o, "value", (double)a->value);
        put(o, "beyond", (double)a->beyond);
        put(o, "target_tokens_per_s", w->target);
        put(o, "tried", a->tried);
        cJSON_AddStringToObject(o, "answer", text);
        cJSON_AddItemToObject(o, "search", json_search(&a->yes));
        if (a->beyond) cJSON_AddItemToObject(o, "search_beyond", json_search(&a->no));
        MT_TRY(write_json(w, o, e));
    }
    MT_REQUIRE(a->found, e, MT_NOFIT, "no answer on %s: the job does not get there", w->cluster);
    return MT_OK;
}

mt_status mt_plan_search(const struct mt_search_words *w, const struct mt_search *like, mt_err *e)
{
    struct mt_search *s = malloc(sizeof *s);
    struct mt_asked *a = calloc(1, sizeof *a);
    mt_status st = s && a ? MT_OK : mt_err_set(e, MT_IO, "no memory for a search");
    if (st == MT_OK) {
        *s = *like;
        s->budget = (int)w->budget;
        s->finalists = (int)w->finalists;
        s->space.n = 0;
        if (!w->varied) mt_space_fill(&s->space, s->cfg);
    }
    for (int i = 0; i < w->n_vary && st == MT_OK; i++) st = mt_space_vary(&s->space, s->cfg, w->vary[i], e);
    if (st == MT_OK && w->what == MT_SEARCH_TABLE) {
        st = tell_search(w, s, e);
        mt_search_release(s);
    } else if (st == MT_OK) {
        st = mt_search_ask(a, (enum mt_question)(w->what - MT_SEARCH_FEWEST), s, w->target, e);
        if (st == MT_OK) st = tell_answer(w, a, e);
        mt_asked_release(a);
    }
    free(a);
    free(s);
    return st;
}
