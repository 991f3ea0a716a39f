/* test: timeout=300 variants=release,asan,tsan,tsan-plain
 *
 * Traced steps on four ranks: the same bits as untraced ones, nothing allocated in them, the operations of the recording, and
 * times that fit each other. */
#include "allocations.h"
#include "train/tracing.h"
#include "training.h"

enum { WORLD = 4, STEPS = 3 };
#define OPTIONS                                                                                       \
    TRAINING_BASE TRAINING_MOE "train.micro_batch=1 train.global_batch=8 mesh.ep=2 device.workers=2 " \
                               "moe.buffer_factor=4 "

static void batches(struct mt_session *s, int64_t step)
{
    for (int r = 0; r < s->n_local; r++) {
        const struct mt_model *m = &s->rank[r].model;
        const struct mt_ctx *c = &s->rank[r].ctx;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        uint64_t state = (uint64_t)(step * 100 + r);
        for (int64_t i = 0; i < m->opt.micro_batches * m->shape.N; i++) {
            tok[i] = (int32_t)(training_random(&state) % 97);
            lab[i] = (int32_t)(training_random(&state) % 97);
            beg[i] = 0;
            pos[i] = (int32_t)(i % m->shape.N);
        }
        s->rank[r].step.step = step;
    }
}

/* Over losses, norms, masters and moments of all ranks. */
static uint64_t state_of(struct mt_session *s)
{
    struct mt_ckpt_items items;
    mt_err e = {0};
    uint64_t h = 1;
    for (int i = 0; i < WORLD; i++) {
        h = training_hash_bytes(h, &s->rank[i].step.loss, 8);
        h = training_hash_bytes(h, &s->rank[i].step.norm, 8);
    }
    if (!CHECK(mt_session_items(s, &items, &e) == MT_OK)) return 0;
    for (int64_t i = 0; i < items.n; i++)
        for (int64_t k = items.item[i].first; k < items.item[i].first + items.item[i].n; k++)
            h = training_hash_bytes(h, items.piece[k].data,
                                    items.piece[k].rows * mt_ckpt_row_bytes(&items.item[i]));
    mt_ckpt_items_close(&items);
    return h;
}

/* The train step of a rank as sim records it. */
static uint64_t recorded(const struct mt_session *s, int r, int64_t *n)
{
    struct mt_recording q = {0};
    struct mt_ctx ctx;
    mt_err e = {0};
    const struct mt_model *m = &s->rank[r].model;
    struct mt_step t = {
        .optim = &s->rank[r].optim, .cfg = s->cfg, .lr_factor = 1, .micro = m->opt.micro_batches};
    mt_ctx_init(&ctx, r, s->world, &mt_device_sim, &s->ledger);
    ctx.cut = m->store.cut;
    ctx.recording = &q;
    CHECK_INT(mt_rank_init(&t.rank, &ctx, m, &e), MT_OK);
    t.rank.force_rounds = 1;
    mt_train_step(&ctx, &t);
    mt_rank_release(&t.rank);
    uint64_t h = mt_recording_hash(&q);
    *n = q.n;
    mt_recording_release(&q);
    return h;
}

/* The n-th collective of all ranks, from 1. */
static int64_t world_collective(const struct mt_timeline *t, int64_t n)
{
    for (int64_t i = 0; i < t->q->n; i++) {
        const struct mt_rec *x = &t->q->rec[i];
        if (x->op == MT_OP_wait || mt_op_info[x->op].kind != MT_COMM) continue;
        if (x->scalar[0].i == MT_GROUP_WORLD && --n == 0) return i;
    }
    return 0;
}

/* Every stream in order, waits until what they wait for, collectives when all have come. */
static void check_times(const struct mt_timeline line[WORLD], int r)
{
    const struct mt_timeline *t = &line[r];
    int64_t last[MT_N_STREAMS] = {0}, bad = 0, worlds = 0;
    struct mt_places p;
    mt_err e = {0};
    CHECK_INT(mt_places_init(&p, t->q, &e), MT_OK);
    for (int64_t i = 0; i < t->q->n; i++) {
        const struct mt_rec *x = &t->q->rec[i];
        bool comm = x->op != MT_OP_wait && mt_op_info[x->op].kind == MT_COMM;
        bad += t->begin[i] < last[x->stream] || t->end[i] < t->begin[i] || t->end[i] > t->length;
        bad += comm ? t->ready[i] < t->begin[i] || t->ready[i] > t->end[i] : t->ready[i] > t->begin[i];
        if (x->op == MT_OP_wait) bad += t->end[i] < t->end[mt_places_find(&p, x->ev)];
        worlds += comm && x->scalar[0].i == MT_GROUP_WORLD;
        for (int s = 0; comm && x->scalar[0].i == MT_GROUP_WORLD && s < WORLD; s++) {
            int64_t k = world_collective(&line[s], worlds);
            bad += line[s].q->rec[k].op != x->op; /* all do the same */
            bad += t->ready[i] < line[s].begin[k] || t->end[i] < line[s].ready[k];
        }
        last[x->stream] = t->end[i];
    }
    for (int64_t i = 0; i < t->n_host; i++) {
        bad += t->host[i].end < t->host[i].begin || t->host[i].end > t->length;
        bad += i > 0 && t->host[i].begin < t->host[i - 1].end;
        bad += (t->host[i].left == MT_LEFT_END) != (i + 1 == t->n_host);
    }
    CHECK(t->n_host > 0 && worlds > 2);
    CHECK_INT(bad, 0);
    mt_places_release(&p);
}

static void check_traces(const struct mt_tracing *tr, const struct mt_session *s)
{
    struct mt_timeline line[WORLD];
    for (int r = 0; r < WORLD; r++) line[r] = mt_tracing_timeline(tr, s, r);
    for (int r = 0; r < WORLD; r++) {
        struct mt_timeline_sum sum;
        mt_err e = {0};
        int64_t n, total = 0;
        CHECK(mt_recording_hash(line[r].q) == recorded(s, r, &n));
        CHECK_INT(line[r].q->n, n);
        CHECK_INT(line[r].q->lost, 0);
        CHECK_INT(line[r].rank, r);
        check_times(line, r);
        CHECK_INT(mt_timeline_summarize(&line[r], &sum, &e), MT_OK);
        for (int c = 0; c < MT_N_CAUSES; c++) total += sum.spent[c];
        CHECK_INT(total, line[r].length);
        CHECK(sum.spent[MT_CAUSE_COMPUTE] > 0 && sum.spent[MT_CAUSE_OPTIMIZER] > 0);
        CHECK(sum.busy[MT_CAUSE_GATHER] > 0 && sum.busy[MT_CAUSE_REDUCE] > 0 &&
              sum.busy[MT_CAUSE_EXCHANGE] > 0 && sum.busy[MT_CAUSE_OFFLOAD] > 0);
        int64_t reads = 0;
        for (int64_t i = 0; i < line[r].n_host; i++) reads += line[r].host[i].left == MT_LEFT_READ;
        CHECK_INT(reads, 2 * 2 + 3); /* counts of two blocks in two micro-batches; loss, valid, norm */
    }
}

/* Trains; traces the steps that the options name. */
static uint64_t train(const char *options, bool checks)
{
    static mt_config cfg;
    struct mt_session s = {0};
    struct mt_tracing tr = {0};
    mt_err e = {0};
    uint64_t h = 0;
    bool ok = CHECK(training_config(&cfg, options)) &&
              CHECK(mt_session_open(&s, &cfg, WORLD, false, &e) == MT_OK) &&
              CHECK(mt_tracing_open(&tr, &s, &e) == MT_OK) &&
              CHECK(mt_session_run(&s, mt_fill_step, &e) == MT_OK);
    for (int64_t step = 0; ok && step < STEPS; step++) {
        bool traced = mt_tracing_wants(&s, step + 1);
        batches(&s, step);
        if (traced) mt_tracing_begin(&tr, &s);
        atomic_store(&counting, 1);
        ok = CHECK(mt_session_run(&s, mt_train_step, &e) == MT_OK);
        atomic_store(&counting, 0);
        if (traced) mt_tracing_end(&tr, &s);
        if (traced && checks) check_traces(&tr, &s);
    }
    if (!ok) printf("  %s\n", e.msg);
    if (ok) h = state_of(&s);
    mt_tracing_close(&tr);
    mt_session_close(&s);
    return h;
}

TEST(traced_steps)
{
    uint64_t plain = train(OPTIONS, false);
    CHECK(plain != 0);
    atomic_store(&allocations, 0);
    CHECK(train(OPTIONS "train.trace.steps=2,3 ", true) == plain);
    CHECK(train(OPTIONS "train.trace.steps=1,3 device.order_seed=2 device.workers=1 ", true) == plain);
    CHECK(train(OPTIONS "train.trace.steps=2 device.order_seed=9 ", true) == plain);
    CHECK(train(OPTIONS "train.trace.steps=2 offload.activations.fraction=1 recompute.policy=none ", true) ==
          plain);
    if (!SANITIZED) CHECK_INT(atomic_load(&allocations), 0);
}

TEST(allocations_are_seen)
{
    if (SANITIZED) SKIP("a sanitizer's allocator is in place");
    atomic_store(&counting, 1);
    atomic_store(&allocations, 0);
    void *volatile p = malloc(10);
    atomic_store(&counting, 0);
    CHECK(atomic_load(&allocations) == 1);
    free(p);
}

/* More dispatch rounds than a recording has: there is room for them. */
TEST(many_rounds)
{
    const char *options = OPTIONS "moe.buffer_factor=0.1 ";
    char traced[4096];
    snprintf(traced, sizeof traced, "%strain.trace.steps=1,2,3 ", options);
    static mt_config cfg;
    struct mt_session s = {0};
    struct mt_tracing tr = {0};
    mt_err e = {0};
    uint64_t plain = train(options, false);
    CHECK(train(traced, false) == plain);
    if (!CHECK(training_config(&cfg, traced)) || !CHECK(mt_session_open(&s, &cfg, WORLD, false, &e) == MT_OK))
        return;
    CHECK_INT(mt_tracing_open(&tr, &s, &e), MT_OK);
    CHECK_INT(mt_session_run(&s, mt_fill_step, &e), MT_OK);
    batches(&s, 0);
    mt_tracing_begin(&tr, &s);
    CHECK_INT(mt_session_run(&s, mt_train_step, &e), MT_OK);
    mt_tracing_end(&tr, &s);
    int32_t most = 0;
    struct mt_timeline line = mt_tracing_timeline(&tr, &s, 0);
    for (int64_t i = 0; i < line.q->n; i++)
        if (line.q->rec[i].round > most) most = line.q->rec[i].round;
    CHECK(most > 3);
    CHECK_INT(line.q->lost, 0);
    mt_tracing_close(&tr);
    mt_session_close(&s);
}

/* Only the first ranks, and none without steps. */
TEST(which_ranks)
{
    static mt_config cfg;
    struct mt_session s = {0};
    struct mt_tracing tr;
    mt_err e = {0};
    static const struct {
        const char *options;
        int ranks;
    } want[] = {{"", 0},
                {"train.trace.ranks=3 ", 0},
                {"train.trace.steps=5 ", 4},
                {"train.trace.steps=5 train.trace.ranks=3 ", 3},
                {"train.trace.steps=5 train.trace.ranks=0 ", 4}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char options[4096];
        snprintf(options, sizeof options, "%s%s", OPTIONS, want[i].options);
        if (!CHECK(training_config(&cfg, options)) ||
            !CHECK(mt_session_open(&s, &cfg, WORLD, false, &e) == MT_OK))
            return;
        CHECK_INT(mt_tracing_open(&tr, &s, &e), MT_OK);
        CHECK_INT(tr.n, want[i].ranks);
        CHECK(mt_tracing_wants(&s, 5) == (want[i].ranks > 0));
        CHECK(!mt_tracing_wants(&s, 4));
        mt_tracing_close(&tr);
        mt_session_close(&s);
    }
}

int main(void)
{
    RUN(allocations_are_seen);
    RUN(traced_steps);
    RUN(many_rounds);
    RUN(which_ranks);
    return DONE();
}
