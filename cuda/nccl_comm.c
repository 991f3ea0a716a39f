/* nccl_comm.c: communicators: made, looked after, given up. All are non-blocking, so that whoever waits can be told to stop. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "device/group.h"
#include "nccl_core.h"

/* SETUP_S, PART_S: what making one, and taking one apart, may take. CTAS: blocks of a communicator at most: those of three
 * streams are resident on a device together, whatever else runs there, so none waits for another's place. */
#define SETUP_S 300.0
#define PART_S 20.0
enum { CTAS = 32, PAUSE_NS = 20000 };

mt_status mt_nccl_failed(struct mt_carrier *c, ncclResult_t r, mt_err *e)
{
    const char *more = c->t.ncclGetLastError(NULL);
    MT_FAIL(e, r == ncclRemoteError ? MT_RANKS : MT_DEVICE, "NCCL: %s%s%s", c->t.ncclGetErrorString(r),
            more && *more ? ": " : "", more ? more : "");
}

/* InProgress, too, for one that is not there yet. */
static ncclResult_t state_of(struct mt_carrier *c, const ncclComm_t *comm)
{
    ncclResult_t state = ncclInProgress, r = ncclSuccess;
    pthread_mutex_lock(&c->mu);
    if (*comm) r = c->t.ncclCommGetAsyncError(*comm, &state);
    pthread_mutex_unlock(&c->mu);
    return r ? r : state;
}

mt_status mt_nccl_settle(struct mt_carrier *c, const ncclComm_t *comm, double seconds, mt_err *e)
{
    const double begun = mt_now();
    ncclResult_t r;
    while ((r = state_of(c, comm)) == ncclInProgress) {
        MT_REQUIRE(!c->aborted, e, (mt_status)c->aborted, "its communicator was given up");
        MT_REQUIRE(!(seconds > 0) || mt_now() - begun < seconds, e, MT_HANG,
                   "not over after %.0f s: another process is not there, or the network does not reach it",
                   seconds);
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    return r ? mt_nccl_failed(c, r, e) : MT_OK;
}

/* ---- the library ---- */
static bool find(char *what, size_t size)
{
    struct mt_nccl_table t;
    char version[MT_NCCL_VERSION_TEXT];
    mt_err e = {0};
    if (mt_nccl_table_open(&t, NULL, &e) != MT_OK) {
        snprintf(what, size, "%s", e.msg);
        return false;
    }
    mt_nccl_version_text(t.version, version);
    snprintf(what, size, "NCCL %s", version);
    mt_nccl_table_close(&t);
    return true;
}

static mt_status open_library(struct mt_carrier **out, mt_err *e)
{
    struct mt_carrier *c = calloc(1, sizeof *c);
    *out = NULL;
    MT_REQUIRE(c, e, MT_IO, "opening NCCL: no memory");
    mt_status status = mt_nccl_table_open(&c->t, NULL, e);
    if (status) {
        free(c);
        return status;
    }
    pthread_mutex_init(&c->mu, NULL);
    *out = c;
    return MT_OK;
}

static bool alloc(struct mt_carrier *c, void **p, size_t bytes)
{
    return !c->t.ncclMemAlloc(p, bytes);
}
static void release(struct mt_carrier *c, void *p)
{
    (void)c->t.ncclMemFree(p);
}

/* ---- set-up ---- */
static ncclConfig_t config(void)
{
    ncclConfig_t x = NCCL_CONFIG_INITIALIZER;
    x.blocking = 0;
    x.maxCTAs = CTAS;
    x.splitShare = 0; /* those that share their insides run one after another */
    return x;
}

static mt_status open_world(struct mt_carrier *c, const struct mt_job *job, mt_err *e)
{
    ncclUniqueId id = {{0}};
    ncclConfig_t x = config();
    ncclResult_t r = job->me ? ncclSuccess : c->t.ncclGetUniqueId(&id);
    MT_TRY(mt_job_agree(job, r ? mt_nccl_failed(c, r, e) : MT_OK, e));
    mt_job_broadcast(job, &id, sizeof id, 0);
    pthread_mutex_lock(&c->mu);
    r = c->t.ncclCommInitRankConfig(&c->world.comm, job->n, id, job->me, &x);
    pthread_mutex_unlock(&c->mu);
    if (r && r != ncclInProgress) return mt_nccl_failed(c, r, e);
    return mt_nccl_settle(c, &c->world.comm, SETUP_S, e);
}

/* color: the first of the group's ranks. Every process calls it, for groups of which it is the only member as well. */
static mt_status split(struct mt_carrier *c, const struct mt_ctx *ctx, int group, int stream, mt_err *e)
{
    const struct mt_group *g = ctx->group[group];
    struct mt_nccl_part *p = &c->part[group][stream];
    ncclConfig_t x = config();
    const bool alone = !g || g->n < 2;
    pthread_mutex_lock(&c->mu);
    ncclResult_t r =
        c->t.ncclCommSplit(c->world.comm, alone ? NCCL_SPLIT_NOCOLOR : g->rank[0], ctx->rank, &p->comm, &x);
    pthread_mutex_unlock(&c->mu);
    if (r && r != ncclInProgress) return mt_nccl_failed(c, r, e);
    MT_TRY(mt_nccl_settle(c, &c->world.comm, SETUP_S, e));
    if (alone) return MT_OK;
    MT_TRY(mt_nccl_settle(c, &p->comm, SETUP_S, e));
    const int64_t bytes = ctx->ledger->size[MT_DEVICE_ARENA];
    if (!bytes) return MT_OK;
    r = c->t.ncclCommRegister(p->comm, ctx->arena[MT_DEVICE_ARENA], (size_t)bytes, &p->arena);
    return r ? mt_nccl_failed(c, r, e) : MT_OK;
}

static mt_status make(struct mt_carrier *c, const struct mt_job *job, const struct mt_ctx *ctx,
                      const uint8_t used[MT_MAX_GROUPS], mt_err *e)
{
    int64_t any[MT_MAX_GROUPS][MT_N_STREAMS];
    char version[MT_NCCL_VERSION_TEXT];
    mt_nccl_version_text(c->t.version, version);
    MT_TRY(mt_job_same(job, "the version of NCCL", version, e));
    for (int g = 0; g < MT_MAX_GROUPS; g++)
        for (int s = 0; s < MT_N_STREAMS; s++) any[g][s] = used[g] >> s & 1;
    mt_job_most(job, &any[0][0], (int64_t)MT_MAX_GROUPS * MT_N_STREAMS);
    MT_TRY(mt_job_agree(job, open_world(c, job, e), e));
    for (int g = 0; g < MT_MAX_GROUPS; g++)
        for (int s = 0; s < MT_N_STREAMS; s++)
            if (any[g][s]) MT_TRY(mt_job_agree(job, split(c, ctx, g, s, e), e));
    return MT_OK;
}

static mt_status join(struct mt_carrier *c, const struct mt_job *job, const struct mt_ctx *ctx,
                      const uint8_t used[MT_MAX_GROUPS], mt_err *e)
{
    mt_status status = make(c, job, ctx, used, e);
    c->failed |= status != MT_OK;
    if (status) mt_err_while(e, "joining %d processes", job->n);
    return status;
}

/* ---- looked after ---- */
static bool look(struct mt_carrier *c, struct mt_carrier_fault *fault)
{
    for (int i = -1; i < MT_MAX_GROUPS * MT_N_STREAMS; i++) {
        const int g = i / MT_N_STREAMS, s = i % MT_N_STREAMS;
        const ncclComm_t *comm = i < 0 ? &c->world.comm : &c->part[g][s].comm;
        const ncclResult_t r = state_of(c, comm);
        if (!r || r == ncclInProgress) continue;
        *fault = (struct mt_carrier_fault){i < 0 ? -1 : g, i < 0 ? -1 : s, {0}};
        (void)mt_nccl_failed(c, r, &fault->err);
        return true;
    }
    return false;
}

static void give_up(struct mt_carrier *c, struct mt_nccl_part *p)
{
    if (p->comm) (void)c->t.ncclCommAbort(p->comm);
    *p = (struct mt_nccl_part){NULL, NULL};
}
static void abort_all(struct mt_carrier *c, mt_status why)
{
    int none = MT_OK;
    (void)atomic_compare_exchange_strong(&c->aborted, &none, (int)why);
    pthread_mutex_lock(&c->mu);
    for (int g = 0; g < MT_MAX_GROUPS; g++)
        for (int s = 0; s < MT_N_STREAMS; s++) give_up(c, &c->part[g][s]);
    give_up(c, &c->world);
    pthread_mutex_unlock(&c->mu);
}
static mt_status aborted(const struct mt_carrier *c)
{
    return (mt_status)c->aborted;
}

/* ---- taken apart ---- */
static bool finalize(struct mt_carrier *c, struct mt_nccl_part *p)
{
    mt_err e = {0};
    if (!p->comm) return true;
    if (p->arena) (void)c->t.ncclCommDeregister(p->comm, p->arena);
    p->arena = NULL;
    const ncclResult_t r = c->t.ncclCommFinalize(p->comm);
    if ((r && r != ncclInProgress) || mt_nccl_settle(c, &p->comm, PART_S, &e)) return false;
    (void)c->t.ncclCommDestroy(p->comm);
    p->comm = NULL;
    return true;
}
static void part(struct mt_carrier *c)
{
    bool together = !c->failed && !c->aborted;
    for (int g = 0; g < MT_MAX_GROUPS; g++)
        for (int s = 0; s < MT_N_STREAMS; s++) together = together && finalize(c, &c->part[g][s]);
    if (!together || !finalize(c, &c->world)) abort_all(c, MT_RANKS);
}
static void close_library(struct mt_carrier *c)
{
    pthread_mutex_destroy(&c->mu);
    mt_nccl_table_close(&c->t);
    free(c);
}

const struct mt_carrier_ops mt_carrier_nccl = {.find = find,
                                               .open = open_library,
                                               .alloc = alloc,
                                               .free = release,
                                               .join = join,
                                               .start = mt_nccl_start,
                                               .look = look,
                                               .abort = abort_all,
                                               .aborted = aborted,
                                               .part = part,
                                               .close = close_library};
