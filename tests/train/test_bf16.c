/* test: timeout=120 variants=release
 *
 * Training as a whole: bf16 follows f32, a batch that is repeated is learnt, experts that are all alike are a dense layer. */
#include "training.h"

#define DENSE TRAINING_BASE "train.global_batch=4 optim.lr=3e-3 "
#define MOE DENSE TRAINING_MOE

/* ---- bf16 against f32 ---- */
enum { STEPS = 20 };
static bool losses(const char *shape, const char *more, double *out)
{
    struct training t;
    char options[4096];
    snprintf(options, sizeof options, "%s%s", shape, more);
    if (!training_open(&t, options)) return false;
    bool ok = training_run(&t, mt_fill_step);
    for (int i = 0; i < STEPS && ok; i++) {
        ok = training_steps(&t, i, i + 1);
        out[i] = training_loss(&t);
    }
    training_close(&t);
    return ok;
}

/* A bound set before it was measured: 3 per cent of the loss. */
static void follows(const char *shape)
{
    double f32[STEPS], bf16[STEPS], worst = 0;
    if (!losses(shape, "train.dtype=f32", f32) || !losses(shape, "train.dtype=bf16", bf16)) return;
    for (int i = 0; i < STEPS; i++) {
        CHECK_CLOSE(bf16[i] / f32[i], 1, 3e-2);
        if (fabs(bf16[i] / f32[i] - 1) > worst) worst = fabs(bf16[i] / f32[i] - 1);
    }
    CHECK(worst > 0); /* two runs, not one */
    CHECK(f32[STEPS - 1] < f32[0]);
    CHECK_CLOSE(f32[0], log(97), 0.15); /* of a model that knows nothing */
    printf("  f32 from %.4f to %.4f, bf16 to %.4f, at most %.2g off\n", f32[0], f32[STEPS - 1],
           bf16[STEPS - 1], worst);
}
TEST(bf16_follows_f32_dense)
{
    follows(DENSE);
}
TEST(bf16_follows_f32_experts)
{
    follows(MOE);
}

/* ---- one batch again and again ---- */
static void learns(const char *shape, const char *more)
{
    struct training t;
    char options[4096];
    snprintf(options, sizeof options, "%s%s", shape, more);
    if (!training_open(&t, options)) return;
    bool ok = training_run(&t, mt_fill_step);
    double first = 0, before = 0;
    training_batch(&t, 5);
    for (int i = 0; i < 40 && ok; i++) {
        t.s.rank[0].step.step = i;
        ok = training_run(&t, mt_train_step) && CHECK(t.s.rank[0].step.updated);
        if (i == 0) first = training_loss(&t);
        if (i % 10 == 0) {
            CHECK(i == 0 || training_loss(&t) < before);
            before = training_loss(&t);
        }
    }
    printf("  %s from %.4f to %.4f\n", more, first, training_loss(&t));
    CHECK(training_loss(&t) < 0.5 * first);
    /* Validation of the batch that was learnt: what the next step would see. */
    ok = ok && training_run(&t, mt_eval_step);
    double seen = training_loss(&t);
    ok = ok && training_run(&t, mt_train_step);
    CHECK_CLOSE(seen, training_loss(&t), 1e-6 * seen);
    training_close(&t);
}
TEST(one_batch_is_learnt)
{
    learns(DENSE, "train.dtype=f32");
    learns(DENSE, "train.dtype=bf16");
    learns(MOE, "train.dtype=f32");
    learns(MOE, "train.dtype=bf16 moe.buffer_factor=0.4");
}

/* ---- experts that are all alike ---- */
/* The master of a parameter, by its name. */
static const struct mt_ckpt_item *find(const struct mt_ckpt_items *x, const char *name)
{
    for (int64_t i = 0; i < x->n; i++)
        if (!strcmp(x->item[i].name, name)) return &x->item[i];
    return NULL;
}

/* The dense parameter that a parameter of the mixture gets its values from. */
static void dense_name(const char *name, char out[160])
{
    int layer, expert, n = 0;
    if (sscanf(name, "layers.%d.moe.experts.%d.%n", &layer, &expert, &n) == 2 && n)
        snprintf(out, 160, "layers.%d.mlp.%s", layer, name + n);
    else
        snprintf(out, 160, "%s", name);
}

static int copy_masters(struct training *moe, struct training *dense)
{
    struct mt_ckpt_items to, from;
    mt_err e = {0};
    int copied = 0;
    CHECK(mt_session_items(&moe->s, &to, &e) == MT_OK);
    CHECK(mt_session_items(&dense->s, &from, &e) == MT_OK);
    for (int64_t i = 0; i < to.n; i++) {
        char name[160];
        dense_name(to.item[i].name, name);
        const struct mt_ckpt_item *x = find(&from, name);
        if (to.item[i].moment || !x) continue;
        if (CHECK(x->rows == to.item[i].rows && x->cols == to.item[i].cols))
            memcpy(to.piece[to.item[i].first].data, from.piece[x->first].data, (size_t)mt_ckpt_item_bytes(x));
        copied++;
    }
    mt_ckpt_items_close(&to);
    mt_ckpt_items_close(&from);
    return copied;
}

/* Gradients of the experts add up to the dense one's. */
static void compare_gradients(struct training *moe, struct training *dense)
{
    const struct mt_store *a = &moe->s.rank[0].model.store, *b = &dense->s.rank[0].model.store;
    int n = 0;
    for (int t = 0; t < a->n_tensors; t++) {
        char name[96], wanted[160], other[96];
        mt_param_name(&a->tensor[t], 0, name);
        dense_name(name, wanted);
        for (int u = 0; u < b->n_tensors; u++) {
            mt_param_name(&b->tensor[u], 0, other);
            if (strcmp(other, wanted)) continue;
            mt_view x = mt_store_local_state(a, t, MT_STATE_GRAD),
                    y = mt_store_local_state(b, u, MT_STATE_GRAD);
            int64_t count = mt_view_count(y);
            float *sum = calloc((size_t)count, sizeof *sum);
            for (int64_t i = 0; sum && i < x.dim[0]; i++) {
                const float *part = mt_address(&moe->s.rank[0].ctx, mt_view_part(x, i, 1));
                for (int64_t k = 0; k < count; k++) sum[k] += part[k];
            }
            if (!CHECK_REL(sum, mt_address(&dense->s.rank[0].ctx, y), count, 1e-5)) printf("  %s\n", name);
            free(sum);
            n++;
        }
    }
    CHECK(n > 20);
}

TEST(equal_experts_are_a_dense_layer)
{
    static const char *const factor[] = {"2", "0.2"};
    for (int i = 0; i < 2; i++) {
        struct training moe, dense;
        char options[4096];
        snprintf(options, sizeof options,
                 "%smodel.init_std=0.1 model.experts=6 model.top_k=3 model.expert_ffn=80 "
                 "moe.buffer_factor=%s model.score=%s",
                 DENSE, factor[i], i ? "softmax" : "sigmoid");
        if (!training_open(&dense, DENSE "model.init_std=0.1")) return;
        if (!training_open(&moe, options)) return;
        training_run(&dense, mt_fill_step);
        training_run(&moe, mt_fill_step);
        CHECK(copy_masters(&moe, &dense) > 3 * 6 * 3);
        training_run(&moe, mt_pack_step);
        training_batch(&dense, 3);
        training_batch(&moe, 3);
        training_run(&dense, mt_train_step);
        training_run(&moe, mt_train_step);
        CHECK_INT(moe.s.rank[0].step.valid, dense.s.rank[0].step.valid);
        CHECK_CLOSE(training_loss(&moe) / training_loss(&dense), 1, 1e-5);
        compare_gradients(&moe, &dense);
        training_close(&moe);
        training_close(&dense);
    }
}

int main(void)
{
    RUN(bf16_follows_f32_dense);
    RUN(bf16_follows_f32_experts);
    RUN(one_batch_is_learnt);
    RUN(equal_experts_are_a_dense_layer);
    return DONE();
}
