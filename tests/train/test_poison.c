/* test: timeout=300 variants=release,asan-slow
 *
 * Every row is filled with NaN as soon as a train step is done with its contents, by the ends of lifetimes that the record of
 * the step shows: weights' slots when they are released, activations, workspaces. The same bits, then, need nothing that is
 * left behind. And the other way round: what ends one access too soon is missed. */
#include "ranks.h"

#include "device/lifetimes.h"
#include "device/poison.h"

enum { MOST_RANKS = 8 };
#ifdef __SANITIZE_ADDRESS__
enum { STEPS = 2, EVERY = 9 };
#else
enum { STEPS = 3, EVERY = 1 };
#endif

#define ONE_ROUND "moe.buffer_factor=16 train.seq_len=24 "
#define EIGHT                                                                         \
    TRAINING_BASE TRAINING_MOE ONE_ROUND "model.experts=12 model.layers=4 mesh.ep=2 " \
                                         "train.micro_batch=1 train.global_batch=24 "

static const struct shape {
    const char *options;
    int world;
} shapes[] = {
    {TRAINING_BASE, 1},
    {TRAINING_BASE "train.dtype=bf16 model.tied=true model.attn_bias=true ", 2},
    {TRAINING_BASE TRAINING_MOE ONE_ROUND, 1},
    {TRAINING_BASE TRAINING_MOE ONE_ROUND "train.dtype=bf16 mesh.ep=2 train.global_batch=8 ", 4},
    {TRAINING_BASE TRAINING_MOE ONE_ROUND "model.mtp_depth=2 model.tied=true mesh.ep=2 train.global_batch=8 ",
     4},
    {EIGHT "shard.prefetch=2 shard.keep_last=1 train.micro_order=layer", 8},
    {EIGHT "wire.gather_experts=fp8 wire.gather_dense=fp8 wire.reduce=bf16 train.dtype=bf16 "
           "mesh.replicas=2 muon.batch_bytes=5KiB",
     8},
    {EIGHT "shard.prefetch=2 shard.keep_last=1 train.micro_order=layer wire.gather_experts=fp8 "
           "wire.gather_dense=fp8 wire.reduce=bf16 train.dtype=bf16 model.ffn=300 muon.batch_bytes=5KiB",
     8},
    {TRAINING_BASE "model.layers=6 offload.activations.fraction=0.7 recompute.policy=none "
                   "recompute.keep_on=host",
     1},
    {EIGHT "offload.activations.fraction=1 offload.activations.prefetch=2 recompute.policy=selective "
           "recompute.keep_on=host train.micro_order=layer shard.prefetch=2",
     8},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- poisoned steps ---- */
struct tables {
    struct mt_poison p[MOST_RANKS];
};
static bool tables_find(struct tables *x, const struct training *t, int rank, int64_t early)
{
    bool ok = true;
    for (int r = 0; r < t->s.world; r++) {
        struct mt_recording q;
        mt_err e = {0};
        if (ranks_record(t, r, 1, -1, &q))
            ok &= mt_poison_find(&x->p[r], &t->s.ledger, &q, r == rank ? early : -1, &e) == MT_OK;
        mt_recording_release(&q);
    }
    return ok;
}
static void tables_use(struct tables *x, struct training *t, bool use)
{
    for (int r = 0; r < t->s.world; r++) t->s.rank[r].ctx.poison = use ? &x->p[r] : NULL;
}
static void tables_release(struct tables *x)
{
    for (int r = 0; r < MOST_RANKS; r++) mt_poison_release(&x->p[r]);
}

/* What ran is what was recorded: positions of the one are those of the other. */
static void check_record(struct training *t, int r, const struct mt_recording *ran)
{
    struct mt_recording q;
    if (ranks_record(t, r, 1, -1, &q)) CHECK_INT(ran->n, q.n);
    for (int64_t i = 0; i < q.n && i < ran->n; i++)
        if (!CHECK(q.rec[i].op == ran->rec[i].op && q.rec[i].seq == ran->rec[i].seq)) break;
    mt_recording_release(&q);
}

static uint64_t train(const struct shape *shape, struct tables *x, double *eval)
{
    struct training t;
    uint64_t bits = 0;
    bool ok = ranks_open(&t, shape->options, shape->world) && training_run(&t, mt_fill_step);
    for (int64_t i = 0; i < STEPS && ok; i++) {
        struct mt_recording ran = {0};
        if (x) tables_use(x, &t, true);
        t.s.rank[t.s.world - 1].ctx.recording = &ran;
        ok = ranks_step(&t, i) && CHECK(t.s.rank[0].step.updated);
        t.s.rank[t.s.world - 1].ctx.recording = NULL;
        check_record(&t, t.s.world - 1, &ran);
        mt_recording_release(&ran);
        if (x) tables_use(x, &t, false);
    }
    if (ok) bits = ranks_bits(&t);
    if (ok && training_run(&t, mt_eval_step))
        *eval = t.s.rank[0].step.loss; /* relies on nothing of the step */
    training_close(&t);
    return bits;
}

TEST(no_bit_comes_from_what_is_dead)
{
    for (int i = 0; i < SHAPES; i++) {
        struct training t;
        struct tables x = {0};
        double eval[2] = {0};
        if (!ranks_open(&t, shapes[i].options, shapes[i].world)) return;
        CHECK(tables_find(&x, &t, -1, -1));
        const struct mt_poison *p = &x.p[0];
        printf("  %d ranks: of %lld lifetimes %lld are filled, %lld renewed in place, %lld read by the host, "
               "%lld without order\n",
               shapes[i].world, (long long)p->lives, (long long)p->rows, (long long)p->renewed,
               (long long)p->read, (long long)p->unordered);
        CHECK(p->rows > 100 && 50 * (p->unordered + p->renewed + p->read) <= p->lives);
        training_close(&t);
        uint64_t plain = train(&shapes[i], NULL, &eval[0]), poisoned = train(&shapes[i], &x, &eval[1]);
        if (!CHECK(plain && plain == poisoned && eval[0] == eval[1])) printf("  of %s\n", shapes[i].options);
        tables_release(&x);
    }
}

/* ---- it can fail ---- */
/* Whether the lifetime's last access takes contents that are numbers, none of them an index: 0xff.. as one would crash. `keep` only
 * says that they are wanted for longer. */
static bool matters(const struct training *t, const struct mt_recording *q, const struct mt_life *l)
{
    const struct mt_row *w = &t->s.ledger.row[l->row];
    const struct mt_rec *r = &q->rec[l->last];
    if (mt_row_persistent((enum mt_row_class)w->row_class) || w->row_class == MT_ROW_ROUTING ||
        r->op == MT_OP_keep)
        return false;
    for (uint32_t k = 0; k < r->n_args; k++) {
        const struct mt_rec_arg *a = &q->arg[r->arg + k];
        if (a->row == l->row && a->dir == MT_IN) return true;
    }
    return false;
}
static uint64_t one_step(struct training *t)
{
    return training_run(t, mt_fill_step) && ranks_step(t, 0) ? ranks_bits(t) : 0;
}
static void end_early(const struct shape *shape)
{
    struct training t;
    struct mt_recording q = {0};
    struct mt_lifetimes lives = {0};
    mt_err e = {0};
    int64_t seen = 0;
    if (!ranks_open(&t, shape->options, shape->world)) return;
    uint64_t want = one_step(&t);
    bool ok = ranks_record(&t, 0, 1, -1, &q) &&
              CHECK(mt_lifetimes_find(&lives, &t.s.ledger, &q, &e) == MT_OK);
    for (int32_t k = 0; k < lives.n && ok; k += EVERY) {
        const struct mt_life *l = &lives.life[k];
        struct tables x = {0};
        if (matters(&t, &q, l) && tables_find(&x, &t, 0, k)) {
            tables_use(&x, &t, true);
            bool same = one_step(&t) == want;
            tables_use(&x, &t, false);
            seen++;
            if (!CHECK(!same))
                printf("  not seen: row %s, read last by %s\n", t.s.ledger.row[l->row].name,
                       mt_rec_name(&q.rec[l->last]));
        }
        tables_release(&x);
    }
    CHECK(one_step(&t) == want);
    CHECK(seen * EVERY > 100);
    printf("  %lld lifetimes ended one access too soon\n", (long long)seen);
    mt_lifetimes_release(&lives);
    mt_recording_release(&q);
    training_close(&t);
}
TEST(an_end_too_soon_is_seen)
{
    end_early(&shapes[0]);
    end_early(&shapes[2]);
    end_early(&shapes[3]);
}

int main(void)
{
    RUN(no_bit_comes_from_what_is_dead);
    RUN(an_end_too_soon_is_seen);
    return DONE();
}
