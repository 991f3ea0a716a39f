/* plan.c: which points of a sweep are worth a run. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/print.h"
#include "ckpt/file.h"
#include "sweep/study.h"
#include "train/forecast.h"
#include "train/savings.h"

struct planner {
    struct mt_study *t;
    const struct mt_cluster *cluster; /* NULL: only memory is planned */
    uint64_t key;                     /* of all that a plan depends on beside the configuration */
    atomic_int next;
};

/* ---- one point ---- */
static mt_status target_of(const struct planner *g, const mt_config *c, const struct mt_target **target,
                           mt_err *e)
{
    enum mt_isa isa;
    if (g->cluster) return mt_forecast_target(g->cluster, target, e);
    MT_TRY(mt_isa_parse(mt_choices_device_isa[c->device_isa], &isa, e));
    *target = mt_target_cpu(isa);
    return MT_OK;
}

/* Tokens a second of all ranks, by the programs of one node's. */
static mt_status plan_time(const struct planner *g, const mt_config *c, const struct mt_target *target,
                           struct mt_study_point *p, mt_err *e)
{
    struct mt_forecast f;
    struct mt_forecast_times x = {0};
    int64_t ranks = g->t->sweep->o.ranks, per = c->mesh_ranks_per_node;
    struct mt_forecast_options o = {
        .world = (int)ranks, .seed = 1, .sample = (int)(per > 0 && per < ranks ? per : ranks)};
    mt_status st = mt_forecast_open(&f, c, g->cluster, target, &o, e);
    if (st == MT_OK) st = mt_forecast_replay(&f, g->cluster, MT_ALG_DIRECT, &x, e);
    if (st == MT_OK) p->planned = (double)(c->train_global_batch * c->train_seq_len) / x.step_s;
    mt_forecast_times_release(&x);
    mt_forecast_close(&f);
    return st;
}

static void say_excess(struct mt_study_point *p, const struct mt_room *room)
{
    size_t n = 0;
    for (int a = 0; a < MT_N_ARENAS; a++)
        if (room->arena[a] && p->peak[a] > room->arena[a] && n < sizeof p->why)
            n += (size_t)snprintf(p->why + n, sizeof p->why - n, "%s%s memory: %.2f MiB of %.2f",
                                  n ? ", " : "", mt_arena_name(a), (double)p->peak[a] / (1 << 20),
                                  (double)room->arena[a] / (1 << 20));
}

static mt_status plan_config(const struct planner *g, mt_config *c, struct mt_study_point *p, mt_err *e)
{
    const struct mt_target *target;
    struct mt_room room = {.arena = {c->device_memory, c->host_memory}};
    MT_TRY(target_of(g, c, &target, e));
    if (g->cluster) {
        c->mesh_ranks_per_node = (int64_t)MT_OF(g->cluster, topology_ranks_per_node);
        mt_forecast_limits(c, g->cluster, room.arena);
    }
    MT_TRY(mt_session_peak(c, target, (int)g->t->sweep->o.ranks, 0, false, p->peak, e));
    if (mt_room_excess(&room, p->peak)) {
        p->verdict = MT_POINT_TOO_LARGE;
        say_excess(p, &room);
        return MT_OK;
    }
    return g->cluster ? plan_time(g, c, target, p, e) : MT_OK;
}

/* ---- kept in the point's folder ---- */
static bool read_plan(const struct planner *g, struct mt_study_point *p)
{
    char path[MT_CONFIG_PATH];
    uint64_t key;
    int verdict;
    FILE *f = mt_study_path(g->t, p, "plan", path, sizeof path) ? fopen(path, "r") : NULL;
    if (!f) return false;
    struct mt_study_point q = *p;
    bool ok = fscanf(f, "%" SCNx64 " %d %" SCNd64 " %" SCNd64 " %lg %191[^\n]", &key, &verdict, &q.peak[0],
                     &q.peak[1], &q.planned, q.why) >= 5 &&
              key == g->key && verdict >= MT_POINT_RUNS && verdict <= MT_POINT_TOO_LARGE;
    fclose(f);
    if (!ok) return false;
    q.verdict = (enum mt_point_verdict)verdict;
    *p = q;
    return true;
}
static mt_status keep_plan(const struct planner *g, const struct mt_study_point *p, mt_err *e)
{
    char path[MT_CONFIG_PATH];
    FILE *f;
    MT_REQUIRE(mt_study_path(g->t, p, "", path, sizeof path), e, MT_CONFIG, "the sweep's dir is too long");
    MT_TRY(mt_make_folders(path, e));
    MT_REQUIRE(mt_study_path(g->t, p, "plan", path, sizeof path), e, MT_CONFIG,
               "the sweep's dir is too long");
    MT_TRY(mt_print_open(&f, path, e));
    fprintf(f, "%016" PRIx64 " %d %" PRId64 " %" PRId64 " %.17g %s\n", g->key, (int)p->verdict, p->peak[0],
            p->peak[1], p->planned, p->why);
    return mt_print_close(f, path, e);
}

static void plan_point(const struct planner *g, struct mt_study_point *p)
{
    mt_err e = {0};
    if (p->verdict != MT_POINT_RUNS || read_plan(g, p)) return;
    mt_config *c = malloc(sizeof *c);
    mt_status st = c ? MT_OK : mt_err_set(&e, MT_IO, "no memory for a configuration");
    if (st == MT_OK) st = mt_sweep_config(g->t->sweep, p->p, true, c, &e);
    if (st == MT_OK) st = plan_config(g, c, p, &e);
    if (st == MT_OK) st = keep_plan(g, p, &e);
    if (st != MT_OK) {
        p->verdict = MT_POINT_REFUSED;
        snprintf(p->why, sizeof p->why, "%.*s", (int)sizeof p->why - 1, e.msg);
        p->why[strcspn(p->why, "\n")] = 0;
    }
    free(c);
}

/* ---- several at a time ---- */
static void *plan_some(void *arg)
{
    struct planner *g = arg;
    for (int i; (i = atomic_fetch_add(&g->next, 1)) < g->t->n;) plan_point(g, &g->t->point[i]);
    return NULL;
}
static void plan_all(struct planner *g)
{
    enum { MOST = 16 };
    pthread_t thread[MOST];
    const struct mt_set cpus = mt_cpus_mine();
    int n = 0, most = mt_set_count(&cpus) < g->t->n ? mt_set_count(&cpus) : g->t->n;
    atomic_init(&g->next, 0);
    while (n < most - 1 && n < MOST && !pthread_create(&thread[n], NULL, plan_some, g)) n++;
    plan_some(g);
    while (n > 0) pthread_join(thread[--n], NULL);
}

/* ---- domination ---- */
static bool beats(const struct mt_study *t, const struct mt_study_point *a, const struct mt_study_point *b)
{
    bool smaller = true;
    for (int i = 0; i < MT_N_ARENAS; i++) smaller = smaller && a->peak[i] <= b->peak[i];
    return smaller && a->planned > b->planned * (1 + t->sweep->o.plan_margin);
}
void mt_study_dominate(struct mt_study *t)
{
    enum mt_choice_metric m = t->sweep->o.metric;
    bool speed = m == MT_METRIC_TOKENS_PER_S || m == MT_METRIC_MFU || m == MT_METRIC_STEP_S;
    if (!speed || t->sweep->o.plan_dominated != MT_DOMINATED_SKIP) return;
    for (int i = 0; i < t->n; i++) {
        struct mt_study_point *p = &t->point[i];
        int best = -1;
        if (p->verdict != MT_POINT_RUNS || !(p->planned > 0) || i == t->baseline) continue;
        for (int k = 0; k < t->n; k++) {
            const struct mt_study_point *q = &t->point[k];
            if (q->verdict != MT_POINT_RUNS && q->verdict != MT_POINT_DOMINATED) continue;
            if (beats(t, q, p) && (best < 0 || q->planned > t->point[best].planned)) best = k;
        }
        if (best < 0) continue;
        p->verdict = MT_POINT_DOMINATED;
        snprintf(p->why, sizeof p->why, "point %d is planned to be %.2f times as fast, in no more memory",
                 best + 1, t->point[best].planned / p->planned);
    }
}

/* ---- all ---- */
static mt_status load_cluster(struct planner *g, struct mt_cluster *c, mt_err *e)
{
    const mt_sweep_options *o = &g->t->sweep->o;
    char path[MT_CONFIG_PATH];
    int64_t bytes;
    uint64_t hash = 0;
    if (*o->plan_cluster) {
        mt_cluster_path(o->plan_cluster, *g->t->sweep->base ? g->t->sweep->base : g->t->sweep->name, path,
                        sizeof path);
        MT_TRY(mt_cluster_load(c, path, e));
        MT_TRY(mt_work_check(c, e));
        MT_TRY(mt_hash_file(path, &bytes, &hash, e));
        g->cluster = c;
    }
    const uint64_t all[] = {hash, (uint64_t)o->ranks};
    g->key = mt_xxh3(all, sizeof all);
    return MT_OK;
}

mt_status mt_study_plan(struct mt_study *t, mt_err *e)
{
    struct planner g = {.t = t};
    struct mt_cluster *c = malloc(sizeof *c);
    mt_status st = c ? MT_OK : mt_err_set(e, MT_IO, "no memory for a cluster");
    if (st == MT_OK) st = mt_make_folders(t->sweep->o.dir, e);
    if (st == MT_OK) st = load_cluster(&g, c, e);
    if (st == MT_OK) plan_all(&g);
    if (st == MT_OK) mt_study_dominate(t);
    free(c);
    return st;
}
