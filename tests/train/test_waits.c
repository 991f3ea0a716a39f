/* test: timeout=300 variants=release,asan-slow
 *
 * Every wait of the step has a reason: without it there is a race (a hazard), or the memory plan grows (a throttle).
 *
 * A place in the code may wait for nothing now and then. For a throttle that is so where the plan had no use for the bytes that it
 * frees: it has, elsewhere in the step. Another wait may be for what its stream knows already, from a third stream for which it
 * waited, or from a throttle: it makes no order, and the recording without throttles shows that nothing else is like that. */
#include "training.h"

#include "device/order.h"

/* A train step and a validation; between them, in records [end, begin), the end of the first run. */
static bool record(const struct training *t, int rounds, bool throttles, struct mt_recording *q, int64_t *end,
                   int64_t *begin)
{
    struct mt_ctx ctx;
    struct mt_step step = {.optim = &t->s.rank[0].optim,
                           .cfg = &t->cfg,
                           .lr_factor = 1,
                           .micro = t->s.rank[0].model.opt.micro_batches};
    mt_err e = {0};
    *q = (struct mt_recording){0};
    mt_ctx_init(&ctx, t->s.first, t->s.world, &mt_device_sim, &t->s.ledger);
    ctx.cut = t->s.rank[0].model.store.cut;
    ctx.recording = q;
    ctx.no_throttles = !throttles;
    if (!CHECK(mt_rank_init(&step.rank, &ctx, &t->s.rank[0].model, &e) == MT_OK)) return false;
    step.rank.force_rounds = rounds;
    mt_train_step(&ctx, &step);
    *end = q->n;
    mt_streams_meet(&ctx);
    *begin = q->n;
    mt_eval_step(&ctx, &step);
    mt_rank_release(&step.rank);
    return true;
}

/* The ledger with a place of its own for every row. */
static struct mt_ledger unshared_of(const struct mt_ledger *g)
{
    struct mt_ledger u = *g;
    u.row = malloc((size_t)u.n * sizeof *u.row);
    MT_ASSERT(u.row);
    memcpy(u.row, g->row, (size_t)u.n * sizeof *u.row);
    memset(u.size, 0, sizeof u.size);
    for (int32_t i = 0; i < u.n; i++) {
        struct mt_row *r = &u.row[i];
        r->off = (u.size[r->arena] + u.align - 1) / u.align * u.align;
        u.size[r->arena] = r->off + r->bytes;
    }
    return u;
}

/* Why a wait is there.
 * HAZARD    without it there is a race, wherever rows lie
 * THROTTLE  without it there is one in the plan's layout: rows share bytes because of it
 * MET       its stream knows that the event is past: with or without it, the order is the same */
enum reason { NONE, HAZARD, THROTTLE, MET, REASONS };
static const char *const reason_text[] = {"without reason here", "hazards", "throttles", "met already"};

struct finder {
    const struct mt_ledger *shared, *unshared;
    struct mt_recording q;
    struct mt_order order;
};

static bool is_wait(const struct mt_recording *q, int64_t i)
{
    return q->rec[i].op == MT_OP_wait;
}
/* The record before or behind i in its stream; -1: none. */
static int64_t neighbour(const struct mt_recording *q, int64_t i, int step)
{
    int stream = q->rec[i].stream;
    for (i += step; i >= 0 && i < q->n; i += step)
        if (q->rec[i].stream == stream) return i;
    return -1;
}

static enum reason reason_of(const struct finder *f, int64_t i)
{
    struct mt_race race;
    const struct mt_rec *r = &f->q.rec[i];
    int64_t last = neighbour(&f->q, i, -1);
    if (last >= 0 && f->order.before[last].at[r->ev.stream] >= r->ev.seq) return MET;
    if (mt_races_find(&f->q, f->unshared, i, false, &race, 1)) return HAZARD;
    if (mt_races_find(&f->q, f->shared, i, false, &race, 1)) return THROTTLE;
    return NONE;
}

/* ---- what is printed ---- */
struct site {
    bool throttle;
    int stream, from, before, behind; /* streams; operations */
    int count[REASONS];
};
static int op_behind(const struct mt_recording *q, int64_t i)
{
    while (i >= 0 && is_wait(q, i)) i = neighbour(q, i, 1);
    return i < 0 ? -1 : q->rec[i].op;
}
static int op_of_event(const struct mt_recording *q, mt_event ev, int64_t at)
{
    while (at-- > 0)
        if (q->rec[at].stream == ev.stream && q->rec[at].seq <= ev.seq && !is_wait(q, at))
            return q->rec[at].op;
    return -1;
}
static const char *op_name(int op)
{
    return op < 0 ? "-" : mt_op_info[op].name;
}

static void note(struct site *site, int *n, const struct mt_recording *q, int64_t i, enum reason reason)
{
    const struct mt_rec *r = &q->rec[i];
    struct site s = {r->throttle, r->stream, r->ev.stream, op_behind(q, i), op_of_event(q, r->ev, i), {0}};
    /* They are few in the code, whatever was before and comes then. */
    if (s.throttle) s.before = s.behind = -1;
    int k = 0;
    while (k < *n && (site[k].throttle != s.throttle || site[k].stream != s.stream ||
                      site[k].from != s.from || site[k].before != s.before || site[k].behind != s.behind))
        k++;
    if (k == *n) site[(*n)++] = s;
    site[k].count[reason]++;
}
static void print_sites(const struct site *site, int n)
{
    for (int k = 0; k < n; k++) {
        printf("    %-8s %-7s before %-12s for %-7s behind %-12s:", site[k].throttle ? "throttle" : "wait",
               mt_stream_name(site[k].stream), op_name(site[k].before), mt_stream_name(site[k].from),
               op_name(site[k].behind));
        for (int r = 0; r < REASONS; r++)
            if (site[k].count[r]) printf(" %d %s", site[k].count[r], reason_text[r]);
        printf("\n");
    }
}

/* ---- tests ---- */
/* All throttles at once: without them the plan is larger. */
static void check_throttles(const struct training *t)
{
    struct mt_recording q;
    struct mt_ledger g = unshared_of(&t->s.ledger);
    struct mt_plan_info with = {0}, without = {0};
    mt_err e = {0};
    int64_t end, begin;
    for (int throttles = 0; throttles < 2; throttles++) {
        if (record(t, 2, throttles, &q, &end, &begin))
            CHECK_INT(mt_plan(&g, &q, throttles ? &with : &without, &e), MT_OK);
        mt_recording_release(&q);
    }
    printf("  the plan takes %lld bytes, without throttles %lld\n", (long long)with.peak[MT_DEVICE_ARENA],
           (long long)without.peak[MT_DEVICE_ARENA]);
    CHECK(without.peak[MT_DEVICE_ARENA] > with.peak[MT_DEVICE_ARENA]);
    free(g.row);
}

/* The copy of accumulators to the host waits for their norm, too, which only reads them as it does: so whoever gets their bytes
 * knows from the copy that the norm is over. No throttle by name, as most of these waits are for what is copied. */
static bool passes_on(const struct mt_recording *q, int64_t i)
{
    return q->rec[i].stream == MT_D2H && op_of_event(q, q->rec[i].ev, i) == MT_OP_sumsq;
}
/* Without throttles, wherever rows lie: what is left must be hazards, each. */
static void check_hazards(const struct training *t, const struct mt_ledger *unshared)
{
    struct finder f = {.shared = unshared, .unshared = unshared};
    struct site site[128] = {0};
    int64_t end = 0, begin = 0;
    int n = 0, none = 0;
    if (!record(t, 2, false, &f.q, &end, &begin)) return;
    mt_order_init(&f.order, &f.q, -1, false);
    for (int64_t i = 0; i < f.q.n; i++) {
        if (!is_wait(&f.q, i) || (i >= end && i < begin) || n == 127 || reason_of(&f, i) != NONE) continue;
        note(site, &n, &f.q, i, NONE);
        none += !passes_on(&f.q, i);
    }
    if (n) printf("  without throttles:\n");
    print_sites(site, n);
    CHECK_INT(none, 0);
    mt_order_release(&f.order);
    mt_recording_release(&f.q);
}

/* ranks: of which the first is looked at. */
static void classify(const char *shape, int ranks)
{
    struct training t;
    struct site site[128] = {0};
    int sites = 0, all[REASONS] = {0};
    t = (struct training){0};
    if (!CHECK(training_config(&t.cfg, shape))) return;
    /* Muon's workspace would be most of so small a plan. */
    for (int64_t i = 0; i < t.cfg.optim_groups_count; i++)
        t.cfg.optim_groups[i].optimizer = MT_OPTIMIZER_ADAMW;
    mt_err e = {0};
    mt_status st = mt_session_plan(&t.s, &t.cfg, mt_target_cpu(MT_ISA_SCALAR), ranks, 0, &e);
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    if (st != MT_OK) return;
    struct mt_ledger unshared = unshared_of(&t.s.ledger);
    struct finder f = {.shared = &t.s.ledger, .unshared = &unshared};
    int64_t end = 0, begin = 0;
    if (record(&t, 2, true, &f.q, &end, &begin)) {
        struct mt_race race;
        CHECK_INT(mt_races_find(&f.q, &t.s.ledger, -1, false, &race, 1), 0);
        mt_order_init(&f.order, &f.q, -1, false);
        for (int64_t i = 0; i < f.q.n; i++) {
            if (!is_wait(&f.q, i) || (i >= end && i < begin) || sites == 127) continue;
            enum reason r = reason_of(&f, i);
            note(site, &sites, &f.q, i, r);
            all[r]++;
        }
        print_sites(site, sites);
        CHECK(sites < 127);
        CHECK(all[HAZARD] > 4 && all[THROTTLE] > 0);
        for (int k = 0; k < sites; k++)
            CHECK(!site[k].count[NONE] || site[k].count[THROTTLE] ||
                  (site[k].throttle && site[k].count[HAZARD]));
        check_hazards(&t, &unshared);
        check_throttles(&t);
    }
    mt_order_release(&f.order);
    mt_recording_release(&f.q);
    free(unshared.row);
    training_close(&t);
}

TEST(dense)
{
    classify(TRAINING_BASE "train.global_batch=4 model.layers=8 ", 1);
}
TEST(experts)
{
    classify(TRAINING_BASE TRAINING_MOE "train.global_batch=4 moe.buffer_factor=0.3 model.layers=5 ", 1);
}
TEST(offloaded)
{
    classify(TRAINING_BASE TRAINING_MOE "train.global_batch=4 model.layers=8 moe.buffer_factor=0.5 "
                                        "offload.activations.fraction=0.8 offload.activations.prefetch=2 "
                                        "recompute.keep=attention,ffn_up,expert_up recompute.keep_on=host ",
             1);
}
TEST(micro_batches_in_a_layer)
{
    classify(TRAINING_BASE TRAINING_MOE
             "train.micro_order=layer model.layers=6 offload.activations.fraction=1 ",
             1);
}
TEST(tied)
{
    classify(TRAINING_BASE TRAINING_MOE
             "train.global_batch=4 model.tied=true train.dtype=bf16 model.layers=8 ",
             1);
}

TEST(further_tokens)
{
    classify(TRAINING_BASE TRAINING_MOE
             "train.global_batch=4 model.layers=5 model.mtp_depth=2 offload.activations.fraction=1 ",
             1);
}

#define RANKS                  \
    TRAINING_BASE TRAINING_MOE \
        "model.experts=8 mesh.ep=2 train.micro_batch=1 train.global_batch=16 model.layers=5 "
TEST(ranks)
{
    classify(RANKS, 8);
}
TEST(ranks_with_weights_that_stay)
{
    classify(RANKS "shard.host_weights=all shard.reshard_dense=node shard.keep_last=1 ", 8);
}
TEST(ranks_with_further_tokens)
{
    classify(RANKS "model.mtp_depth=2 shard.prefetch=2 ", 8);
}
/* Counts of all ranks go round beside the step. */
TEST(ranks_that_balance_globally)
{
    classify(RANKS "moe.aux_loss_global=0.1 moe.aux_loss_sequence=0.1 moe.capacity_factor=1 ", 8);
}
TEST(ranks_with_fp8)
{
    classify(RANKS "train.dtype=bf16 wire.gather_experts=fp8 wire.reduce=bf16 shard.host_weights=all ", 8);
}

#define HOST_STATE "offload.masters=host offload.moments=host offload.grads=host offload.slot_bytes=8KiB "
TEST(state_in_host_memory)
{
    classify(TRAINING_BASE TRAINING_MOE
             "train.global_batch=4 model.layers=5 model.qk_norm=false optim.qk_clip=1 " HOST_STATE,
             1);
}
TEST(arithmetic_on_the_host)
{
    classify(TRAINING_BASE TRAINING_MOE "train.global_batch=4 model.layers=5 model.qk_norm=false "
                                        "optim.qk_clip=1 optim.compute=host " HOST_STATE,
             1);
}

/* A plan made from one round is silently wrong for two: the check tells. */
TEST(a_plan_of_one_round_is_refused_for_two)
{
    struct training t;
    struct mt_recording one, two;
    struct mt_plan_info info = {.want_bound = true};
    mt_err e = {0};
    if (!training_open(&t, TRAINING_BASE TRAINING_MOE "moe.buffer_factor=0.5 model.expert_ffn=96 ")) return;
    CHECK(mt_session_record(&t.s, 1, &one, &e) == MT_OK && mt_session_record(&t.s, 2, &two, &e) == MT_OK);
    CHECK_INT(mt_plan_check(&t.s.ledger, &two, &e), MT_OK);
    CHECK_INT(mt_plan(&t.s.ledger, &one, &info, &e), MT_OK);
    CHECK_INT(mt_plan_check(&t.s.ledger, &one, &e), MT_OK);
    CHECK_INT(mt_plan_check(&t.s.ledger, &two, &e), MT_INTERNAL);
    CHECK(strstr(e.msg, "record") != NULL);
    printf("  %s\n", e.msg);
    CHECK_INT(mt_plan(&t.s.ledger, &two, &info, &e), MT_OK);
    CHECK_INT(mt_plan_check(&t.s.ledger, &one, &e), MT_OK);
    mt_recording_release(&one);
    mt_recording_release(&two);
    training_close(&t);
}

int main(void)
{
    RUN(dense);
    RUN(experts);
    RUN(offloaded);
    RUN(micro_batches_in_a_layer);
    RUN(tied);
    RUN(state_in_host_memory);
    RUN(arithmetic_on_the_host);
    RUN(further_tokens);
    RUN(ranks);
    RUN(ranks_with_further_tokens);
    RUN(ranks_with_weights_that_stay);
    RUN(ranks_that_balance_globally);
    RUN(ranks_with_fp8);
    RUN(a_plan_of_one_round_is_refused_for_two);
    return DONE();
}
