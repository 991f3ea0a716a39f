#include "train/search.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"

/* Rates that differ by less are equal: the earlier candidate, with fewer changes, stays. */
static const double EVEN = 1e-3;

const struct mt_estimate *mt_point_estimate(const struct mt_point *p)
{
    return p->whole.rate > 0 ? &p->whole : &p->sample;
}

/* ---- one candidate ---- */
static mt_status estimate(const struct mt_search *s, const mt_config *c, int sample, struct mt_estimate *x,
                          mt_err *e)
{
    struct mt_forecast f;
    struct mt_forecast_times t = {0};
    struct mt_forecast_options o = s->forecast;
    double floor[MT_N_BOUNDS];
    o.sample = sample;
    mt_status st = mt_forecast_open(&f, c, s->cluster, s->target, &o, e);
    if (st == MT_OK) st = mt_forecast_replay(&f, s->cluster, s->algorithm, &t, e);
    if (st == MT_OK) {
        *x = (struct mt_estimate){.step_s = t.step_s,
                                  .tokens = (double)(c->train_global_batch * c->train_seq_len),
                                  .bound = mt_forecast_bound(&f, s->cluster, &t, floor)};
        x->rate = x->tokens / x->step_s / o.world;
        memcpy(x->busy, t.mean.busy, sizeof x->busy);
        memcpy(x->idle, t.mean.idle, sizeof x->idle);
    }
    mt_forecast_times_release(&t);
    mt_forecast_close(&f);
    return st;
}

static int sample_ranks(const struct mt_search *s)
{
    int64_t per = s->cfg->mesh_ranks_per_node;
    return per < s->forecast.world ? (int)per : s->forecast.world;
}

/* Time is looked at only where memory suffices. */
static mt_status plan_legal(const struct mt_search *s, const mt_config *c, struct mt_point *p, mt_err *e)
{
    struct mt_room room = {.both = 0};
    MT_TRY(mt_session_peak(c, s->target, s->forecast.world, 0, false, p->peak, e));
    memcpy(room.arena, s->limit, sizeof room.arena);
    p->excess = mt_room_excess(&room, p->peak);
    p->verdict = p->excess ? MT_TOO_LARGE : MT_FITS;
    if (p->excess || s->only_fit) return MT_OK;
    return estimate(s, c, sample_ranks(s), &p->sample, e);
}

static void plan_point(const struct mt_search *s, struct mt_point *p)
{
    mt_err e = {0};
    mt_config *c = malloc(sizeof *c);
    mt_status st = c ? MT_OK : mt_err_set(&e, MT_IO, "no memory for a configuration");
    if (st == MT_OK) st = mt_space_apply(&s->space, &p->choice, s->cfg, s->forecast.world, c, &e);
    if (st == MT_OK) st = plan_legal(s, c, p, &e);
    if (st != MT_OK) {
        p->verdict = MT_REFUSED;
        p->excess = INT64_MAX;
        snprintf(p->why, sizeof p->why, "%.*s", (int)sizeof p->why - 1, e.msg);
    }
    free(c);
}

/* ---- several at a time ---- */
struct batch {
    struct mt_search *s;
    atomic_int next;
};
static void *plan_some(void *arg)
{
    struct batch *b = arg;
    for (int i; (i = atomic_fetch_add(&b->next, 1)) < b->s->n;) plan_point(b->s, &b->s->point[i]);
    return NULL;
}
static void plan_from(struct mt_search *s, int from)
{
    enum { MOST = 16 };
    struct batch b = {.s = s};
    pthread_t thread[MOST];
    const struct mt_set cpus = mt_cpus_mine();
    int n = 0, most = mt_set_count(&cpus);
    if (most > s->n - from) most = s->n - from;
    atomic_init(&b.next, from);
    while (n < most - 1 && n < MOST && !pthread_create(&thread[n], NULL, plan_some, &b)) n++;
    plan_some(&b);
    while (n > 0) pthread_join(thread[--n], NULL);
}

static int find(const struct mt_search *s, const struct mt_choice *c)
{
    int i = 0;
    while (i < s->n && memcmp(&s->point[i].choice, c, sizeof *c) != 0) i++;
    return i;
}
/* To be planned, unless it has been or the budget is spent. */
static void add(struct mt_search *s, const struct mt_choice *c)
{
    if (s->n < s->budget && find(s, c) == s->n) s->point[s->n++] = (struct mt_point){.choice = *c};
}

static bool ahead(const struct mt_point *a, const struct mt_point *b)
{
    if (a->verdict != b->verdict) return a->verdict > b->verdict;
    if (a->verdict != MT_FITS) return a->excess < b->excess;
    return mt_point_estimate(a)->rate > mt_point_estimate(b)->rate * (1 + EVEN);
}
/* Plans what was added; has the best changed? */
static bool settle(struct mt_search *s, int from)
{
    int was = s->best;
    plan_from(s, from);
    for (int i = from; i < s->n; i++)
        if (ahead(&s->point[i], &s->point[s->best])) s->best = i;
    return s->best != was;
}
static bool done(const struct mt_search *s)
{
    const struct mt_point *p = &s->point[s->best];
    if (s->n && p->verdict == MT_FITS && (s->only_fit || (s->enough > 0 && p->sample.rate >= s->enough)))
        return true;
    return s->n >= s->budget;
}

/* ---- ways to go ---- */
enum { CHUNK = 8 };
static void try_all(struct mt_search *s)
{
    for (struct mt_choice c = {{0}}; !done(s);) {
        int from = s->n, i = 0;
        for (bool more = true; more && s->n - from < CHUNK;) {
            add(s, &c);
            for (i = 0; i < s->space.n && ++c.at[i] == s->space.axis[i].n; i++) c.at[i] = 0;
            more = i < s->space.n;
        }
        settle(s, from);
        if (i == s->space.n) break;
    }
}

/* Each option in turn at the best of its values. */
static bool pass(struct mt_search *s)
{
    bool any = false;
    for (int i = 0; i < s->space.n && !done(s); i++) {
        struct mt_choice c = s->point[s->best].choice;
        int from = s->n;
        for (int v = 0; v < s->space.axis[i].n; v++) {
            c.at[i] = (int8_t)v;
            add(s, &c);
        }
        any |= settle(s, from);
    }
    return any;
}

/* Two changes of the best at once. */
struct pair {
    int a, b; /* points with one of them each */
    double worth;
};
static int more_worth(const void *p, const void *q)
{
    const struct pair *x = p, *y = q;
    if (x->worth > y->worth || x->worth < y->worth) return x->worth > y->worth ? -1 : 1;
    return x->a != y->a ? x->a - y->a : x->b - y->b;
}
/* The axis in which a point differs from another, if it is a single one; else -1. */
static int only_axis(const struct mt_search *s, const struct mt_choice *a, const struct mt_choice *b)
{
    int axis = -1;
    for (int i = 0; i < s->space.n; i++) {
        if (a->at[i] == b->at[i]) continue;
        if (axis >= 0) return -1;
        axis = i;
    }
    return axis;
}
/* What two changes together would lack, if each saved what it saves alone. */
static int64_t foreseen(const struct mt_search *s, const struct mt_point *a, const struct mt_point *b)
{
    const struct mt_point *p = &s->point[s->best];
    struct mt_room room = {.both = 0};
    int64_t peak[MT_N_ARENAS];
    memcpy(room.arena, s->limit, sizeof room.arena);
    for (int i = 0; i < MT_N_ARENAS; i++) peak[i] = a->peak[i] + b->peak[i] - p->peak[i];
    return mt_room_excess(&room, peak);
}

/* A change that does not fit, with one that makes room; the one that costs least time first. Only pairs that should fit, or,
 * while nothing fits, that should lack less than the best. */
static int64_t list_pairs(const struct mt_search *s, struct pair *out)
{
    const struct mt_point *best = &s->point[s->best];
    int64_t n = 0;
    for (int a = 0; a < s->n; a++) {
        int i = only_axis(s, &s->point[a].choice, &best->choice);
        if (i < 0 || s->point[a].verdict != MT_TOO_LARGE) continue;
        for (int b = 0; b < s->n; b++) {
            int k = only_axis(s, &s->point[b].choice, &best->choice);
            if (k < 0 || k == i || s->point[b].verdict == MT_REFUSED) continue;
            int64_t lacks = foreseen(s, &s->point[a], &s->point[b]);
            if (lacks && lacks >= best->excess) continue;
            out[n++] = (struct pair){a, b, lacks ? -(double)lacks : s->point[b].sample.rate};
        }
    }
    qsort(out, (size_t)n, sizeof *out, more_worth);
    return n;
}

static bool pairs(struct mt_search *s)
{
    struct pair *list = malloc((size_t)s->n * (size_t)s->n * sizeof *list);
    bool any = false;
    MT_ASSERT(list);
    int64_t n = list_pairs(s, list);
    const struct mt_choice base = s->point[s->best].choice;
    for (int64_t at = 0; at < n && !any && !done(s);) {
        int from = s->n;
        for (; at < n && s->n - from < CHUNK && s->n < s->budget; at++) {
            struct mt_choice c = s->point[list[at].a].choice;
            int k = only_axis(s, &s->point[list[at].b].choice, &base);
            c.at[k] = s->point[list[at].b].choice.at[k];
            add(s, &c);
        }
        any = settle(s, from);
    }
    free(list);
    return any;
}

/* ---- the best few, with all ranks ---- */
struct key {
    const struct mt_point *p;
    int i;
};
static int better_first(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    const struct mt_point *p = x->p, *q = y->p;
    if (p->verdict != q->verdict) return p->verdict > q->verdict ? -1 : 1;
    if ((p->whole.rate > 0) != (q->whole.rate > 0)) return p->whole.rate > 0 ? -1 : 1;
    double f = mt_point_estimate(p)->rate, g = mt_point_estimate(q)->rate;
    if (f > g || f < g) return f > g ? -1 : 1;
    if (p->excess != q->excess) return p->excess < q->excess ? -1 : 1;
    return x->i - y->i;
}
void mt_search_order(const struct mt_search *s, int *order)
{
    struct key *k = malloc(((size_t)s->n + 1) * sizeof *k);
    MT_ASSERT(k);
    for (int i = 0; i < s->n; i++) k[i] = (struct key){&s->point[i], i};
    qsort(k, (size_t)s->n, sizeof *k, better_first);
    int n = 0;
    order[n++] = s->best;
    for (int i = 0; i < s->n; i++)
        if (k[i].i != s->best) order[n++] = k[i].i;
    free(k);
}

static mt_status simulate(struct mt_search *s, struct mt_point *p, mt_err *e)
{
    mt_config *c = malloc(sizeof *c);
    MT_REQUIRE(c, e, MT_IO, "no memory for a configuration");
    mt_status st = mt_space_apply(&s->space, &p->choice, s->cfg, s->forecast.world, c, e);
    if (st == MT_OK) st = estimate(s, c, 0, &p->whole, e);
    free(c);
    return st;
}

static mt_status finals(struct mt_search *s, mt_err *e)
{
    int *order = malloc(((size_t)s->n + 1) * sizeof *order);
    MT_REQUIRE(order, e, MT_IO, "no memory for the order of %d plans", s->n);
    mt_status st = MT_OK;
    mt_search_order(s, order);
    for (int i = 0; i < s->n && st == MT_OK; i++)
        if (s->point[order[i]].verdict == MT_FITS && (i < s->finalists || !order[i]))
            st = simulate(s, &s->point[order[i]], e);
    /* The one with the fewest ahead of it in the order of planning stays, if others are only even with it. */
    s->best = s->point[0].whole.rate > 0 ? 0 : order[0];
    for (int i = 0; i < s->n; i++)
        if (s->point[i].whole.rate > 0 && ahead(&s->point[i], &s->point[s->best])) s->best = i;
    free(order);
    return st;
}

mt_status mt_search_run(struct mt_search *s, mt_err *e)
{
    struct mt_choice given = {{0}};
    MT_ASSERT(s->budget > 0);
    s->n = s->best = s->timed = 0;
    s->point = calloc((size_t)s->budget, sizeof *s->point);
    MT_REQUIRE(s->point, e, MT_IO, "no memory for %d plans", s->budget);
    mt_forecast_limits(s->cfg, s->cluster, s->limit);
    s->all = mt_space_size(&s->space) <= s->budget;
    add(s, &given);
    settle(s, 0);
    if (!done(s)) add(s, &s->start);
    settle(s, 1);
    if (s->all && !done(s))
        try_all(s);
    else if (s->brief)
        pass(s);
    else
        while (!done(s) && (pass(s) || pairs(s))) continue;
    s->all = mt_space_size(&s->space) == s->n;
    for (int i = 0; i < s->n; i++) s->timed += s->point[i].sample.rate > 0;
    s->sampled = sample_ranks(s) < s->forecast.world ? sample_ranks(s) : 0;
    return s->sampled && s->timed ? finals(s, e) : MT_OK;
}

void mt_search_release(struct mt_search *s)
{
    free(s->point);
    s->point = NULL;
    s->n = 0;
}

/* ---- reasons ---- */
static void slower(const struct mt_estimate *x, const struct mt_estimate *best, char *out, size_t size)
{
    double most = 0, scale = best->tokens / x->tokens, lost = 100 * (1 - x->rate / best->rate);
    const char *what = NULL, *kind = "";
    for (int k = 0; k < MT_N_WORK_KINDS; k++) {
        double more = x->busy[k] * scale - best->busy[k];
        if (more <= most) continue;
        most = more, what = mt_work_kind_name((enum mt_work_kind)k), kind = "computing";
    }
    for (int i = 0; i < MT_N_STANDS; i++) {
        double more = x->idle[i] * scale - best->idle[i];
        if (more <= most) continue;
        most = more, what = mt_stand_text((enum mt_stand)i), kind = "waiting for";
    }
    if (lost < 100 * EVEN)
        snprintf(out, size, "no faster");
    else if (what)
        snprintf(out, size, "slower by %.1f%%: %.3g s more %s %s", lost, most, kind, what);
    else
        snprintf(out, size, "slower by %.1f%%", lost);
}

void mt_search_reason(const struct mt_search *s, int i, char *out, size_t size)
{
    static const char *const name[] = {"on the device", "in host memory"};
    const struct mt_point *p = &s->point[i], *best = &s->point[s->best];
    bool all = p->whole.rate > 0;
    *out = 0;
    if (p->verdict == MT_REFUSED) {
        snprintf(out, size, "cannot run: %s", p->why);
    } else if (p->verdict == MT_TOO_LARGE) {
        for (int a = 0, n = 0; a < MT_N_ARENAS; a++) {
            size_t used = strlen(out);
            int64_t over = p->peak[a] - s->limit[a];
            if (over > 0)
                snprintf(out + used, size - used, "%s %.3g GiB too many %s",
                         n++ ? "," : "does not fit:", (double)over / (1 << 30), name[a]);
        }
    } else if (i != s->best && p->sample.rate > 0) {
        slower(all ? &p->whole : &p->sample, all ? &best->whole : &best->sample, out, size);
    }
}
