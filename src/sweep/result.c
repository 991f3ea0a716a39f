/* result.c: what the runs of a sweep have done, from their folders, and which rounds of halving they have passed. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sweep/study.h"
#include "train/history.h"

/* ---- numbers of one run ---- */
struct sums {
    double tokens, seconds, mfu, steps;
};
static void add_step(struct sums *s, const struct mt_history_row *r)
{
    double each = r->value[MT_HISTORY_tokens] / (double)r->step, rate = r->value[MT_HISTORY_tokens_per_s];
    if (!(rate > 0) || !(each > 0)) return;
    s->tokens += each;
    s->seconds += each / rate;
    s->mfu += r->value[MT_HISTORY_mfu] * each / rate;
    s->steps++;
}

static double last_tenth(const struct mt_history *h, int64_t steps)
{
    double sum = 0, n = 0;
    int64_t from = steps - (steps + 9) / 10;
    for (int64_t i = 0; i < h->n; i++) {
        double x = h->row[i].value[MT_HISTORY_loss];
        if (h->row[i].step <= from || h->row[i].step > steps || isnan(x)) continue;
        sum += x;
        n++;
    }
    return n > 0 ? sum / n : (double)NAN;
}

/* Over the steps drop + 1 to `steps`; losses over the end of them. */
static void measure(const struct mt_history *h, int64_t drop, int64_t steps, double out[MT_N_METRICS])
{
    static const struct {
        enum mt_choice_metric metric;
        enum mt_history_key key;
    } most[] = {{MT_METRIC_DEVICE_BYTES, MT_HISTORY_device_bytes},
                {MT_METRIC_HOST_BYTES, MT_HISTORY_host_bytes}};
    struct sums s = {0};
    for (int m = 0; m < MT_N_METRICS; m++) out[m] = (double)NAN;
    for (int64_t i = 0; i < h->n; i++) {
        const struct mt_history_row *r = &h->row[i];
        if (r->step > steps || r->step < 1) continue;
        if (r->step > drop) add_step(&s, r);
        if (!isnan(r->value[MT_HISTORY_val_loss])) out[MT_METRIC_VAL_LOSS] = r->value[MT_HISTORY_val_loss];
        for (int k = 0; k < 2; k++)
            if (!(r->value[most[k].key] <= out[most[k].metric]) && !isnan(r->value[most[k].key]))
                out[most[k].metric] = r->value[most[k].key];
    }
    out[MT_METRIC_LOSS] = last_tenth(h, steps);
    if (!(s.seconds > 0)) return;
    out[MT_METRIC_TOKENS_PER_S] = s.tokens / s.seconds;
    out[MT_METRIC_STEP_S] = s.seconds / s.steps;
    out[MT_METRIC_MFU] = s.mfu / s.seconds;
}

/* ---- one run ---- */
static double number(const cJSON *o, const char *key, double otherwise)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(x) ? x->valuedouble : otherwise;
}
static mt_status take_end(void *arg, const struct cJSON *o, mt_err *e)
{
    struct mt_study_run *r = arg;
    const cJSON *why = cJSON_GetObjectItemCaseSensitive(o, "why");
    (void)e;
    r->exit_code = (int)number(o, "exit_code", -1);
    r->seconds = number(o, "seconds", 0);
    if (cJSON_IsString(why))
        snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1, why->valuestring);
    return MT_OK;
}

static mt_status run_path(const struct mt_study *t, const struct mt_study_point *p, int k, const char *rest,
                          char *out, size_t size, mt_err *e)
{
    char file[64];
    snprintf(file, sizeof file, "run-%d%s", k + 1, rest);
    MT_REQUIRE(mt_study_path(t, p, file, out, size), e, MT_CONFIG, "the sweep's dir is too long");
    return MT_OK;
}

static mt_status read_run(const struct mt_study *t, struct mt_study_point *p, int k, struct mt_history *h,
                          mt_err *e)
{
    struct mt_study_run *r = &p->run[k];
    char path[MT_CONFIG_PATH];
    int64_t others;
    *r = (struct mt_study_run){.exit_code = -1};
    MT_TRY(run_path(t, p, k, ".json", path, sizeof path, e));
    MT_TRY(mt_json_lines(path, take_end, r, &others, e));
    MT_TRY(run_path(t, p, k, "/metrics.jsonl", path, sizeof path, e));
    MT_TRY(mt_history_open(h, path, e));
    r->steps = h->steps;
    return MT_OK;
}

/* What it has by the steps that are due. */
static void judge_run(const struct mt_study *t, const struct mt_study_point *p, int k,
                      const struct mt_history *h)
{
    struct mt_study_run *r = &p->run[k];
    bool ended = r->exit_code == MT_OK || r->exit_code == MT_PREEMPTED;
    measure(h, t->sweep->o.drop, p->due, r->value);
    if (r->exit_code == MT_OK && r->steps < p->due) {
        snprintf(r->why, sizeof r->why, "ended after %lld steps of %lld", (long long)r->steps,
                 (long long)p->due);
        ended = false;
    }
    r->state = r->steps >= p->due            ? MT_RUN_DONE
               : r->exit_code >= 0 && !ended ? MT_RUN_FAILED
                                             : MT_RUN_WAITING;
}

static void summarize(const struct mt_study *t, struct mt_study_point *p)
{
    p->done = p->failed = 0;
    for (int k = 0; k < t->repeats; k++) {
        p->done += p->run[k].state == MT_RUN_DONE;
        p->failed += p->run[k].state == MT_RUN_FAILED;
    }
    for (int m = 0; m < MT_N_METRICS; m++) {
        double sum = 0, n = 0;
        p->low[m] = p->high[m] = (double)NAN;
        for (int k = 0; k < t->repeats; k++) {
            double v = p->run[k].value[m];
            if (p->run[k].state != MT_RUN_DONE || isnan(v)) continue;
            sum += v;
            n++;
            if (!(p->low[m] <= v)) p->low[m] = v;
            if (!(p->high[m] >= v)) p->high[m] = v;
        }
        p->mean[m] = n > 0 ? sum / n : (double)NAN;
    }
}

/* ---- rounds ---- */
static int64_t budget(const struct mt_study *t, const struct mt_study_point *p, int round)
{
    int64_t steps = t->sweep->o.halving_from;
    if (round == t->rounds - 1) return p->steps;
    for (int i = 0; i < round; i++) steps *= t->sweep->o.halving_factor;
    return steps < p->steps ? steps : p->steps;
}
static bool goes_on(const struct mt_study_point *p)
{
    return p->verdict == MT_POINT_RUNS && !p->left;
}

/* Every run of those that go on, judged by a round's steps. *over: none of them lacks any. */
static mt_status judge_round(struct mt_study *t, int round, bool *over, mt_err *e)
{
    struct mt_history h;
    *over = true;
    for (int i = 0; i < t->n; i++) {
        struct mt_study_point *p = &t->point[i];
        if (!goes_on(p)) continue;
        p->round = round;
        p->due = budget(t, p, round);
        for (int k = 0; k < t->repeats; k++) {
            mt_status st = read_run(t, p, k, &h, e);
            if (st == MT_OK) judge_run(t, p, k, &h);
            mt_history_close(&h);
            MT_TRY(st);
            *over = *over && p->run[k].state != MT_RUN_WAITING;
        }
        summarize(t, p);
    }
    return MT_OK;
}

/* Of n points, n / factor^round go on into the next round, and the baseline, which the others are compared with to the end. */
static int places(const struct mt_study *t, int round)
{
    int64_t n = 0, factor = t->sweep->o.halving_factor;
    for (int i = 0; i < t->n; i++) n += t->point[i].verdict == MT_POINT_RUNS;
    for (int i = 0; i <= round; i++) n = (n + factor - 1) / factor;
    return (int)n;
}
/* A point all of whose runs failed has no place: its failure is what there is to say. */
static void leave_out(struct mt_study *t, int round)
{
    int *order = malloc(((size_t)t->n + 1) * sizeof *order), alive = 0, place = 0, most = places(t, round);
    MT_ASSERT(order);
    for (int i = 0; i < t->n; i++) alive += goes_on(&t->point[i]) && t->point[i].done;
    mt_study_order(t, order);
    for (int i = 0; i < t->n; i++) {
        struct mt_study_point *p = &t->point[order[i]];
        if (!goes_on(p) || !p->done) continue;
        if (++place <= most || order[i] == t->baseline) continue;
        p->left = true;
        snprintf(p->why, sizeof p->why, "left out after round %d of %d: place %d of %d", round + 1, t->rounds,
                 place, alive);
    }
    free(order);
}

mt_status mt_study_collect(struct mt_study *t, mt_err *e)
{
    bool over = true;
    for (int i = 0; i < t->n; i++) {
        if (t->point[i].left) t->point[i].why[0] = 0;
        t->point[i].left = false;
    }
    for (int round = 0; round < t->rounds && over; round++) {
        MT_TRY(judge_round(t, round, &over, e));
        if (over && round + 1 < t->rounds) leave_out(t, round);
    }
    return MT_OK;
}

mt_status mt_study_forget_failures(struct mt_study *t, mt_err *e)
{
    char path[MT_CONFIG_PATH];
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->repeats; k++) {
            if (t->point[i].verdict != MT_POINT_RUNS || t->point[i].run[k].state != MT_RUN_FAILED) continue;
            MT_TRY(run_path(t, &t->point[i], k, ".json", path, sizeof path, e));
            MT_REQUIRE(!unlink(path) || errno == ENOENT, e, MT_IO, "cannot remove '%s': %s", path,
                       strerror(errno));
        }
    return mt_study_collect(t, e);
}
