/* test: variants=release,asan,tsan-plain
 *
 * Collectives between executors: two of them, as if of two processes, and a wire of memory that moves only
 * when it is looked after, as the real one does. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "device/cpu/exec_stand.h"
#include "device/group.h"

enum { SIDES = 2, FLOATS = 256, ROUNDS = 60 };
enum { STREAMS = MT_HOST }; /* those that work on device memory */

/* Collective number k of a stream is over for a side when both have pulled the other's pieces. */
struct side {
    const struct mt_move *move;
    int64_t started, pulled;
};
struct link {
    pthread_mutex_t mu;
    struct side side[SIDES][MT_N_STREAMS];
    int64_t looks;
};
struct memory_wire {
    struct mt_wire base;
    struct link *link;
    int me;
};

static void start(struct mt_wire *base, int stream, const struct mt_move *move)
{
    struct memory_wire *w = (struct memory_wire *)base;
    struct side *s = &w->link->side[w->me][stream];
    pthread_mutex_lock(&w->link->mu);
    s->move = move;
    s->started++;
    memcpy(move[w->me].dst, move[w->me].src, (size_t)move[w->me].in);
    pthread_mutex_unlock(&w->link->mu);
}
static bool test(struct mt_wire *base, int stream)
{
    struct memory_wire *w = (struct memory_wire *)base;
    struct side *mine = &w->link->side[w->me][stream], *other = &w->link->side[!w->me][stream];
    pthread_mutex_lock(&w->link->mu);
    w->link->looks++;
    if (other->started >= mine->started && mine->pulled < mine->started) {
        MT_ASSERT(mine->move[!w->me].in == other->move[w->me].out);
        memcpy(mine->move[!w->me].dst, other->move[w->me].src, (size_t)mine->move[!w->me].in);
        mine->pulled++;
    }
    bool over = mine->pulled == mine->started && other->pulled >= mine->started;
    pthread_mutex_unlock(&w->link->mu);
    return over;
}
static void close_wire(struct mt_wire *base)
{
    free(base);
}

struct process {
    struct mt_ledger g;
    struct mt_ctx ctx;
    struct mt_cpu_dev dev;
    struct mt_group *group;
    struct mt_exec *exec;
    mt_view src[STREAMS], dst[STREAMS];
    void (*host)(struct mt_ctx *, void *);
    int late_us, bad;
    mt_status st;
};

static void process_open(struct process *p, struct link *link, int me, struct mt_exec_options o)
{
    mt_err e = {0};
    struct mt_ctx *ctx = &p->ctx;
    struct memory_wire *w = calloc(1, sizeof *w);
    *w = (struct memory_wire){{start, test, close_wire}, link, me};
    mt_ledger_init(&p->g, 64);
    for (int s = 0; s < STREAMS; s++) {
        p->src[s] = mt_tensor_add(&p->g, MT_DEVICE_ARENA, MT_ROW_MASTER, MT_F32, FLOATS, 0, 0, "src");
        p->dst[s] = mt_tensor_add(&p->g, MT_DEVICE_ARENA, MT_ROW_MASTER, MT_F32, SIDES * FLOATS, 0, 0, "dst");
    }
    mt_ctx_init(ctx, me, SIDES, &mt_device_cpu, &p->g);
    ctx->arena[MT_DEVICE_ARENA] = calloc(1, (size_t)p->g.size[MT_DEVICE_ARENA]);
    CHECK_INT(mt_group_open(&p->group, (int[]){0, 1}, SIDES, &e), MT_OK);
    CHECK_INT(mt_group_carry(p->group, &w->base, &e), MT_OK);
    ctx->group[0] = p->group;
    mt_cpu_dev_init(&p->dev, MT_ISA_SCALAR);
    CHECK_INT(mt_exec_open(&p->exec, o, &ctx, 1, &p->dev, &e), MT_OK);
}
static void process_close(struct process *p)
{
    mt_exec_close(p->exec);
    mt_group_close(p->group);
    free(p->ctx.arena[MT_DEVICE_ARENA]);
    mt_ledger_release(&p->g);
}
static void *process_main(void *arg)
{
    struct process *p = arg;
    if (p->late_us) usleep((useconds_t)p->late_us);
    p->st = mt_exec_run(p->exec, p->host, &arg);
    return NULL;
}
/* Both run host to its end. */
static void run_both(struct process p[SIDES], void (*host)(struct mt_ctx *, void *))
{
    pthread_t other;
    p[0].host = p[1].host = host;
    pthread_create(&other, NULL, process_main, &p[1]);
    process_main(&p[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < SIDES; i++) {
        CHECK_INT(p[i].st, MT_OK);
        CHECK_INT(p[i].bad, 0);
    }
}

/* Every round, on every stream: fill what is sent, gather, and change it at once; a buffer is free when its
 * collective is over, not before. */
static void rounds(struct mt_ctx *ctx, void *arg)
{
    struct process *p = arg;
    float got[SIDES * FLOATS];
    for (int t = 0; t < ROUNDS; t++) {
        for (int s = 0; s < STREAMS; s++) {
            struct mt_stream *st = &ctx->stream[(s + t * (1 + ctx->rank)) % STREAMS];
            mt_fill_f32(st, p->src[st->id], 100 * t + 10 * ctx->rank + st->id);
            mt_gather(st, p->dst[st->id], p->src[st->id], 0, SIDES, 4 * FLOATS);
            mt_fill_f32(st, p->src[st->id], -1);
        }
        for (int s = 0; s < STREAMS; s++) {
            mt_host_read(&ctx->stream[s], MT_READ_STATE, t, p->dst[s], got);
            for (int i = 0; i < SIDES * FLOATS; i++)
                p->bad += got[i] != (float)(100 * t + 10 * (i / FLOATS) + s);
        }
    }
}
TEST(bits_in_any_order)
{
    for (int seed = 0; seed <= 12; seed++) {
        struct process p[SIDES];
        memset(p, 0, sizeof p);
        struct link link = {.mu = PTHREAD_MUTEX_INITIALIZER};
        struct mt_exec_options o = {
            .workers = 1 + seed % 3, .order_seed = seed, .ring = 32 << seed % 3, .poison = seed % 2};
        for (int i = 0; i < SIDES; i++) process_open(&p[i], &link, i, o);
        run_both(p, rounds);
        for (int i = 0; i < SIDES; i++) process_close(&p[i]);
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void one_gather(struct mt_ctx *ctx, void *arg)
{
    struct process *p = arg;
    mt_gather(&ctx->stream[MT_GATHER], p->dst[0], p->src[0], 0, SIDES, 4 * FLOATS);
}
/* A collective under way is no hang, and waiting for it leaves the cores to others. */
TEST(waiting_is_quiet)
{
    struct process p[SIDES];
    memset(p, 0, sizeof p);
    struct link link = {.mu = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < SIDES; i++) process_open(&p[i], &link, i, (struct mt_exec_options){.workers = 2});
    p[1].late_us = 500000;
    double cpu = cpu_seconds();
    run_both(p, one_gather);
    CHECK(cpu_seconds() - cpu < 0.25);
    CHECK(link.looks > 100);
    for (int i = 0; i < SIDES; i++) process_close(&p[i]);
}

/* Work of other streams goes on, by the one worker there is, and the collective is looked after meanwhile. */
static void busy(struct mt_ctx *ctx, void *arg)
{
    struct process *p = arg;
    float got[FLOATS];
    mt_gather(&ctx->stream[MT_GATHER], p->dst[0], p->src[0], 0, SIDES, 4 * FLOATS);
    for (int i = 0; i < 20000; i++) mt_fill_f32(&ctx->stream[MT_COMPUTE], p->src[1], i);
    mt_host_read(&ctx->stream[MT_COMPUTE], MT_READ_STATE, 0, p->src[1], got);
    p->bad += got[7] != 19999;
    mt_gather(&ctx->stream[MT_REDUCE], p->dst[2], p->src[2], 0, SIDES, 4 * FLOATS);
}
TEST(work_goes_on)
{
    struct process p[SIDES];
    memset(p, 0, sizeof p);
    struct link link = {.mu = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < SIDES; i++) process_open(&p[i], &link, i, (struct mt_exec_options){.workers = 1});
    run_both(p, busy);
    for (int i = 0; i < SIDES; i++) process_close(&p[i]);
}

static void *run_one(void *arg)
{
    struct process *p = arg;
    p->st = mt_exec_run(p->exec, one_gather, &arg);
    return NULL;
}
/* The other does not come for a while: a third thread sees what is waited for. */
TEST(a_watcher_sees_who_waits_where)
{
    struct process p[SIDES];
    struct mt_rank_stand at = {0}, other = {0};
    pthread_t thread[SIDES];
    struct link link = {.mu = PTHREAD_MUTEX_INITIALIZER};
    memset(p, 0, sizeof p);
    for (int i = 0; i < SIDES; i++) process_open(&p[i], &link, i, (struct mt_exec_options){.workers = 1});
    MT_ASSERT(!pthread_create(&thread[0], NULL, run_one, &p[0]));
    do usleep(1000);
    while (CHECK(mt_exec_stand(p[0].exec, 0, &at)) && !at.entered[0][MT_GATHER]);
    CHECK(mt_exec_stand(p[1].exec, 0, &other));
    CHECK_INT(at.run, 1);
    CHECK_INT(at.stream[MT_GATHER].kind, MT_STAND_MEETS);
    CHECK_INT(at.stream[MT_GATHER].seq, 1);
    CHECK_INT(at.stream[MT_GATHER].what.seq, 1);
    CHECK_INT(at.stream[MT_GATHER].members, SIDES);
    CHECK_INT(at.stream[MT_COMPUTE].kind, MT_STAND_EMPTY);
    CHECK_INT(at.n_last, 1);
    CHECK_INT(at.last[0].op, MT_OP_gather);
    CHECK_INT(other.run, 0);
    CHECK_INT(other.entered[0][MT_GATHER], 0);
    CHECK_STR(mt_stand_host(other.host), "has ended");
    MT_ASSERT(!pthread_create(&thread[1], NULL, run_one, &p[1]));
    for (int i = 0; i < SIDES; i++) {
        pthread_join(thread[i], NULL);
        CHECK_INT(p[i].st, MT_OK);
        CHECK(mt_exec_stand(p[i].exec, 0, &at) && at.stream[MT_GATHER].kind == MT_STAND_EMPTY && !at.working);
        process_close(&p[i]);
    }
}

int main(void)
{
    RUN(bits_in_any_order);
    RUN(waiting_is_quiet);
    RUN(work_goes_on);
    RUN(a_watcher_sees_who_waits_where);
    return DONE();
}
