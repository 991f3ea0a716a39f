/* test: variants=cuemu */
/* Collectives over NCCL: the program's own calls, to a stand-in for the library that moves data between threads here. Each
 * collective, in several orders; training, to the bit as with all ranks in one process; what fails, and who is told. On a GPU, with
 * NCCL itself: one rank, for a GPU takes no more of them. */
#include <stdatomic.h>
#include <unistd.h>

#include "crew.h"
#include "device_core.h"
#include "moves.h"
#include "nccl_core.h"
#include "small.h"
#include "tests/train/ranks.h"
#include "train/hang.h"

#if defined(__SANITIZE_THREAD__)
enum { STEPS = 1, ALL_ORDERS = 2, SANITIZED = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { STEPS = 1, ALL_ORDERS = N_ORDERS, SANITIZED = 1 };
#else
enum { STEPS = 2, ALL_ORDERS = N_ORDERS, SANITIZED = 0 };
#endif

/* ---- collectives, a thread a rank ---- */
static int everybody(const void *arg, int id, int rank, int *out)
{
    (void)arg, (void)id, (void)rank;
    for (int i = 0; i < RANKS; i++) out[i] = i;
    return RANKS;
}
struct member {
    struct world *w;
    struct crew *crew;
    pthread_barrier_t *ready, *over; /* with the test's own thread: all are open, all may close */
    int number, runs;
    enum mt_op op;
    mt_status opened, ran;
    mt_err err;
    bool got;
    atomic_bool ended; /* all runs */
};
static mt_status member_open(struct member *m, struct mt_job *job, struct mt_comm *comm)
{
    struct rank *r = &m->w->rank[m->number];
    struct mt_ctx *ctxs[] = {&r->ctx};
    const struct mt_cuda_options o = {.several = true, .scratch_bytes = SCRATCH};
    const uint8_t used[MT_MAX_GROUPS] = {1 << MT_GATHER};
    MT_TRY(mt_comm_open(comm, job, ctxs, 1, everybody, NULL, &m->err));
    MT_TRY(mt_cuda_open(&r->cuda, &r->ctx, mt_target_cuda(), &o, &m->err));
    return mt_carrier_nccl.join(r->cuda->carrier, job, &r->ctx, used, &m->err);
}
static void *member_main(void *arg)
{
    struct member *m = arg;
    struct rank *r = &m->w->rank[m->number];
    struct crew_hand hand;
    struct mt_job job = crew_job(m->crew, &hand, m->number);
    struct mt_comm comm = {0};
    m->opened = member_open(m, &job, &comm);
    m->got = true;
    pthread_barrier_wait(m->ready);
    for (int i = 0; i < m->runs && !m->opened && !m->ran; i++) {
        struct job one = {.w = m->w, .r = r, .op = m->op};
        void *args[] = {&one};
        prepare(m->w, r);
        m->ran = mt_cuda_run(&r->cuda, 1, rank_main, args, &m->err);
        m->got &= has_got(m->w, m->op, m->number);
    }
    m->ended = true;
    pthread_barrier_wait(m->over);
    mt_cuda_close(r->cuda);
    mt_comm_close(&comm);
    return NULL;
}

struct team {
    struct world w;
    struct crew crew;
    pthread_barrier_t ready, over;
    struct member member[RANKS];
    pthread_t thread[RANKS];
};
static void team_start(struct team *t, enum mt_op op, int runs, int faulty, enum fault fault)
{
    world_open(&t->w);
    crew_open(&t->crew, RANKS);
    pthread_barrier_init(&t->ready, NULL, RANKS + 1);
    pthread_barrier_init(&t->over, NULL, RANKS + 1);
    if (faulty >= 0) t->w.rank[faulty].fault = (int)fault;
    for (int i = 0; i < RANKS; i++) {
        t->member[i] = (struct member){.w = &t->w,
                                       .crew = &t->crew,
                                       .ready = &t->ready,
                                       .over = &t->over,
                                       .number = i,
                                       .runs = runs,
                                       .op = op};
        MT_ASSERT(!pthread_create(&t->thread[i], NULL, member_main, &t->member[i]));
    }
    pthread_barrier_wait(&t->ready);
}
static void team_end(struct team *t)
{
    pthread_barrier_wait(&t->over);
    for (int i = 0; i < RANKS; i++) pthread_join(t->thread[i], NULL);
    crew_close(&t->crew);
    pthread_barrier_destroy(&t->ready);
    pthread_barrier_destroy(&t->over);
    mt_ledger_release(&t->w.ledger);
}

static void delivers(enum mt_op op)
{
    for (int o = 0; o < ALL_ORDERS; o++) {
        struct team t;
        set_order(o);
        team_start(&t, op, 2, -1, NONE);
        team_end(&t);
        for (int i = 0; i < RANKS; i++) {
            const struct member *m = &t.member[i];
            if (!CHECK(!m->opened && !m->ran && m->got))
                printf("  rank %d, order %d: %s\n", i, o, m->err.msg);
        }
    }
    set_order(0);
}
#define OP(name, kind, args, scalars, flops, bytes) TEST_##kind(name)
#define OP0(name, kind, args, flops, bytes) TEST_##kind(name)
#include "device/op.def"
#undef OP
#undef OP0

/* ---- training: a process a rank, each a thread here, and all of them in one ---- */
struct trainee {
    struct training t;
    struct crew *crew;
    int number;
    uint64_t bits[STEPS];
    mt_status status;
    mt_err err;
};
static mt_status train(struct training *t, uint64_t *bits, mt_err *e)
{
    MT_TRY(mt_session_run(&t->s, mt_fill_step, e));
    for (int64_t i = 0; i < STEPS; i++) {
        ranks_batch(t, i);
        for (int r = 0; r < t->s.n_local; r++) t->s.rank[r].step.step = i;
        MT_TRY(mt_session_run(&t->s, mt_train_step, e));
        for (int r = 0; r < t->s.n_local; r++) bits[r * STEPS + i] = ranks_bits_of(RANKS_NO_BITS, t, r);
    }
    return MT_OK;
}
static void *trainee_main(void *arg)
{
    struct trainee *x = arg;
    struct crew_hand hand;
    struct mt_job job = crew_job(x->crew, &hand, x->number);
    x->status = mt_session_open_job(&x->t.s, &x->t.cfg, &job, false, &x->err);
    if (!x->status) x->status = train(&x->t, x->bits, &x->err);
    mt_session_close(&x->t.s);
    return NULL;
}

static void trains_alike(const char *options, const char *order, int n)
{
    static struct trainee one[CREW_MOST];
    struct training all;
    struct crew crew;
    pthread_t thread[CREW_MOST];
    uint64_t want[CREW_MOST * STEPS];
    char text[2048];
    mt_err e = {0};
    snprintf(text, sizeof text, MODEL "device.type=cuda %s", options);
    cuemu_set_order(order, 5);
    if (!ranks_open(&all, text, n)) return;
    if (!CHECK(train(&all, want, &e) == MT_OK)) printf("  %s\n", e.msg);
    training_close(&all);
    crew_open(&crew, n);
    for (int i = 0; i < n; i++) {
        one[i] = (struct trainee){.crew = &crew, .number = i};
        if (!CHECK(training_config(&one[i].t.cfg, text))) return;
    }
    for (int i = 0; i < n; i++) MT_ASSERT(!pthread_create(&thread[i], NULL, trainee_main, &one[i]));
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < n; i++) {
        if (!CHECK(one[i].status == MT_OK)) printf("  rank %d: %s\n", i, one[i].err.msg);
        CHECK(!memcmp(one[i].bits, &want[i * STEPS], sizeof one[i].bits));
    }
    CHECK(want[0] != want[STEPS]); /* ranks differ, so they were compared */
    crew_close(&crew);
    cuemu_set_order("lazy", 1);
}
/* In two levels, with experts shared by ranks, and state on the host. Nothing tried out at start-up: each process would try, and leave bytes
 * between what rows hold, where ranks of one process have one that tries. */
TEST(four_ranks_train)
{
    trains_alike("train.dtype=bf16 mesh.ranks_per_node=2 mesh.ep=2 shard.reshard_dense=node "
                 "device.attention=own " OFFLOAD,
                 "lazy", 4);
}

/* ---- what fails; the test's thread is the watchdog ---- */
/* More than the emulator's own patience (CUEMU_TIMEOUT), which ends a test that waits for what never comes. */
enum { TRIES = 100000, PAUSE_US = 2000 };
static void all_give_up(struct team *t)
{
    for (int i = 0; i < RANKS; i++) mt_carrier_nccl.abort(t->w.rank[i].cuda->carrier, MT_HANG);
}
/* The rank whose communicator failed; -1: none did. */
static int fails_by_itself(struct team *t, struct mt_carrier_fault *fault)
{
    for (int i = 0; i < TRIES; i++, usleep(PAUSE_US))
        for (int r = 0; r < RANKS; r++)
            if (mt_carrier_nccl.look(t->w.rank[r].cuda->carrier, fault)) return r;
    return -1;
}
static void breaks_off(struct team *t, mt_status status, const char *text)
{
    struct mt_carrier_fault fault = {0};
    struct mt_collective what = {0};
    int r = fails_by_itself(t, &fault);
    if (CHECK(r >= 0)) {
        CHECK_INT(fault.err.code, status);
        CHECK_INT(fault.group, 0);
        CHECK_INT(fault.stream, MT_GATHER);
        if (!CHECK(strstr(fault.err.msg, text))) printf("  %s\n", fault.err.msg);
        CHECK(mt_cuda_stand_in(t->w.rank[r].cuda, 0, MT_GATHER, &what));
        CHECK_INT(what.op, MT_OP_gather);
        CHECK_INT(what.seq, 1);
    }
    all_give_up(t);
    team_end(t);
    for (int i = 0; i < RANKS; i++)
        if (i == r) CHECK(t->member[i].ran != MT_OK && t->member[i].err.msg[0]);
}
TEST(ranks_that_differ)
{
    struct team t;
    team_start(&t, MT_OP_gather, 1, 2, OTHER_BYTES);
    breaks_off(&t, MT_DEVICE, "invalid usage: rank ");
}
TEST(a_communicator_that_fails)
{
    struct team t;
    setenv("CUEMU_NCCL_FAULT", "1:1:error", 1);
    team_start(&t, MT_OP_gather, 1, -1, NONE);
    breaks_off(&t, MT_RANKS, "a peer was lost");
    unsetenv("CUEMU_NCCL_FAULT");
}

/* Ranks 0 and 1 stand in their first gather; rank 2, which does not enter it, has ended. */
static bool comes_to_stand(struct team *t, struct mt_hang_state *state)
{
    for (int i = 0; i < TRIES; i++, usleep(PAUSE_US)) {
        const bool ended = t->member[2].ended;
        int met = 0;
        for (int r = 0; r < RANKS; r++) {
            state[r] = (struct mt_hang_state){.answered = 1, .rank = r, .peer = -1};
            state[r].stands = mt_cuda_stand(t->w.rank[r].cuda, &state[r].stand);
            met += state[r].stand.stream[MT_GATHER].kind == MT_STAND_MEETS;
        }
        if (met == 2 && ended) return true;
    }
    return false;
}
TEST(a_rank_that_stays_away)
{
    static struct mt_hang_state state[RANKS];
    struct team t;
    struct mt_mesh mesh;
    mt_err e = {0};
    int missing[RANKS];
    char why[MT_HANG_WHY];
    team_start(&t, MT_OP_gather, 1, 2, STAYS_AWAY);
    CHECK(comes_to_stand(&t, state));
    CHECK_INT(state[0].stand.stream[MT_GATHER].members, RANKS);
    CHECK_INT(state[0].stand.entered[0][MT_GATHER], 1);
    CHECK_INT(state[0].stand.n_last, 1);
    CHECK_INT(state[2].stand.entered[0][MT_GATHER], 0);
    CHECK(mt_mesh_init(&mesh, RANKS, 1, 1, RANKS, &e) == MT_OK);
    CHECK_INT(mt_hang_missing(state, RANKS, &mesh, missing, why), 1);
    CHECK_INT(missing[0], 2);
    if (!CHECK(strstr(why, "has not entered gather of the world group, stream gather, number 1")))
        printf("  %s\n", why);
    all_give_up(&t);
    team_end(&t);
    CHECK_INT(t.member[0].ran, MT_HANG);
    CHECK_INT(t.member[1].ran, MT_HANG);
    CHECK_INT(t.member[2].ran, MT_OK);
}

/* NCCL as the program opens it: a communicator that is polled, memory of its own, registered; a gather and a grouped exchange with
 * itself; taken apart. */
static ncclResult_t one_gather(struct mt_carrier *c, const struct mt_cuda *d, char *at)
{
    const cudaStream_t on = d->queue[MT_GATHER].lane.stream;
    return c->t.ncclAllGather(at, at + BYTES, BYTES, ncclUint8, c->world.comm, on);
}
static ncclResult_t one_exchange(struct mt_carrier *c, const struct mt_cuda *d, char *at)
{
    const cudaStream_t on = d->queue[MT_GATHER].lane.stream;
    ncclResult_t r = c->t.ncclGroupStart();
    if (!r) r = c->t.ncclSend(at, BYTES, ncclUint8, 0, c->world.comm, on);
    if (!r || r == ncclInProgress) r = c->t.ncclRecv(at + BYTES, BYTES, ncclUint8, 0, c->world.comm, on);
    ncclResult_t end = c->t.ncclGroupEnd();
    return r && r != ncclInProgress ? r : end;
}
static void one_moves(struct mt_cuda *d,
                      ncclResult_t (*call)(struct mt_carrier *c, const struct mt_cuda *d, char *at))
{
    struct mt_carrier *c = d->carrier;
    unsigned char bytes[2 * BYTES];
    char *at = d->arena[MT_DEVICE_ARENA];
    mt_err e = {0};
    for (int i = 0; i < 2 * BYTES; i++) bytes[i] = i < BYTES ? byte_of(0, i) : GUARD;
    CHECK(!cudaMemcpy(at, bytes, sizeof bytes, cudaMemcpyHostToDevice));
    const ncclResult_t r = call(c, d, at);
    CHECK(r == ncclSuccess || r == ncclInProgress);
    if (!CHECK(mt_nccl_settle(c, &c->world.comm, 60, &e) == MT_OK)) printf("  %s\n", e.msg);
    CHECK(!cudaStreamSynchronize(d->queue[MT_GATHER].lane.stream));
    CHECK(!cudaMemcpy(bytes, at, sizeof bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BYTES; i++) CHECK(bytes[BYTES + i] == byte_of(0, i));
}
TEST(one_rank)
{
    static struct world w;
    struct crew crew;
    struct crew_hand hand;
    struct mt_carrier_fault fault;
    struct mt_ctx *ctx = &w.rank[0].ctx;
    const struct mt_cuda_options o = {.several = true, .scratch_bytes = SCRATCH};
    const uint8_t used[MT_MAX_GROUPS] = {1 << MT_GATHER};
    mt_err e = {0};
    world_open(&w);
    crew_open(&crew, 1);
    const struct mt_job job = crew_job(&crew, &hand, 0);
    if (CHECK(mt_cuda_open(&w.rank[0].cuda, ctx, mt_target_cuda(), &o, &e) == MT_OK)) {
        struct mt_cuda *d = w.rank[0].cuda;
        if (CHECK(mt_carrier_nccl.join(d->carrier, &job, ctx, used, &e) == MT_OK)) {
            one_moves(d, one_gather);
            one_moves(d, one_exchange);
            CHECK(!mt_carrier_nccl.look(d->carrier, &fault));
        }
    }
    if (e.code) printf("  %s\n", e.msg);
    mt_cuda_close(w.rank[0].cuda);
    crew_close(&crew);
    mt_ledger_release(&w.ledger);
}

int main(void)
{
    RUN(one_rank);
    if (!emulated()) return DONE();
#define OP(name, kind, args, scalars, flops, bytes) RUN_##kind(name);
#define OP0(name, kind, args, flops, bytes) RUN_##kind(name);
#include "device/op.def"
#undef OP
#undef OP0
    RUN(ranks_that_differ);
    RUN(a_communicator_that_fails);
    RUN(a_rank_that_stays_away);
    if (!SANITIZED) RUN(four_ranks_train);
    return DONE();
}
