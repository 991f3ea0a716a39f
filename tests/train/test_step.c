/* test: timeout=120 variants=release,asan
 *
 * The train step as a schedule: what sim records is what the cpu runs; no bit depends on how it is run; nothing relies
 * on bytes that were not written. */
#include "training.h"

static const char *const shapes[] = {
    TRAINING_BASE,
    TRAINING_BASE
    "train.dtype=bf16 model.tied=true model.attn_bias=true model.rotary_dims=8 optim.qk_clip=0.1 ",
    TRAINING_BASE TRAINING_MOE,
    TRAINING_BASE TRAINING_MOE "train.dtype=bf16 moe.buffer_factor=0.3 train.global_batch=4 ",
    TRAINING_BASE TRAINING_MOE
    "model.tied=true model.shared_ffn=0 moe.buffer_factor=0.2 model.score=softmax ",
    TRAINING_BASE TRAINING_MOE
    "model.first_dense=0 model.v_head_dim=24 moe.buffer_factor=2 train.loss_chunk=1024 ",
    TRAINING_BASE TRAINING_MOE "model.mtp_depth=2 moe.buffer_factor=0.5 ",
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
/* A sanitizer needs to see each path once. */
#ifdef __SANITIZE_ADDRESS__
enum { ORDERS = 2, FACTORS = 2 };
#else
enum { ORDERS = 12, FACTORS = 8 };
#endif

/* ---- the record of sim and that of the cpu ---- */
struct answers {
    const struct mt_rank *rank; /* whose counts were read back */
    const struct mt_step *step;
};

static void answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    const struct answers *a = arg;
    memset(dst, 0, (size_t)src.bytes);
    if (kind == MT_READ_COUNTS) memcpy(dst, a->rank->counts + index * a->rank->m->shape.E, (size_t)src.bytes);
    if (kind == MT_READ_LOSS) memcpy(dst, &a->step->loss, 8);
    if (kind == MT_READ_NORM) memcpy(dst, &a->step->norm, 8);
    if (kind == MT_READ_STATE) memcpy(dst, &a->step->valid, 8);
}

/* The step on sim, with the answers that the cpu got. */
static bool record_sim(struct training *t, void (*host)(struct mt_ctx *, void *), struct mt_recording *q)
{
    struct answers a = {&t->s.rank[0].step.rank, &t->s.rank[0].step};
    struct mt_ctx ctx;
    struct mt_step step = t->s.rank[0].step;
    mt_err e = {0};
    mt_ctx_init(&ctx, 0, 1, &mt_device_sim, &t->s.ledger);
    ctx.answer = answer;
    ctx.answer_arg = &a;
    ctx.recording = q;
    if (!CHECK(mt_rank_init(&step.rank, &ctx, &t->s.rank[0].model, &e) == MT_OK)) return false;
    host(&ctx, &step);
    mt_rank_release(&step.rank);
    return true;
}

static bool same_record(const struct mt_recording *p, const struct mt_recording *q, int64_t i)
{
    const struct mt_rec *a = &p->rec[i], *b = &q->rec[i];
    if (a->op != b->op || a->stream != b->stream || a->n_args != b->n_args || a->dtype != b->dtype ||
        a->seq != b->seq || a->round != b->round || a->ev.stream != b->ev.stream || a->ev.seq != b->ev.seq)
        return false;
    if (memcmp(a->dim, b->dim, sizeof a->dim) || memcmp(a->scalar, b->scalar, sizeof a->scalar)) return false;
    for (uint32_t k = 0; k < a->n_args; k++) {
        const struct mt_rec_arg *x = &p->arg[a->arg + k], *y = &q->arg[b->arg + k];
        if (x->row != y->row || x->dir != y->dir || x->whole != y->whole || x->off != y->off ||
            x->bytes != y->bytes)
            return false;
    }
    return true;
}

static void compare_records(struct training *t, void (*host)(struct mt_ctx *, void *))
{
    struct mt_recording real = {0}, sim = {0};
    t->s.rank[0].ctx.recording = &real;
    bool ran = training_run(t, host);
    t->s.rank[0].ctx.recording = NULL;
    if (ran && record_sim(t, host, &sim)) {
        CHECK_INT(sim.n, real.n);
        int64_t i = 0;
        while (i < sim.n && i < real.n && same_record(&sim, &real, i)) i++;
        if (i < real.n) printf("  record %lld differs: op %d on the cpu\n", (long long)i, real.rec[i].op);
        CHECK_INT(i, real.n);
        CHECK(mt_recording_hash(&sim) == mt_recording_hash(&real));
        CHECK(real.n > 100);
    }
    mt_recording_release(&real);
    mt_recording_release(&sim);
}

static int64_t most_rounds(const struct training *t)
{
    const struct mt_shape *d = &t->s.rank[0].model.shape;
    return d->E ? (d->N * d->K + d->C - 1) / d->C : 1;
}

TEST(records_agree)
{
    bool several = false;
    for (int i = 0; i < SHAPES; i++) {
        struct training t;
        if (!training_open(&t, shapes[i])) return;
        training_run(&t, mt_fill_step);
        training_batch(&t, 1);
        compare_records(&t, mt_train_step);
        compare_records(&t, mt_eval_step);
        several |= most_rounds(&t) > 2;
        training_close(&t);
    }
    CHECK(several);
}

/* What sim records must not be taken on trust: a schedule that differs in one number is seen. */
TEST(a_difference_is_seen)
{
    struct training t;
    struct mt_recording a = {0}, b = {0};
    if (!training_open(&t, shapes[3])) return;
    training_run(&t, mt_fill_step);
    training_batch(&t, 1);
    training_run(&t, mt_train_step);
    if (record_sim(&t, mt_train_step, &a)) {
        const struct mt_shape *d = &t.s.rank[0].model.shape;
        int32_t *counts = t.s.rank[0].step.rank.counts + d->E; /* of the first block with experts */
        for (int64_t x = 1; x < d->E; x++) counts[0] += counts[x], counts[x] = 0;
        record_sim(&t, mt_train_step, &b);
        int64_t i = 0;
        while (i < a.n && i < b.n && same_record(&a, &b, i)) i++;
        CHECK(i < a.n);
    }
    mt_recording_release(&a);
    mt_recording_release(&b);
    training_close(&t);
}

/* ---- bits ---- */
static uint64_t bits_of(const char *shape, const char *more)
{
    struct training t;
    char options[4096];
    uint64_t h = 0;
    snprintf(options, sizeof options, "%s%s", shape, more);
    if (!training_open(&t, options)) return 0;
    if (training_run(&t, mt_fill_step) && training_steps(&t, 0, 3)) h = training_hash(&t);
    training_close(&t);
    return h;
}

static void same_bits(const char *shape, uint64_t want, const char *more)
{
    if (!CHECK(want != 0 && bits_of(shape, more) == want)) printf("  with %s\n  of %s\n", more, shape);
}

TEST(bits_hold_for_any_workers)
{
    static const char *const more[] = {"", "device.workers=1", "device.workers=2", "device.workers=4"};
    for (int i = 0; i < SHAPES; i++) {
        uint64_t want = bits_of(shapes[i], "device.workers=1");
        same_bits(shapes[i], want, more[i % 2 ? 2 : 3]);
        if (i == 3) same_bits(shapes[i], want, more[0]); /* again, and as many as there are cores */
    }
}

TEST(bits_hold_for_any_order)
{
    uint64_t want[2] = {bits_of(shapes[3], ""), bits_of(shapes[4], "")};
    for (int seed = 1; seed <= ORDERS; seed++) {
        char more[64];
        snprintf(more, sizeof more, "device.order_seed=%d device.workers=%d", seed, 1 + seed % 3);
        same_bits(shapes[3 + seed % 2], want[seed % 2], more);
    }
}

TEST(bits_hold_for_any_buffer)
{
    static const char *const factor[] = {"0.01", "2", "0.25", "0.1", "0.5", "0.9", "1", "1.3"};
    uint64_t want[2] = {bits_of(shapes[2], ""), bits_of(shapes[3], "")};
    for (int i = 0; i < FACTORS; i++) {
        char more[64];
        snprintf(more, sizeof more, "moe.buffer_factor=%s", factor[i]);
        same_bits(shapes[2], want[0], more);
        same_bits(shapes[3], want[1], more);
    }
}

TEST(other_data_give_other_bits)
{
    uint64_t a = bits_of(shapes[2], ""), b = bits_of(shapes[2], "train.seed=2"),
             c = bits_of(shapes[2], "optim.lr=2.0001e-3");
    CHECK(a && b && c && a != b && a != c);
}

/* ---- nothing is read before it is written ---- */
/* The executor fills what becomes undefined with bytes that are NaN, and the arenas begin as such bytes. */
static uint64_t poisoned_bits(const char *shape)
{
    struct training t;
    mt_err e = {0};
    uint64_t h = 0;
    if (!training_open(&t, shape)) return 0;
    mt_exec_close(t.s.exec);
    struct mt_exec_options xo = {.workers = 2, .poison = true};
    if (CHECK(mt_exec_open(&t.s.exec, xo, (struct mt_ctx *[]){&t.s.rank[0].ctx}, 1, &t.s.dev, &e) == MT_OK)) {
        for (int a = 0; a < MT_N_ARENAS; a++)
            memset(t.s.rank[0].arena[a].usable, 0xff, t.s.rank[0].arena[a].usable_bytes);
        if (training_run(&t, mt_fill_step) && training_steps(&t, 0, 3)) h = training_hash(&t);
    }
    training_close(&t);
    return h;
}

TEST(undefined_bytes_are_not_read)
{
    for (int i = 0; i < SHAPES; i++)
        if (!CHECK(poisoned_bits(shapes[i]) == bits_of(shapes[i], ""))) printf("  of %s\n", shapes[i]);
}

/* A step leaves everything as it was when loss or norm is no number. */
TEST(a_step_that_is_not_finite_changes_nothing)
{
    struct training t;
    if (!training_open(&t, shapes[2])) return;
    training_run(&t, mt_fill_step);
    training_steps(&t, 0, 1);
    struct mt_ckpt_items items;
    mt_err e = {0};
    if (CHECK(mt_session_items(&t.s, &items, &e) == MT_OK)) {
        float kept = items.piece[items.item[3].first].data[5];
        items.piece[items.item[3].first].data[5] = (float)NAN;
        training_run(&t, mt_pack_step);
        t.s.rank[0].step.loss = t.s.rank[0].step.norm = 0;
        uint64_t before = training_hash(&t);
        training_batch(&t, 1);
        training_run(&t, mt_train_step);
        CHECK(!t.s.rank[0].step.updated && !isfinite(t.s.rank[0].step.norm));
        t.s.rank[0].step.loss = t.s.rank[0].step.norm = 0;
        CHECK(training_hash(&t) == before);
        items.piece[items.item[3].first].data[5] = kept;
        training_run(&t, mt_pack_step);
        training_run(&t, mt_train_step);
        CHECK(t.s.rank[0].step.updated);
        mt_ckpt_items_close(&items);
    }
    training_close(&t);
}

int main(void)
{
    RUN(records_agree);
    RUN(a_difference_is_seen);
    RUN(bits_hold_for_any_workers);
    RUN(bits_hold_for_any_order);
    RUN(bits_hold_for_any_buffer);
    RUN(other_data_give_other_bits);
    RUN(undefined_bytes_are_not_read);
    RUN(a_step_that_is_not_finite_changes_nothing);
    return DONE();
}
