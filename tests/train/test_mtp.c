/* test: timeout=240 variants=release,asan
 *
 * Modules that learn to predict further tokens: their labels by hand, losses and every gradient against PyTorch
 * (tests/oracle/mtp.py) and against finite differences, the model without them where their weight is 0, and any layout of ranks. */
#include "golden.h"
#include "ranks.h"

#ifdef __SANITIZE_ADDRESS__
enum { STEPS = 2, BRIEF = 1 };
#else
enum { STEPS = 3, BRIEF = 0 };
#endif

/* ---- tokens and labels ---- */
TEST(further_tokens)
{
    /* Two samples of eight: documents of 5 and 3 tokens, the second of which goes on in the next sample's first three; a piece of
     * another document, whose label is known though what follows is not its own; padding. */
    static const int32_t tokens[] = {10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25, 30, 31, 40, 0, 0},
                         labels[] = {11, 12, 13, 14, -1, 21, 22, 23, 24, 25, -1, 31, 32, -1, -1, -1},
                         begin[] = {0, 0, 0, 0, 0, 5, 5, 5, 8, 8, 8, 11, 11, 13, 14, 15},
                         pos[] = {0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 0};
    static const int32_t token[2][16] = {{11, 12, 13, 14, 20, 21, 22, 0, 24, 25, 30, 31, 40, 0, 0, 0},
                                         {12, 13, 14, 20, 21, 22, 0, 0, 25, 30, 31, 40, 0, 0, 0, 0}},
                         label[2][16] = {{12, 13, 14, -1, -1, 22, 23, -1, 25, -1, -1, 32, -1, -1, -1, -1},
                                         {13, 14, -1, -1, -1, 23, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
    struct training t;
    if (!training_open(&t, TRAINING_BASE "model.mtp_depth=2 train.seq_len=8 train.micro_batch=2 "
                                         "train.global_batch=2 train.loss_chunk=8 ")) {
        training_close(&t);
        return;
    }
    const struct mt_model *m = &t.s.rank[0].model;
    const struct mt_ctx *c = &t.s.rank[0].ctx;
    memcpy(mt_address(c, m->host.tokens), tokens, sizeof tokens);
    memcpy(mt_address(c, m->host.labels), labels, sizeof labels);
    memcpy(mt_address(c, m->host.begin), begin, sizeof begin);
    memcpy(mt_address(c, m->host.pos), pos, sizeof pos);
    mt_mtp_batch(c, m);
    CHECK(!memcmp(mt_address(c, m->mtp.host_tokens), token, sizeof token));
    CHECK(!memcmp(mt_address(c, m->mtp.host_labels), label, sizeof label));
    training_close(&t);
}

/* ---- against PyTorch ---- */
static void golden_batch(struct training *t, const struct golden *g)
{
    const struct mt_model *m = &t->s.rank[0].model;
    static const char *const name[] = {"tokens", "labels", "begin", "pos"};
    const mt_view v[] = {m->host.tokens, m->host.labels, m->host.begin, m->host.pos};
    for (int i = 0; i < 4; i++)
        memcpy(mt_address(&t->s.rank[0].ctx, v[i]), golden_i32(g, name[i], v[i].dim[0]), (size_t)v[i].bytes);
    mt_mtp_batch(&t->s.rank[0].ctx, m);
}

/* A session whose parameters are the fixture's, and which no step changes. */
static bool golden_session(struct training *t, const struct golden *g, const char *more)
{
    char options[2048];
    struct mt_ckpt_items x;
    mt_err e = {0};
    snprintf(options, sizeof options, "%s train.dtype=f32 train.loss_chunk=20 %s", golden_meta(g, "options"),
             more);
    if (!training_open(t, options) || !training_run(t, mt_fill_step) ||
        !CHECK(mt_session_items(&t->s, &x, &e) == MT_OK))
        return false;
    for (int64_t i = 0; i < x.n; i++) {
        char name[160];
        snprintf(name, sizeof name, "init/%s", x.item[i].name);
        const struct golden_tensor *v = golden_find(g, name);
        if (v) memcpy(x.piece[x.item[i].first].data, v->data, (size_t)mt_ckpt_item_bytes(&x.item[i]));
    }
    mt_ckpt_items_close(&x);
    t->s.rank[0].step.norm_limit = 1e-30;
    golden_batch(t, g);
    return training_run(t, mt_pack_step) && training_run(t, mt_train_step) &&
           CHECK(!t->s.rank[0].step.updated);
}

static double mean_loss(const struct mt_step *s, int depth)
{
    return depth ? s->mtp_loss[depth - 1] / (double)s->mtp_valid[depth - 1] : s->loss / (double)s->valid;
}

static void compare(struct training *t, const struct golden *g)
{
    const struct mt_store *s = &t->s.rank[0].model.store;
    const struct mt_step *step = &t->s.rank[0].step;
    int64_t depth = t->s.rank[0].model.shape.mtp;
    const float *loss = golden_f32(g, "loss", depth + 1);
    const int32_t *valid = golden_i32(g, "valid", depth + 1);
    if (!CHECK(loss && valid)) return;
    for (int k = 0; k <= depth; k++) CHECK_CLOSE(mean_loss(step, k), (double)loss[k], 1e-5);
    for (int k = 0; k <= depth; k++) CHECK_INT(k ? step->mtp_valid[k - 1] : step->valid, valid[k]);
    CHECK_CLOSE(step->norm / (double)golden_f32(g, "grad_norm", 1)[0], 1, 1e-5);
    for (int i = 0; i < s->n_tensors; i++)
        for (int64_t p = 0; p < mt_store_local(s, i).parts; p++) {
            char name[96], full[128];
            mt_view v = mt_view_part(mt_store_local_state(s, i, MT_STATE_GRAD), p, 1);
            mt_param_name(&s->tensor[i], p, name);
            snprintf(full, sizeof full, "grad/%s", name);
            const float *want = golden_f32(g, full, mt_view_count(v));
            double rel = want ? check_rel(mt_address(&t->s.rank[0].ctx, v), want, mt_view_count(v))
                              : (double)NAN;
            if (!(rel <= 1e-5)) printf("  %s: %.3g\n", full, rel);
            CHECK(rel <= 1e-5);
        }
}

static void run_golden(const char *file, const char *more)
{
    struct golden g;
    struct training t = {0};
    if (!CHECK(golden_open(&g, file))) return;
    if (golden_session(&t, &g, more)) compare(&t, &g);
    training_close(&t);
    golden_close(&g);
}
TEST(like_pytorch)
{
    static const char *const more[] = {"", "recompute.policy=none train.micro_order=layer",
                                       "recompute.policy=selective moe.buffer_factor=0.3",
                                       "offload.activations.fraction=1 recompute.policy=selective "
                                       "recompute.keep_on=host train.micro_order=layer",
                                       "offload.masters=host offload.moments=host offload.grads=host"};
    for (int i = 0; i < (BRIEF ? 2 : 5); i++) {
        run_golden("mtp.safetensors", more[i]);
        run_golden("mtp_tied.safetensors", more[i]);
    }
}

/* ---- against finite differences ---- */
static double objective(struct training *t)
{
    const struct mt_model *m = &t->s.rank[0].model;
    double sum = mean_loss(&t->s.rank[0].step, 0);
    for (int k = 1; k <= m->shape.mtp; k++)
        sum += m->opt.mtp_weight / (double)m->shape.mtp * mean_loss(&t->s.rank[0].step, k);
    return sum;
}
/* The objective with a tensor moved along its gradient. */
static double moved(struct training *t, float *w, const float *g, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++) w[i] = (float)((double)w[i] + by * (double)g[i]);
    bool ok = training_run(t, mt_pack_step) && training_run(t, mt_train_step);
    return ok ? objective(t) : (double)NAN;
}
static void differ(struct training *t, int tensor)
{
    const struct mt_store *s = &t->s.rank[0].model.store;
    const struct mt_ctx *c = &t->s.rank[0].ctx;
    mt_view v = mt_view_part(mt_store_local_state(s, tensor, MT_STATE_MASTER), 0, 1),
            d = mt_view_part(mt_store_local_state(s, tensor, MT_STATE_GRAD), 0, 1);
    int64_t n = mt_view_count(v);
    float *w = mt_address(c, v), *was = malloc((size_t)n * 4), *g = malloc((size_t)n * 4);
    double square = 0;
    MT_ASSERT(was && g);
    memcpy(was, w, (size_t)n * 4);
    memcpy(g, mt_address(c, d), (size_t)n * 4);
    for (int64_t i = 0; i < n; i++) square += (double)g[i] * (double)g[i];
    double step = 4e-3 / sqrt(square), up = moved(t, w, g, n, step);
    memcpy(w, was, (size_t)n * 4);
    double down = moved(t, w, g, n, -step);
    memcpy(w, was, (size_t)n * 4);
    double slope = (up - down) / (2 * step) / square;
    if (!(fabs(slope - 1) <= 5e-3)) {
        char name[96];
        mt_param_name(&s->tensor[tensor], 0, name);
        printf("  %s: %.6f\n", name, slope);
    }
    CHECK(fabs(slope - 1) <= 5e-3);
    free(was);
    free(g);
}
TEST(finite_differences)
{
    struct golden g;
    struct training t = {0};
    if (!CHECK(golden_open(&g, "mtp.safetensors"))) return;
    if (golden_session(&t, &g, ""))
        for (int i = 0; i < t.s.rank[0].model.store.n_tensors; i++)
            if (training_run(&t, mt_pack_step) && training_run(&t, mt_train_step)) differ(&t, i);
    training_close(&t);
    golden_close(&g);
}

/* ---- beside the model ---- */
/* Every master of `a` that `b` has too. */
static void same_masters(struct training *a, struct training *b)
{
    struct mt_ckpt_items x, y;
    mt_err e = {0};
    int64_t n = 0;
    if (!CHECK(mt_session_items(&a->s, &x, &e) == MT_OK) || !CHECK(mt_session_items(&b->s, &y, &e) == MT_OK))
        return;
    for (int64_t i = 0; i < x.n; i++)
        for (int64_t k = 0; k < y.n; k++) {
            if (strcmp(x.item[i].name, y.item[k].name) != 0) continue;
            n++;
            CHECK(!memcmp(x.piece[x.item[i].first].data, y.piece[y.item[k].first].data,
                          (size_t)mt_ckpt_item_bytes(&x.item[i])));
        }
    CHECK_INT(n, x.n);
    CHECK(y.n > x.n);
    mt_ckpt_items_close(&x);
    mt_ckpt_items_close(&y);
}
/* With weight 0 the model learns what it learns alone, to the bit; validation looks at the model alone. */
static void beside(const char *options)
{
    char text[1024];
    struct training a, b;
    snprintf(text, sizeof text, "%s model.mtp_depth=2 model.mtp_loss_weight=0", options);
    if (training_open(&a, options) && training_open(&b, text) && training_run(&a, mt_fill_step) &&
        training_run(&b, mt_fill_step) && training_steps(&a, 0, STEPS) && training_steps(&b, 0, STEPS)) {
        const struct mt_step *x = &a.s.rank[0].step, *y = &b.s.rank[0].step;
        CHECK(x->loss == y->loss && x->norm == y->norm && x->valid == y->valid);
        CHECK(mean_loss(y, 1) > 1 && mean_loss(y, 2) > 1 && mean_loss(y, 1) < 10);
        same_masters(&a, &b);
        CHECK(training_run(&a, mt_eval_step) && training_run(&b, mt_eval_step));
        CHECK(x->loss == y->loss && x->valid == y->valid);
    }
    training_close(&a);
    training_close(&b);
}
TEST(weight_0_changes_nothing)
{
    beside(TRAINING_BASE);
    beside(TRAINING_BASE TRAINING_MOE "model.tied=true recompute.policy=none ");
}
TEST(further_tokens_are_learned)
{
    struct training t;
    double first[3];
    if (training_open(&t, TRAINING_BASE TRAINING_MOE "model.mtp_depth=2 optim.lr=2e-2 ") &&
        training_run(&t, mt_fill_step) && training_steps(&t, 0, 1)) {
        for (int k = 0; k < 3; k++) first[k] = mean_loss(&t.s.rank[0].step, k);
        if (training_steps(&t, 1, 40))
            for (int k = 0; k < 3; k++) CHECK(mean_loss(&t.s.rank[0].step, k) < 0.5 * first[k]);
    }
    training_close(&t);
}

/* ---- layouts of ranks ---- */
#define TINY                                                                                            \
    "model.vocab=61 model.dim=24 model.layers=2 model.heads=2 model.kv_heads=1 model.head_dim=12 "      \
    "model.ffn=40 model.experts=12 model.top_k=3 model.expert_ffn=16 model.first_dense=1 "              \
    "model.score=sigmoid model.bias_rate=0.01 model.init_std=0.1 model.mtp_depth=2 train.seq_len=12 "   \
    "train.global_batch=24 train.loss_chunk=10 optim.warmup_steps=0 optim.lr=0.01 optim.decay_ratio=0 " \
    "train.dtype=f32 device.workers=2 mesh.ranks_per_node=4 "
struct outcome {
    double loss[STEPS], norm[STEPS], mtp[STEPS][2];
    struct ranks_values v;
};
static bool run(const char *more, int world, struct outcome *o)
{
    char options[2048];
    struct training t;
    snprintf(options, sizeof options, TINY "%s", more);
    bool ok = ranks_open(&t, options, world) && training_run(&t, mt_fill_step);
    for (int64_t i = 0; i < STEPS && ok; i++) {
        const struct mt_step *s = &t.s.rank[world - 1].step;
        ok = ranks_step(&t, i) && CHECK(s->updated);
        o->loss[i] = s->loss;
        o->norm[i] = s->norm;
        memcpy(o->mtp[i], s->mtp_loss, sizeof o->mtp[i]);
    }
    ok = ok && ranks_values_take(&o->v, &t);
    training_close(&t);
    return ok;
}
/* tol 0: to the bit. */
static void layout(const char *more, int world, const struct outcome *one, double tol)
{
    struct outcome o = {0};
    if (run(more, world, &o)) {
        double d = CHECK(o.v.n == one->v.n) ? check_rel(o.v.at, one->v.at, o.v.n) : (double)NAN;
        for (int i = 0; i < STEPS; i++) {
            CHECK(fabs(o.loss[i] / one->loss[i] - 1) <= tol &&
                  fabs(o.norm[i] / one->norm[i] - 1) <= 10 * tol);
            for (int k = 0; k < 2; k++) CHECK(fabs(o.mtp[i][k] / one->mtp[i][k] - 1) <= tol);
        }
        if (!(d <= tol)) printf("  %d ranks, %s: parameters differ by %.3g\n", world, more, d);
        CHECK(d <= tol);
    }
    ranks_values_release(&o.v);
}
/* Latent attention, a window in all blocks but the first, and routers that learn to balance. */
#define OTHER                                                                                              \
    "model.attention=mla model.kv_heads=2 model.q_lora_rank=14 model.kv_lora_rank=10 model.rotary_dims=4 " \
    "model.v_head_dim=8 model.window=5 model.window_full_first=1 moe.aux_loss_sequence=0.05 "              \
    "moe.aux_loss_global=0.1 moe.z_loss=0.01 "
TEST(layouts)
{
    static const struct {
        const char *more;
        int world;
    } t[] = {
        {"mesh.ep=4 mesh.replicas=2 moe.buffer_factor=0.3", 8},
        {"mesh.ep=2 train.micro_order=layer recompute.policy=selective", 4},
        {"mesh.ep=1 shard.hierarchy=flat wire.reduce=f32", 12},
        {"mesh.ep=2 shard.reshard_dense=node shard.reshard_experts=node shard.host_weights=all", 8},
        {"mesh.ep=2 shard.keep_last=3 shard.prefetch=3 shard.grads=2", 4},
        {"offload.activations.fraction=1 offload.masters=host offload.moments=host offload.grads=host", 2},
        {"shard.prefetch=8 train.micro_batch=2 muon.dense=gather", 3}};
    struct outcome one = {0}, tied = {0}, other = {0};
    if (run("", 1, &one))
        for (size_t i = 0; i < (BRIEF ? 2 : sizeof t / sizeof t[0]); i++)
            layout(t[i].more, t[i].world, &one, 1e-6);
    if (run("model.tied=true", 1, &tied))
        layout("model.tied=true mesh.ep=2 offload.grads=host shard.grads=3", 4, &tied, 1e-6);
    if (run(OTHER "train.micro_batch=24", 1, &other))
        layout(OTHER "train.micro_batch=6 mesh.ep=2", 4, &other, 1e-6);
    ranks_values_release(&one.v);
    ranks_values_release(&tied.v);
    ranks_values_release(&other.v);
}
/* The same ranks: whenever weights come, and in whatever order streams run. */
TEST(schedules)
{
    static const char *const more[] = {"device.order_seed=3 shard.prefetch=2",
                                       "shard.keep_last=2 device.order_seed=5",
                                       "shard.host_weights=all device.workers=1"};
    struct outcome plain = {0};
    char options[256];
    if (run("mesh.ep=2", 4, &plain))
        for (int i = 0; i < (BRIEF ? 1 : 3); i++) {
            snprintf(options, sizeof options, "mesh.ep=2 %s", more[i]);
            layout(options, 4, &plain, 0);
        }
    ranks_values_release(&plain.v);
}

int main(void)
{
    RUN(further_tokens);
    RUN(like_pytorch);
    RUN(finite_differences);
    RUN(weight_0_changes_nothing);
    RUN(further_tokens_are_learned);
    RUN(layouts);
    RUN(schedules);
    return DONE();
}
