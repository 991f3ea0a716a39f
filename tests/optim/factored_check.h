/* factored_check.h: SOAP's and Shampoo's tests: against their published rules in float64; what they take, and where their state goes.
 *
 * The file that includes it defines RULE, the optimizer's name; KIND, its mt_optimizer; OPTIONS, those of the golden file; TRAINS, those of the other
 * runs; PREPARES, steps in front that leave the weights as they are. */
#ifndef MT_TESTS_FACTORED_CHECK_H
#define MT_TESTS_FACTORED_CHECK_H
#include <unistd.h>

#include "../train/ranks.h"
#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "golden.h"
#include "model/param.h"
#include "shard/factors.h"

enum { STEPS = 6 };
#define SMALL                                                                                     \
    "model.vocab=64 model.dim=24 model.layers=1 model.head_dim=8 model.ffn=40 train.seq_len=24 "  \
    "train.global_batch=1 train.dtype=f32 optim.warmup_steps=0 optim.decay_ratio=0 optim.clip=0 " \
    "optim.lr=0.01 optim.groups=[{\"match\":\"*\",\"optimizer\":\"" RULE "\"}] " OPTIONS

static void update(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_optim_norm(t->optim, &t->rank, 0);
    mt_optim_update(t->optim, &t->rank, t->cfg, t->step, 1);
}
static int tensor_of(const struct training *t, const char *name)
{
    const struct mt_store *s = &t->s.rank[0].model.store;
    char got[96];
    for (int i = 0; i < s->n_tensors; i++) {
        mt_param_name(&s->tensor[i], 0, got);
        if (!strcmp(got, name)) return i;
    }
    CHECK(!name);
    return 0;
}
static float *state_of(const struct training *t, int tensor, enum mt_state what)
{
    return mt_address(&t->s.rank[0].ctx, mt_store_local_state(&t->s.rank[0].model.store, tensor, what));
}

/* The changes of a matrix over all steps. */
static void follow(struct training *t, const struct golden *g, const char *name, const char *key)
{
    char full[64];
    int tensor = tensor_of(t, name);
    const int64_t n = mt_view_count(mt_store_local_state(&t->s.rank[0].model.store, tensor, MT_STATE_MASTER));
    snprintf(full, sizeof full, "%s/w", key);
    const float *w = golden_f32(g, full, n);
    float *master = state_of(t, tensor, MT_STATE_MASTER), *grad = state_of(t, tensor, MT_STATE_GRAD);
    if (!CHECK(w && master && grad)) return;
    training_run(t, mt_fill_step);
    memcpy(master, w, (size_t)n * sizeof *w);
    for (int64_t step = 0; step < STEPS; step++) {
        double diff = 0, norm = 0;
        snprintf(full, sizeof full, "%s/grad%lld", key, (long long)step);
        const float *from = golden_f32(g, full, n);
        snprintf(full, sizeof full, "%s/after%lld", key, (long long)step);
        const float *want = golden_f32(g, full, n);
        if (!CHECK(from && want)) return;
        memcpy(grad, from, (size_t)n * sizeof *from);
        t->s.rank[0].step.step = step;
        training_run(t, update);
        for (int64_t i = 0; i < n; i++) {
            double change = (double)want[i] - (double)w[i], d = (double)master[i] - (double)want[i];
            diff += d * d;
            norm += change * change;
        }
        if (!CHECK(step >= PREPARES ? norm > 0 && diff <= 1e-8 * norm : norm == 0 && diff == 0))
            printf("  %s, step %lld: %.3g of the change\n", name, (long long)step, sqrt(diff / norm));
    }
}
TEST(golden)
{
    static const struct {
        const char *options, *name[2], *key[2];
    } runs[] = {{"model.heads=3 model.kv_heads=3 ", {"layers.0.attn.q.weight", NULL}, {"both", NULL}},
                {"model.heads=2 model.kv_heads=2 " RULE ".max_dim=16 ",
                 {"layers.0.attn.q.weight", "layers.0.attn.o.weight"},
                 {"left", "right"}}};
    struct golden g;
    if (!CHECK(golden_open(&g, RULE ".safetensors"))) return;
    for (int i = 0; i < 2; i++) {
        struct training t;
        char text[1024];
        snprintf(text, sizeof text, SMALL "%s", runs[i].options);
        if (training_open(&t, text))
            for (int k = 0; k < 2 && runs[i].name[k]; k++) follow(&t, &g, runs[i].name[k], runs[i].key[k]);
        training_close(&t);
    }
    golden_close(&g);
}

/* ---- what it takes ---- */
TEST(vectors_and_long_matrices_are_adamws)
{
    struct training t;
    if (training_open(&t, SMALL "model.heads=2 model.kv_heads=2 " RULE ".max_dim=24")) {
        const struct mt_store *s = &t.s.rank[0].model.store;
        int64_t elements = 0;
        for (int i = 0; i < s->n_tensors; i++) {
            const struct mt_tensor *p = &s->tensor[i];
            const int64_t cols = s->matrix[p->matrix].cols, side[] = {p->rows, cols};
            CHECK_INT(p->optimizer, cols && (p->rows <= 24 || cols <= 24) ? KIND : MT_ADAMW);
            for (int k = 0; k < 2; k++) {
                CHECK_INT(p->factor[k], cols && side[k] <= 24 ? side[k] : 0);
                elements += 2 * p->factor[k] * p->factor[k];
            }
        }
        /* to the byte: all of one rank's lie one behind the other, from multiples of 64 bytes */
        CHECK(s->factor_elements >= elements && s->factor_elements < elements + 16 * s->n_tensors);
        CHECK_INT(t.s.ledger.row[s->factor_row].bytes, 4 * s->factor_elements);
        CHECK_INT(t.s.ledger.row[s->factor_row].row_class, MT_ROW_MOMENT);
    }
    training_close(&t);
}
TEST(a_cut_matrix_is_refused)
{
    struct training t = {0};
    mt_err e = {0};
    CHECK(training_config(&t.cfg, SMALL "model.heads=2 model.kv_heads=2 train.global_batch=2"));
    CHECK_INT(mt_session_open(&t.s, &t.cfg, 2, false, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "cut over 2 ranks") && strstr(e.msg, "placement: owned") &&
          strstr(e.msg, "embed.weight"));
    training_close(&t);
}

/* ---- ranks ---- */
#define TRAIN                                                                                         \
    "train.seq_len=24 train.global_batch=8 model.vocab=61 model.dim=24 model.layers=2 model.heads=3 " \
    "model.kv_heads=3 model.head_dim=8 model.ffn=40 model.experts=8 model.top_k=2 "                   \
    "model.expert_ffn=24 model.first_dense=1 model.init_std=0.1 train.dtype=f32 train.steps=20 "      \
    "optim.warmup_steps=0 optim.decay_ratio=0 optim.lr=0.01 " RULE ".frequency=2 " TRAINS             \
    "shard.groups=[{\"match\":\"*.experts.*\"},{\"match\":\"*.attn.*\",\"placement\":\"owned\"}] "    \
    "optim.groups=[{\"match\":\"*.attn.*.weight\",\"optimizer\":\"" RULE "\"},"                       \
    "{\"match\":\"*.experts.*\",\"optimizer\":\"" RULE "\"},{\"match\":\"*\",\"optimizer\":\"adamw\"}] "

struct outcome {
    double first, last;
    struct ranks_values v;
};
static bool train(struct training *t, const char *more, int world, int64_t from, int64_t to,
                  struct outcome *o)
{
    char text[2048];
    snprintf(text, sizeof text, TRAIN "%s", more);
    if (from == 0 && !(ranks_open(t, text, world) && training_run(t, mt_fill_step))) return false;
    for (int64_t step = from; step < to; step++) {
        if (!ranks_step(t, step)) return false;
        if (step == 0) o->first = t->s.rank[0].step.loss;
        o->last = t->s.rank[0].step.loss;
    }
    return ranks_values_take(&o->v, t);
}
static void outcome_of(struct outcome *o, const char *more, int world)
{
    struct training t;
    train(&t, more, world, 0, STEPS, o);
    training_close(&t);
}
static double apart(const struct outcome *a, const struct outcome *b)
{
    return a->v.n == b->v.n ? check_rel(a->v.at, b->v.at, b->v.n) : (double)NAN;
}
/* Small eigenvalues of a mean of products are mostly rounding, and Adam gives their vectors as much as others: so ranks, which sum in
 * another order, are held to what one rank's own products in another order change. */
TEST(number_of_ranks)
{
    static const struct {
        const char *options;
        int world;
    } runs[] = {{"", 2}, {"mesh.ep=2 ", 4}, {"mesh.ep=2 mesh.replicas=2 ", 8}};
    struct outcome one = {0}, other = {0};
    outcome_of(&one, "", 1);
    outcome_of(&other, "device.isa=scalar ", 1);
    double spread = apart(&other, &one);
    CHECK(one.last < one.first && spread > 0 && spread < 0.05); /* a bound that means something */
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct outcome o = {0};
        outcome_of(&o, runs[i].options, runs[i].world);
        double d = apart(&o, &one);
        CHECK_CLOSE(o.first / one.first, 1, 1e-6);
        CHECK_CLOSE(o.last / one.last, 1, 2e-3);
        if (!CHECK(d <= 2 * spread)) printf("  %d ranks %s: %.3g\n", runs[i].world, runs[i].options, d);
        ranks_values_release(&o.v);
    }
    ranks_values_release(&one.v), ranks_values_release(&other.v);
}
/* Who owns what, where state lives, and how many are updated together change no bit. */
TEST(same_bits)
{
    static const struct {
        const char *options;
        int world;
    } runs[] = {{"offload.moments=host offload.masters=host offload.slot_bytes=1500 ", 2},
                {"optim.compute=host offload.grads=host ", 2},
                {"shard.groups=[{\"match\":\"*\",\"placement\":\"owned\"}] device.order_seed=3 ", 2},
                {RULE ".batch_bytes=1 optim.compute=host device.workers=1 ", 1}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct outcome plain = {0}, o = {0};
        outcome_of(&plain, "", runs[i].world);
        outcome_of(&o, runs[i].options, runs[i].world);
        CHECK(o.v.at && o.v.n == plain.v.n);
        if (!CHECK(!memcmp(o.v.at, plain.v.at, (size_t)o.v.n * 4))) printf("  %s\n", runs[i].options);
        ranks_values_release(&o.v), ranks_values_release(&plain.v);
    }
}

/* All that a checkpoint holds, in its order. */
static uint64_t hash_items(const struct mt_ckpt_items *x)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < x->n; i++) {
        h = training_hash_bytes(h, x->item[i].name, (int64_t)strlen(x->item[i].name));
        for (int64_t k = x->item[i].first; k < x->item[i].first + x->item[i].n; k++)
            if (!x->piece[k].copy)
                h = training_hash_bytes(h, x->piece[k].data,
                                        x->piece[k].rows * mt_ckpt_row_bytes(&x->item[i]));
    }
    return h;
}
static int64_t factors_in(const struct mt_ckpt_items *x)
{
    int64_t n = 0;
    for (int64_t i = 0; i < x->n; i++)
        n += !strncmp(x->item[i].name, "optim.left", 10) || !strncmp(x->item[i].name, "optim.right", 11);
    return n;
}
/* Saved by two ranks, loaded by one and by four: the same bits; and two go on as if nothing had been. */
TEST(checkpoints)
{
    struct training from, to;
    struct outcome o = {0}, want = {0}, got = {0};
    char folder[] = "/tmp/moetitan-XXXXXX", path[MT_CKPT_PATH];
    mt_err e = {0};
    struct mt_ckpt_items a = {0};
    struct mt_ckpt_meta meta = {.step = 3};
    if (!CHECK(mkdtemp(folder) != NULL) || !train(&from, "mesh.ep=2 ", 2, 0, 3, &o)) return;
    CHECK(mt_session_items(&from.s, &a, &e) == MT_OK);
    CHECK_INT(factors_in(&a), 4 * (2 * 4 + 3 * 8)); /* two layers' projections, one layer's experts */
    CHECK(mt_ckpt_save(folder, &a, &meta, &from.cfg, &e) == MT_OK);
    uint64_t saved = hash_items(&a);
    mt_ckpt_folder(folder, 3, path);
    train(&from, "", 2, 3, STEPS, &want);
    static const int worlds[] = {1, 4, 2};
    for (int i = 0; i < 3; i++) {
        struct mt_ckpt_items b = {0};
        struct mt_ckpt_loaded back = {0};
        struct outcome first = {0};
        const struct mt_job jobs = mt_job_alone(worlds[i]);
        if (!train(&to, i == 2 ? "mesh.ep=2 " : "", worlds[i], 0, 1, &first)) return;
        CHECK(mt_session_items(&to.s, &b, &e) == MT_OK);
        if (!CHECK(mt_ckpt_load(path, &b, &jobs, false, &back, &e) == MT_OK)) printf("  %s\n", e.msg);
        CHECK(hash_items(&b) == saved);
        if (worlds[i] == 2) {
            training_run(&to, mt_pack_step);
            train(&to, "", 2, 3, STEPS, &got);
            CHECK(got.v.n == want.v.n && !memcmp(got.v.at, want.v.at, (size_t)got.v.n * 4));
        }
        ranks_values_release(&first.v);
        mt_ckpt_items_close(&b);
        training_close(&to);
    }
    CHECK(mt_remove_folder(path, NULL, &e) == MT_OK);
    snprintf(path, sizeof path, "%s/ckpt", folder);
    CHECK(!rmdir(path) && !rmdir(folder));
    mt_ckpt_items_close(&a);
    ranks_values_release(&o.v), ranks_values_release(&want.v), ranks_values_release(&got.v);
    training_close(&from);
}

static int factored_tests(void)
{
    RUN(golden);
    RUN(vectors_and_long_matrices_are_adamws);
    RUN(a_cut_matrix_is_refused);
    RUN(number_of_ranks);
    RUN(same_bits);
    RUN(checkpoints);
    return DONE();
}
#endif
