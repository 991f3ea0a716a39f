/* forecast_record.c: every rank's step, recorded; by as many threads as there are cores, each with a session and a clock of its
 * own, whose programs are brought together at the end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/forecast.h"

void mt_forecast_answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    static const double one = 1;
    static const int64_t one_i = 1;
    const struct mt_forecast *f = arg;
    if (kind == MT_READ_LOSS || kind == MT_READ_NORM) memcpy(dst, &one, sizeof one);
    if (kind == MT_READ_STATE && src.bytes == sizeof one_i) memcpy(dst, &one_i, sizeof one_i);
    if (kind != MT_READ_COUNTS) return;
    const struct mt_shape *d = &f->shape;
    int32_t *counts = dst;
    for (int64_t i = 0; i < src.bytes / (int64_t)sizeof *counts; i += d->E)
        memcpy(counts + i, f->popular + index % d->L * d->E, (size_t)d->E * sizeof *counts);
}

static int members(const void *mesh, int id, int rank, int *out)
{
    return mt_mesh_members(mesh, (enum mt_group_id)id, rank, out);
}

static void sum_traffic(struct mt_forecast_traffic *out, const struct mt_traffic *t)
{
    memset(out, 0, sizeof *out);
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int s = 0; s < MT_N_STREAMS; s++)
            for (int op = 0; op < MT_N_COMM_OPS; op++)
                for (int l = 0; l < MT_N_LINKS; l++) {
                    out->sent[g][l] += t->lane[g][s][op].flow[l].sent;
                    out->received[g][l] += t->lane[g][s][op].flow[l].received;
                }
}

/* ---- threads ---- */
struct work {
    struct mt_forecast *f;
    const struct mt_target *target;
    int nodes_per_group, ranks; /* to record: those of one replica */
    atomic_int next, failed;
};
struct worker {
    struct work *all;
    struct mt_session own; /* of all but the first, which lays the forecast's out */
    struct mt_session *s;
    struct mt_simclock *clock;
    pthread_t thread;
    bool started;
    mt_status st;
    mt_err e;
};

/* After the first rank: what all of them will take, programs and times. */
static mt_status check_room(const struct mt_simclock *k, int ranks, mt_err *e)
{
    double need = 1.5 * ranks * (double)mt_simclock_bytes(k), /* and what a replay takes */
        have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    MT_REQUIRE(need <= have, e, MT_IO,
               "planning %d ranks of %lld operations each may take %.1f GiB, and this machine has %.1f: plan "
               "fewer micro-batches in a step (a smaller train.global_batch), or more mesh.replicas",
               ranks, (long long)mt_simclock_operations(k, 0), need / (1 << 30), have / (1 << 30));
    return MT_OK;
}

static mt_status record_rank(struct worker *w, int rank, mt_err *e)
{
    struct mt_forecast *f = w->all->f;
    struct mt_ctx ctx;
    mt_ctx_init(&ctx, rank, f->o.world, &mt_device_simclock, &w->s->ledger);
    ctx.answer = mt_forecast_answer;
    ctx.answer_arg = f;
    mt_simclock_begin(w->clock, &ctx);
    MT_TRY(mt_session_enqueue(w->s, &ctx, e));
    mt_simclock_end(w->clock, &ctx);
    sum_traffic(&f->traffic[rank], ctx.traffic);
    return rank ? MT_OK : check_room(w->clock, w->all->ranks, e);
}

/* The i-th rank to be recorded: one of every node, then the next of every node, as a session turns more easily to a rank of the
 * same place in its node. */
static int in_turn(const struct work *x, int i)
{
    int per = (int)x->f->cfg->mesh_ranks_per_node, nodes = x->ranks / per;
    return nodes * per == x->ranks ? i % nodes * per + i / nodes : i;
}

static mt_status record_ranks(struct worker *w, mt_err *e)
{
    struct work *x = w->all;
    const struct mt_forecast *f = x->f;
    if (w->s == &w->own || f->o.sample)
        MT_TRY(mt_session_describe(w->s, f->cfg, x->target, f->o.world, e));
    else
        MT_TRY(mt_session_plan(w->s, f->cfg, x->target, f->o.world, 0, e));
    struct mt_simclock_options k = {.world = f->o.world,
                                    .ranks_per_node = (int)f->cfg->mesh_ranks_per_node,
                                    .nodes_per_group = x->nodes_per_group,
                                    .n_groups = MT_N_GROUPS,
                                    .members = members,
                                    .mesh = &w->s->mesh};
    MT_TRY(mt_simclock_open(&w->clock, &k, e));
    for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->ranks && !atomic_load(&x->failed);)
        MT_TRY(record_rank(w, in_turn(x, i), e));
    return MT_OK;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    w->st = record_ranks(w, &w->e);
    if (w->st != MT_OK) atomic_store(&w->all->failed, 1);
    return NULL;
}

static int threads_for(int ranks)
{
    enum { MOST = 8 };
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), n = cores < MOST ? cores : MOST;
    return n < 1 ? 1 : n < ranks ? n : ranks;
}

/* The first failure, whoever had it; or all programs in the forecast's clock. */
static mt_status bring_together(struct mt_forecast *f, struct worker *w, int n, int ranks, mt_err *e)
{
    for (int i = 0; i < n; i++)
        if (w[i].st != MT_OK) return mt_err_set(e, w[i].st, "%s", w[i].e.msg);
    f->clock = w[0].clock;
    w[0].clock = NULL;
    for (int i = 1; i < n; i++)
        if (w[i].started) mt_simclock_merge(f->clock, w[i].clock);
    for (int r = ranks; r < f->o.world; r++) { /* replicas do the same; of a sample it is taken to be so */
        mt_simclock_same(f->clock, r, r % ranks);
        f->traffic[r] = f->traffic[r % ranks];
    }
    return MT_OK;
}

mt_status mt_forecast_record(struct mt_forecast *f, const struct mt_target *target, int nodes_per_group,
                             mt_err *e)
{
    struct work x = {.f = f,
                     .target = target,
                     .nodes_per_group = nodes_per_group,
                     .ranks = f->o.record_all ? f->o.world : f->o.world / (int)f->cfg->mesh_replicas};
    if (f->o.sample && f->o.sample < x.ranks) x.ranks = f->o.sample;
    int n = f->o.sample ? 1 : threads_for(x.ranks);
    struct worker *w = calloc((size_t)n, sizeof *w);
    MT_REQUIRE(w, e, MT_IO, "no memory for %d threads", n);
    for (int i = 0; i < n; i++) {
        w[i].all = &x;
        w[i].s = i ? &w[i].own : &f->s;
    }
    for (int i = 1; i < n; i++) w[i].started = !pthread_create(&w[i].thread, NULL, work, &w[i]);
    work(&w[0]); /* whoever could not start, the others do the work of */
    for (int i = 1; i < n; i++)
        if (w[i].started) pthread_join(w[i].thread, NULL);
    mt_status st = bring_together(f, w, n, x.ranks, e);
    for (int i = 0; i < n; i++) {
        mt_simclock_close(w[i].clock);
        mt_session_close(&w[i].own);
    }
    free(w);
    return st;
}
