#include "train/forecast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/print.h"
#include "base/rng.h"
#include "device/lifetimes.h"

mt_status mt_forecast_open(struct mt_forecast *f, const mt_config *cfg, const struct mt_cluster *cluster,
                           const struct mt_target *target, const struct mt_forecast_options *o, mt_err *e)
{
    *f = (struct mt_forecast){.o = *o, .cfg = cfg, .shape = mt_shape_of(cfg)};
    MT_TRY(mt_config_check_world(cfg, o->world, e));
    f->micro = cfg->train_global_batch / (cfg->train_micro_batch * o->world);
    f->traffic = calloc((size_t)o->world, sizeof *f->traffic);
    MT_REQUIRE(f->traffic, e, MT_IO, "no memory for %d ranks", o->world);
    MT_TRY(mt_forecast_routing(f, e));
    MT_TRY(mt_forecast_documents(f, e));
    return mt_forecast_record(f, target, (int)MT_OF(cluster, topology_nodes_per_group), e);
}

void mt_forecast_close(struct mt_forecast *f)
{
    mt_simclock_close(f->clock);
    mt_session_close(&f->s);
    free(f->traffic);
    free(f->popular);
    free(f->pairs);
    free(f->near);
    *f = (struct mt_forecast){0};
}

/* ---- memory ---- */
static bool lives_in(const struct mt_ledger *g, int32_t row, enum mt_arena arena)
{
    return g->row[row].arena == arena && !mt_row_persistent((enum mt_row_class)g->row[row].row_class);
}
/* The record at which most bytes of an arena are alive, of those that do not last. */
static int64_t fullest_record(const struct mt_ledger *g, const struct mt_lifetimes *l, int64_t n,
                              enum mt_arena arena)
{
    int64_t *delta = calloc((size_t)n + 1, sizeof *delta), live = 0, most = -1, at = 0;
    MT_ASSERT(delta);
    for (int32_t i = 0; i < l->n; i++) {
        if (!lives_in(g, l->life[i].row, arena)) continue;
        delta[l->life[i].def] += g->row[l->life[i].row].bytes;
        delta[l->life[i].last + 1] -= g->row[l->life[i].row].bytes;
    }
    for (int64_t i = 0; i <= n; i++)
        if ((live += delta[i]) > most) most = live, at = i;
    free(delta);
    return at;
}

static void add_row(const struct mt_ledger *g, int32_t row, int32_t *rows, int max, int *n)
{
    int at = *n < max ? *n : max;
    ++*n;
    while (at > 0 && g->row[rows[at - 1]].bytes < g->row[row].bytes) {
        if (at < max) rows[at] = rows[at - 1];
        at--;
    }
    if (at < max) rows[at] = row;
}

mt_status mt_forecast_fullest(const struct mt_forecast *f, enum mt_arena arena,
                              int64_t by_class[MT_N_ROW_CLASSES], int32_t *rows, int max, int *n, mt_err *e)
{
    const struct mt_ledger *g = &f->s.ledger;
    struct mt_recording q;
    struct mt_lifetimes l = {0};
    memset(by_class, 0, MT_N_ROW_CLASSES * sizeof *by_class);
    *n = 0;
    mt_status st = mt_session_record(&f->s, 2, &q, e); /* what the layout was made for */
    if (st == MT_OK) st = mt_lifetimes_find(&l, g, &q, e);
    if (st == MT_OK) {
        int64_t at = fullest_record(g, &l, q.n, arena);
        for (int32_t i = 0; i < g->n; i++) {
            bool there = g->row[i].arena == arena && !lives_in(g, i, arena);
            for (int32_t k = l.first[i]; k >= 0 && lives_in(g, i, arena); k = l.life[k].next)
                there = there || (l.life[k].def <= at && at <= l.life[k].last);
            if (!there) continue;
            by_class[g->row[i].row_class] += g->row[i].bytes;
            add_row(g, i, rows, max, n);
        }
    }
    mt_lifetimes_release(&l);
    mt_recording_release(&q);
    return st;
}

/* ---- nodes that differ ---- */
/* By rank: how much longer its node takes. compute, net: [world]. */
static void vary(const struct mt_forecast *f, const struct mt_cluster *c, double *compute, double *net)
{
    uint64_t key = mt_rng_key(f->o.seed, "slow nodes");
    int64_t per = f->cfg->mesh_ranks_per_node, nodes = (f->o.world + per - 1) / per;
    for (int64_t n = 0; n < nodes; n++) {
        double a = 1 + MT_OF(c, vary_compute) * fabs(mt_rng_normal(key, 3 * n)),
               b = 1 + MT_OF(c, vary_net) * fabs(mt_rng_normal(key, 3 * n + 1));
        /* A share of nodes: the upper tail of a normal distribution. */
        double tail = 0.5 * erfc(mt_rng_normal(key, 3 * n + 2) / sqrt(2));
        if (tail < MT_OF(c, vary_slow_share)) b *= MT_OF(c, vary_slow_net);
        for (int64_t r = n * per; r < (n + 1) * per && r < f->o.world; r++) compute[r] = a, net[r] = b;
    }
}

/* ---- replay ---- */
static void summarise(const struct mt_forecast *f, struct mt_forecast_times *t)
{
    enum { N = sizeof(struct mt_simclock_rank) / sizeof(double) };
    double mean[N] = {0}, most[N] = {0}, one[N];
    _Static_assert(sizeof(struct mt_simclock_rank) == N * sizeof(double), "nothing but doubles");
    for (int r = 0; r < f->o.world; r++) {
        double busy = 0;
        memcpy(one, &t->rank[r], sizeof one);
        for (int i = 0; i < N; i++) {
            mean[i] += one[i] / f->o.world;
            if (one[i] > most[i]) most[i] = one[i];
        }
        for (int k = 0; k < MT_N_WORK_KINDS; k++) busy += t->rank[r].busy[k];
        t->busy_s += busy / f->o.world;
        if (busy > t->compute_floor_s) t->compute_floor_s = busy;
    }
    memcpy(&t->mean, mean, sizeof mean);
    memcpy(&t->most, most, sizeof most);
    t->step_s = t->most.end;
}

/* Pairs by which recorded attention of a window is told; -1: there is none. */
static int64_t near_recorded(const struct mt_forecast *f)
{
    for (int64_t l = 0; l < f->shape.L; l++)
        if (mt_is_near(&f->shape, l)) return mt_model_pairs(&f->shape, l);
    return -1;
}

/* line: NULL, or arrays for the times of its rank. */
static mt_status replay(const struct mt_forecast *f, const struct mt_cluster *cluster,
                        enum mt_algorithm algorithm, struct mt_forecast_times *t, int traced, int64_t *times,
                        int64_t n, mt_err *e)
{
    size_t world = (size_t)f->o.world;
    double *factor = calloc(2 * world, sizeof *factor);
    *t = (struct mt_forecast_times){.rank = calloc(world, sizeof *t->rank)};
    mt_status st = factor && t->rank ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d ranks", f->o.world);
    if (st == MT_OK) {
        vary(f, cluster, factor, factor + world);
        struct mt_simclock_run run = {.cluster = cluster,
                                      .algorithm = algorithm,
                                      .compute = factor,
                                      .net = factor + world,
                                      .pairs = f->pairs,
                                      .near = f->near,
                                      .near_recorded = near_recorded(f),
                                      .micro = f->micro,
                                      .traced = traced,
                                      .begin = times,
                                      .ready = times ? times + n : NULL,
                                      .end = times ? times + 2 * n : NULL};
        st = mt_simclock_replay(f->clock, &run, t->rank, &t->operations, e);
    }
    if (st == MT_OK) summarise(f, t);
    free(factor);
    return st;
}

mt_status mt_forecast_replay(const struct mt_forecast *f, const struct mt_cluster *cluster,
                             enum mt_algorithm algorithm, struct mt_forecast_times *t, mt_err *e)
{
    return replay(f, cluster, algorithm, t, -1, NULL, 0, e);
}

static mt_status write_trace(const struct mt_forecast *f, const struct mt_cluster *cluster,
                             const struct mt_timeline *line, const char *path, mt_err *e)
{
    const char *groups[MT_N_GROUPS];
    char title[192];
    for (int g = 0; g < MT_N_GROUPS; g++) groups[g] = mt_mesh_group_name((enum mt_group_id)g);
    snprintf(title, sizeof title, "simulated step, rank %d of %d on %s", line->rank, f->o.world,
             cluster->name);
    FILE *out;
    MT_TRY(mt_print_open(&out, path, e));
    mt_status st = mt_timeline_write(line, 1, groups, title, out, e), closed = mt_print_close(out, path, e);
    return st == MT_OK ? closed : st;
}

mt_status mt_forecast_line_open(struct mt_forecast_line *l, struct mt_forecast *f,
                                const struct mt_cluster *cluster, enum mt_algorithm algorithm, int rank,
                                mt_err *e)
{
    struct mt_ctx ctx;
    struct mt_forecast_times t = {0};
    *l = (struct mt_forecast_line){.times = NULL};
    mt_ctx_init(&ctx, rank, f->o.world, &mt_device_sim, &f->s.ledger);
    ctx.answer = mt_forecast_answer;
    ctx.answer_arg = f;
    ctx.recording = &l->q;
    MT_TRY(mt_session_enqueue(&f->s, &ctx, e));
    l->times = calloc(3 * (size_t)l->q.n + 1, sizeof *l->times);
    MT_REQUIRE(l->times, e, MT_IO, "no memory for a time line");
    mt_status st = replay(f, cluster, algorithm, &t, rank, l->times, l->q.n, e);
    l->line = (struct mt_timeline){.rank = rank,
                                   .q = &l->q,
                                   .ledger = &f->s.ledger,
                                   .begin = l->times,
                                   .ready = l->times + l->q.n,
                                   .end = l->times + 2 * l->q.n};
    mt_forecast_times_release(&t);
    return st;
}

void mt_forecast_line_close(struct mt_forecast_line *l)
{
    mt_recording_release(&l->q);
    free(l->times);
    *l = (struct mt_forecast_line){.times = NULL};
}

mt_status mt_forecast_trace(struct mt_forecast *f, const struct mt_cluster *cluster,
                            enum mt_algorithm algorithm, int rank, const char *path,
                            struct mt_timeline_sum *sum, mt_err *e)
{
    struct mt_forecast_line l;
    mt_status st = mt_forecast_line_open(&l, f, cluster, algorithm, rank, e);
    if (st == MT_OK) st = write_trace(f, cluster, &l.line, path, e);
    if (st == MT_OK) st = mt_timeline_summarize(&l.line, sum, e);
    mt_forecast_line_close(&l);
    return st;
}

/* ---- bounds ---- */
const char *mt_plan_bound_key(enum mt_plan_bound b)
{
    static const char *const key[MT_N_BOUNDS] = {
#define X(name, key, text) #key,
        MT_PLAN_BOUNDS(X)
#undef X
    };
    return key[b];
}
const char *mt_plan_bound_text(enum mt_plan_bound b)
{
    static const char *const text[MT_N_BOUNDS] = {
#define X(name, key, text) text,
        MT_PLAN_BOUNDS(X)
#undef X
    };
    return text[b];
}

enum mt_plan_bound mt_forecast_bound(const struct mt_forecast *f, const struct mt_cluster *cluster,
                                     const struct mt_forecast_times *t, double floor[MT_N_BOUNDS])
{
    const double *link = t->most.link;
    enum mt_plan_bound bound = MT_BOUND_COMPUTE;
    floor[MT_BOUND_COMPUTE] = t->compute_floor_s;
    floor[MT_BOUND_INTERCONNECT] = link[MT_ON_NET];
    floor[MT_BOUND_NODE] = link[MT_ON_NODE];
    floor[MT_BOUND_HOST_LINK] = link[MT_ON_H2D] > link[MT_ON_D2H] ? link[MT_ON_H2D] : link[MT_ON_D2H];
    floor[MT_BOUND_LAUNCH] = (double)mt_simclock_operations(f->clock, 0) * MT_OF(cluster, launch_enqueue);
    for (int b = 0; b < MT_N_BOUNDS; b++)
        if (floor[b] > floor[bound]) bound = (enum mt_plan_bound)b;
    return bound;
}

void mt_forecast_limits(const mt_config *cfg, const struct mt_cluster *c, int64_t limit[MT_N_ARENAS])
{
    const int64_t asked[] = {cfg->device_memory, cfg->host_memory},
                  there[] = {(int64_t)(MT_OF(c, size_device) - MT_OF(c, size_device_other)),
                             (int64_t)MT_OF(c, size_host)};
    for (int a = 0; a < MT_N_ARENAS; a++) limit[a] = asked[a] && asked[a] < there[a] ? asked[a] : there[a];
}

void mt_forecast_times_release(struct mt_forecast_times *t)
{
    free(t->rank);
    *t = (struct mt_forecast_times){0};
}

mt_status mt_forecast_target(const struct mt_cluster *c, const struct mt_target **target, mt_err *e)
{
    enum mt_isa isa;
    if (!strcmp(c->target, "cuda")) {
        *target = mt_target_cuda();
        return MT_OK;
    }
    MT_TRY(mt_isa_parse(c->target, &isa, e));
    *target = mt_target_cpu(isa);
    return MT_OK;
}
