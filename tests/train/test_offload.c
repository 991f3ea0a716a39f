/* test: timeout=240 variants=release,asan,tsan
 *
 * Activations on the host, and results kept instead of computed again: the same training to the bit, in fewer bytes. */
#include "training.h"

#include "device/order.h"

/* Of the choices, every so many, the first with most copies in flight. ThreadSanitizer is slow: what has most streams. */
#if defined(__SANITIZE_THREAD__)
enum { STEPS = 1, BRIEF = 2, EVERY = 7 };
#elif defined(__SANITIZE_ADDRESS__)
enum { STEPS = 1, BRIEF = 1, EVERY = 3 };
#else
enum { STEPS = 3, BRIEF = 0, EVERY = 1 };
#endif

/* Several ranks get the batches of training.h under seeds of their own. */
static void batches(struct training *t, int64_t step)
{
    for (int i = 0; i < t->s.n_local; i++) {
        struct mt_session one = {.rank = &t->s.rank[i]};
        struct training view = {.s = one};
        training_batch(&view, (uint64_t)(step * 100 + i));
    }
}

static uint64_t hash_all(struct training *t)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < t->s.n_local; i++) {
        const struct mt_model *m = &t->s.rank[i].model;
        h = training_hash_bytes(h, &t->s.rank[i].step.loss, 8);
        h = training_hash_bytes(h, &t->s.rank[i].step.norm, 8);
        for (int b = 0; b < m->store.n_buckets; b++) {
            mt_view v = mt_store_piece(&m->store, b, MT_STATE_MASTER);
            if (mt_view_given(v)) h = training_hash_bytes(h, mt_address(&t->s.rank[i].ctx, v), v.bytes);
        }
    }
    return h;
}

/* Steps with a validation among them; what came out, and the peaks. */
struct outcome {
    uint64_t hash;
    int64_t peak[MT_N_ARENAS];
};
static struct outcome train(const char *options, int world, int order_seed)
{
    struct training t = {0};
    struct outcome o = {0};
    mt_err e = {0};
    if (!CHECK(training_config(&t.cfg, options))) return o;
    t.cfg.device_order_seed = order_seed;
    mt_status st = mt_session_open(&t.s, &t.cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(&t.s, mt_fill_step, &e);
    for (int64_t i = 0; i < STEPS && st == MT_OK; i++) {
        for (int k = 0; k < world; k++) t.s.rank[k].step.step = i;
        batches(&t, i);
        st = mt_session_run(&t.s, mt_train_step, &e);
        CHECK(st != MT_OK || t.s.rank[0].step.updated);
        double loss = t.s.rank[0].step.loss;
        if (st == MT_OK && i == 0) st = mt_session_run(&t.s, mt_eval_step, &e);
        t.s.rank[0].step.loss = loss;
    }
    if (CHECK(st == MT_OK)) {
        o.hash = hash_all(&t);
        memcpy(o.peak, t.s.plan.peak, sizeof o.peak);
    } else {
        printf("  %s\n  with %s\n", e.msg, options);
    }
    mt_session_close(&t.s);
    return o;
}

static const char *const choices[] = {
    "recompute.policy=none recompute.keep_on=host offload.activations.fraction=1 ",
    "offload.activations.fraction=0.5 ",
    "offload.activations.fraction=1 ",
    "offload.activations.fraction=1 offload.activations.prefetch=2 ",
    "offload.activations.fraction=0.7 offload.activations.prefetch=64 ",
    "recompute.policy=selective ",
    "recompute.policy=none ",
    "recompute.policy=selective recompute.keep_on=host offload.activations.fraction=0.5 ",
    "recompute.policy=none recompute.keep_memory=100KiB ",
    "recompute.policy=none recompute.keep_memory=60KiB recompute.keep_on=host "
    "offload.activations.fraction=0.5 offload.activations.prefetch=2 ",
};
/* Each class of results alone. */
#define KEEP(id, name) "recompute.keep=" name " ",
static const char *const classes[] = {MT_CHOICES_keep(KEEP)};
#undef KEEP

static void same_bits(const char *base, int world)
{
    char options[2048];
    struct outcome want = train(base, world, 0);
    int n = sizeof choices / sizeof *choices, all = n + (int)(sizeof classes / sizeof *classes);
    for (int i = 0; i < all; i += EVERY) {
        snprintf(options, sizeof options, "%s%s", base, i < n ? choices[i] : classes[i - n]);
        if (!CHECK(train(options, world, 0).hash == want.hash)) printf("  with %s\n", options);
    }
}

#define LAYERS TRAINING_BASE "model.layers=5 "
TEST(dense)
{
    same_bits(LAYERS "train.dtype=bf16 model.attn_bias=true model.tied=true ", 1);
}
TEST(experts)
{
    same_bits(LAYERS TRAINING_MOE, 1);
}
TEST(experts_in_rounds)
{
    same_bits(LAYERS TRAINING_MOE "moe.buffer_factor=0.3 train.dtype=bf16 ", 1);
}
TEST(all_micro_batches_in_a_layer)
{
    same_bits(LAYERS TRAINING_MOE "train.micro_order=layer moe.buffer_factor=0.6 model.shared_ffn=0 ", 1);
}
TEST(four_ranks)
{
    same_bits(LAYERS TRAINING_MOE
              "model.experts=8 mesh.ep=2 train.global_batch=16 shard.prefetch=2 moe.buffer_factor=0.8 ",
              4);
}
TEST(layers_on_two_ranks)
{
    same_bits(LAYERS TRAINING_MOE
              "mesh.ep=2 train.global_batch=8 train.micro_order=layer shard.keep_last=2 train.dtype=bf16 ",
              2);
}

/* Whatever order streams run in. */
TEST(adversarial_orders)
{
    static const char base[] = LAYERS TRAINING_MOE
        "recompute.policy=none recompute.keep_on=host offload.activations.fraction=0.8 ";
    uint64_t want = train(base, 1, 0).hash;
    for (int seed = 1; seed <= (BRIEF ? 1 : 8); seed++) CHECK(train(base, 1, seed).hash == want);
}

/* Where boundary activations are what takes room, the device needs as many fewer as are on the host at the fullest moment: all
 * but those of the layers that are on their way. */
TEST(the_device_needs_less)
{
    static const char base[] = TRAINING_BASE
        "model.layers=24 model.dim=64 model.ffn=16 model.heads=1 model.kv_heads=1 train.seq_len=512 "
        "train.global_batch=2 model.vocab=17 train.loss_chunk=8 muon.batch_bytes=1 ";
    const int64_t boundary = 2 * 512 * 64 * 4;
    char options[2048];
    struct outcome none = train(base, 1, 0);
    for (int prefetch = 1; prefetch <= 3; prefetch++) {
        snprintf(options, sizeof options, "%soffload.activations.fraction=1 offload.activations.prefetch=%d ",
                 base, prefetch);
        struct outcome all = train(options, 1, 0);
        /* While the first blocks go forward, prefetch of them are on their way; one is read and one written. */
        int64_t gone = 24 + 1 - (prefetch + 2),
                saved = none.peak[MT_DEVICE_ARENA] - all.peak[MT_DEVICE_ARENA];
        printf("  prefetch %d: device %lld -> %lld, %.3f of %lld boundaries; host %lld\n", prefetch,
               (long long)none.peak[MT_DEVICE_ARENA], (long long)all.peak[MT_DEVICE_ARENA],
               (double)saved / (double)boundary, (long long)gone, (long long)all.peak[MT_HOST_ARENA]);
        CHECK(all.hash == none.hash);
        CHECK_INT(all.peak[MT_HOST_ARENA] - none.peak[MT_HOST_ARENA], 24 * boundary);
        CHECK(saved >= (gone - 1) * boundary && saved <= gone * boundary);
    }
}

int main(void)
{
    if (BRIEF < 2) {
        RUN(dense);
        RUN(experts);
        RUN(experts_in_rounds);
        RUN(all_micro_batches_in_a_layer);
        RUN(four_ranks);
    }
    RUN(layers_on_two_ranks);
    RUN(adversarial_orders);
    if (!BRIEF) RUN(the_device_needs_less);
    return DONE();
}
