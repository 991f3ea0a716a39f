#include "sweep/study.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/file.h"
#include "config/group.h"
#include "config/table.h"

const char *mt_point_verdict_text(enum mt_point_verdict v)
{
    static const char *const text[] = {"runs", "twice", "refused", "does not fit", "dominated"};
    return text[v];
}
bool mt_metric_higher(enum mt_choice_metric m)
{
    return m == MT_METRIC_TOKENS_PER_S || m == MT_METRIC_MFU;
}

bool mt_study_path(const struct mt_study *t, const struct mt_study_point *p, const char *file, char *out,
                   size_t size)
{
    int n = snprintf(out, size, "%s/points/%s%s%s", t->sweep->o.dir, p->id, *file ? "/" : "", file);
    return n >= 0 && (size_t)n < size;
}

/* ---- opening ---- */
/* Of every value but those that differ from run to run. */
static mt_status write_id(const mt_config *c, char id[static 17], mt_err *e)
{
    char value[MT_VALUE_TEXT], group[MT_GROUP_TEXT], *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for a configuration's text");
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (i == MT_OPTION_run_dir || i == MT_OPTION_run_stop_after) continue;
        fprintf(f, "%s=%s\n", o->key, o->list ? "" : mt_value_text(o, c, value));
        for (int64_t g = 0; o->list && g < mt_groups_count(c, o); g++)
            fprintf(f, "%s\n", mt_group_yaml(o, mt_groups_entry(c, o, g), group));
    }
    bool ok = !fclose(f);
    if (ok) snprintf(id, 17, "%016" PRIx64, mt_xxh3(text, (int64_t)bytes));
    free(text);
    MT_REQUIRE(ok, e, MT_IO, "no memory for a configuration's text");
    return MT_OK;
}

static void refuse(struct mt_study_point *p, enum mt_point_verdict verdict, const char *why)
{
    p->verdict = verdict;
    snprintf(p->why, sizeof p->why, "%.*s", (int)sizeof p->why - 1, why);
}

/* A rule that forbids the point is its own affair; a base that cannot be read is the sweep's. */
static mt_status open_point(struct mt_study *t, int i, mt_config *c, mt_err *e)
{
    struct mt_study_point *p = &t->point[i];
    mt_err why = {0};
    char text[64];
    *p = (struct mt_study_point){.p = &t->sweep->point[i], .run = t->runs + (size_t)i * (size_t)t->repeats};
    for (int m = 0; m < MT_N_METRICS; m++) p->mean[m] = p->low[m] = p->high[m] = (double)NAN;
    MT_TRY(mt_sweep_config(t->sweep, p->p, false, c, e));
    p->steps = p->due = c->train_steps;
    p->seed = c->train_seed;
    MT_TRY(write_id(c, p->id, e));
    mt_status st = mt_sweep_config(t->sweep, p->p, true, c, &why);
    if (st == MT_OK) st = mt_config_check_world(c, t->sweep->o.ranks, &why);
    if (st == MT_CONFIG)
        refuse(p, MT_POINT_REFUSED, why.msg);
    else if (st != MT_OK)
        return mt_err_set(e, st, "%s", why.msg);
    for (int k = 0; k < i; k++) {
        if (strcmp(t->point[k].id, p->id) != 0) continue;
        snprintf(text, sizeof text, "the same configuration as point %d", k + 1);
        refuse(p, MT_POINT_TWICE, text);
        break;
    }
    return MT_OK;
}

static int count_rounds(const mt_sweep *s, int64_t most)
{
    int n = 1;
    for (int64_t steps = s->o.halving_from; steps > 0 && steps < most; steps *= s->o.halving_factor) n++;
    return n;
}

mt_status mt_study_open(struct mt_study *t, const mt_sweep *s, mt_err *e)
{
    int64_t most = 0;
    *t = (struct mt_study){.sweep = s, .n = s->n, .repeats = (int)s->o.repeats, .baseline = s->at_baseline};
    mt_config *c = malloc(sizeof *c);
    t->point = calloc((size_t)t->n + 1, sizeof *t->point);
    t->runs = calloc((size_t)t->n * (size_t)t->repeats + 1, sizeof *t->runs);
    mt_status st = c && t->point && t->runs ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d points", t->n);
    for (int i = 0; i < t->n && st == MT_OK; i++) {
        st = open_point(t, i, c, e);
        if (t->point[i].steps > most) most = t->point[i].steps;
    }
    t->rounds = count_rounds(s, most);
    free(c);
    return st;
}

void mt_study_close(struct mt_study *t)
{
    free(t->point);
    free(t->runs);
    *t = (struct mt_study){.n = 0};
}

/* ---- order ---- */
struct key {
    const struct mt_study *t;
    int i;
};
static int better_first(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    const struct mt_study_point *p = &x->t->point[x->i], *q = &y->t->point[y->i];
    enum mt_choice_metric m = x->t->sweep->o.metric;
    double v = p->mean[m], w = q->mean[m];
    if ((p->done > 0) != (q->done > 0)) return p->done > 0 ? -1 : 1;
    if (p->verdict != q->verdict) return p->verdict < q->verdict ? -1 : 1;
    if (p->round != q->round) return p->round > q->round ? -1 : 1;
    if (isnan(v) != isnan(w)) return isnan(w) ? -1 : 1;
    if (v < w || v > w) return (v > w) == mt_metric_higher(m) ? -1 : 1;
    return x->i - y->i;
}
void mt_study_order(const struct mt_study *t, int *order)
{
    struct key *k = malloc(((size_t)t->n + 1) * sizeof *k);
    MT_ASSERT(k);
    for (int i = 0; i < t->n; i++) k[i] = (struct key){t, i};
    qsort(k, (size_t)t->n, sizeof *k, better_first);
    for (int i = 0; i < t->n; i++) order[i] = k[i].i;
    free(k);
}

mt_status mt_study_due(const struct mt_study *t, struct mt_study_item **list, int *n, mt_err *e)
{
    *n = 0;
    *list = malloc(((size_t)t->n * (size_t)t->repeats + 1) * sizeof **list);
    MT_REQUIRE(*list, e, MT_IO, "no memory for a list of runs");
    for (int k = 0; k < t->repeats; k++)
        for (int i = 0; i < t->n; i++)
            if (t->point[i].verdict == MT_POINT_RUNS && !t->point[i].left &&
                t->point[i].run[k].state == MT_RUN_WAITING)
                (*list)[(*n)++] = (struct mt_study_item){i, k};
    return MT_OK;
}
