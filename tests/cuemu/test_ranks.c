/* test: variants=cuemu */
/* Collectives between ranks of one process on the cuda device under the emulator: each against what its members should get, in
 * several orders; and ranks that disagree, stay away or fail. */
#include "comm/comm.h"
#include "moves.h"

static void ranks_open(struct world *w, struct mt_comm *comm)
{
    struct mt_ctx *ctxs[RANKS];
    mt_err e = {0};
    const struct mt_cuda_options o = {.device = 0, .scratch_bytes = SCRATCH};
    world_open(w);
    for (int i = 0; i < RANKS; i++) {
        struct rank *r = &w->rank[i];
        ctxs[i] = &r->ctx;
        if (!CHECK(mt_cuda_open(&r->cuda, &r->ctx, mt_target_cuda(), &o, &e) == MT_OK))
            printf("  %s\n", e.msg), exit(1);
    }
    CHECK(mt_comm_open_threads(comm, ctxs, RANKS, 1, NULL, NULL, &e) == MT_OK);
}
static void ranks_close(struct world *w, struct mt_comm *comm)
{
    for (int i = 0; i < RANKS; i++) mt_cuda_close(w->rank[i].cuda);
    mt_comm_close(comm);
    mt_ledger_release(&w->ledger);
}

static mt_status run_all(struct world *w, enum mt_op op, mt_err *e)
{
    struct job job[RANKS];
    struct mt_cuda *cuda[RANKS];
    void *args[RANKS];
    for (int i = 0; i < RANKS; i++) {
        struct rank *r = &w->rank[i];
        job[i] = (struct job){.w = w, .r = r, .op = op};
        args[i] = &job[i];
        cuda[i] = r->cuda;
        prepare(w, r);
    }
    return mt_cuda_run(cuda, RANKS, rank_main, args, e);
}

static void delivers(enum mt_op op)
{
    for (int o = 0; o < N_ORDERS; o++) {
        struct world w;
        struct mt_comm comm;
        mt_err e = {0};
        set_order(o);
        ranks_open(&w, &comm);
        for (int again = 0; again < 2; again++) {
            if (!CHECK(run_all(&w, op, &e) == MT_OK)) printf("  %s\n", e.msg);
            for (int i = 0; i < RANKS; i++)
                if (!CHECK(has_got(&w, op, i))) printf("  rank %d, order %d\n", i, o);
        }
        ranks_close(&w, &comm);
    }
    set_order(0);
}
#define OP(name, kind, args, scalars, flops, bytes) TEST_##kind(name)
#define OP0(name, kind, args, flops, bytes) TEST_##kind(name)
#include "device/op.def"
#undef OP
#undef OP0

/* ---- what goes wrong ends, and is named ---- */
static void ends(enum fault fault, mt_status status, const char *text)
{
    struct world w;
    struct mt_comm comm;
    mt_err e = {0};
    ranks_open(&w, &comm);
    w.rank[2].fault = (int)fault;
    CHECK_INT(run_all(&w, MT_OP_gather, &e), status);
    if (!CHECK(strstr(e.msg, text))) printf("  %s\n", e.msg);
    for (int i = 0; i < RANKS; i++) w.rank[i].ctx.err = (mt_err){0};
    ranks_close(&w, &comm);
}
TEST(ranks_that_differ)
{
    ends(OTHER_BYTES, MT_RANKS, "rank 2");
}
TEST(a_rank_that_stays_away)
{
    ends(STAYS_AWAY, MT_HANG, "2 of its 3 members");
}
TEST(a_rank_that_fails)
{
    ends(FAILS, MT_DEVICE, "made to fail");
}

int main(void)
{
#define OP(name, kind, args, scalars, flops, bytes) RUN_##kind(name);
#define OP0(name, kind, args, flops, bytes) RUN_##kind(name);
#include "device/op.def"
#undef OP
#undef OP0
    RUN(ranks_that_differ);
    RUN(a_rank_that_stays_away);
    RUN(a_rank_that_fails);
    return DONE();
}
