/* test: timeout=240 variants=release
 *
 * Every legal layout of 1, 2, 4, 8 and 12 ranks: expert parallelism of 1, 2 and 4, one replica and two, micro-batches through
 * the model in turn or through each block together. Five steps in f32: losses, gradient norms and every parameter are one
 * rank's to 1e-6; and what is no layout changes no bit. */
#include "ranks.h"

enum { STEPS = 5, WORLDS = 5, EPS = 3, REPLICAS = 2, ORDERS = 2 };
static const int worlds[WORLDS] = {1, 2, 4, 8, 12}, eps[EPS] = {1, 2, 4};
static const char *const orders[ORDERS] = {"batch", "layer"};
static const double TOL = 1e-6;

#define TINY                                                                                             \
    "model.vocab=61 model.dim=24 model.layers=3 model.heads=2 model.kv_heads=1 model.head_dim=12 "       \
    "model.ffn=40 model.top_k=3 model.expert_ffn=16 model.shared_ffn=24 model.first_dense=1 "            \
    "model.qk_norm=true model.attn_bias=true model.score=sigmoid model.bias_rate=0.01 "                  \
    "model.init_std=0.1 train.seq_len=12 train.micro_batch=1 train.global_batch=24 train.loss_chunk=10 " \
    "optim.warmup_steps=0 optim.lr=0.01 optim.decay_ratio=0 train.dtype=f32 device.workers=2 "           \
    "mesh.ranks_per_node=4 "
/* None of these is a layout: alone, and together. */
static const char *const
    alone[] = {"shard.prefetch=2", "muon.dense=gather", "moe.buffer_factor=0.3", "device.workers=1", NULL},
    *const together[] = {
        "shard.prefetch=2 shard.keep_last=1 muon.dense=gather moe.buffer_factor=0.4 device.workers=3", NULL};

struct outcome {
    double loss[STEPS], norm[STEPS];
    struct ranks_values v;
};
struct layout {
    int world, ep, replicas, order, experts;
};

static void options_of(const struct layout *l, const char *more, char *out, size_t size)
{
    snprintf(out, size, TINY "model.experts=%d mesh.ep=%d mesh.replicas=%d train.micro_order=%s %s",
             l->experts, l->ep, l->replicas, orders[l->order], more);
}
static bool run(const struct layout *l, const char *more, struct outcome *o)
{
    char options[2048];
    struct training t;
    options_of(l, more, options, sizeof options);
    bool ok = ranks_open(&t, options, l->world) && training_run(&t, mt_fill_step);
    for (int64_t i = 0; i < STEPS && ok; i++) {
        ok = ranks_step(&t, i);
        for (int r = 0; r < l->world; r++)
            CHECK(t.s.rank[r].step.updated && t.s.rank[r].step.loss == t.s.rank[0].step.loss &&
                  t.s.rank[r].step.norm == t.s.rank[0].step.norm);
        o->loss[i] = t.s.rank[0].step.loss;
        o->norm[i] = t.s.rank[0].step.norm;
    }
    ok = ok && ranks_values_take(&o->v, &t);
    training_close(&t);
    return ok;
}

/* The largest relative difference of a loss, of a norm, of all parameters, of a tensor of them (each to its own norm), and of a
 * bias of attention: these start from zero, a key's moves all scores of a query nearly alike, so that its gradient is mostly what
 * rounding leaves, and AdamW divides by its size. */
struct difference {
    double loss, norm, all, tensor, bias;
};
static void grow(double *most, double x)
{
    if (!(x <= *most)) *most = x; /* NaN, too */
}
static struct difference compare(const struct outcome *a, const struct outcome *b)
{
    struct difference d = {0};
    if (!CHECK_INT(a->v.n, b->v.n) || !CHECK_INT(a->v.tensors, b->v.tensors))
        return (struct difference){1, 1, 1, 1, 1};
    for (int i = 0; i < STEPS; i++) {
        grow(&d.loss, fabs(a->loss[i] / b->loss[i] - 1));
        grow(&d.norm, fabs(a->norm[i] / b->norm[i] - 1));
    }
    d.all = check_rel(a->v.at, b->v.at, a->v.n);
    for (int64_t i = 0; i < b->v.tensors; i++) {
        int64_t at = a->v.begin[i], n = a->v.begin[i + 1] - at;
        grow(a->v.bias[i] ? &d.bias : &d.tensor, check_rel(a->v.at + at, b->v.at + at, n));
    }
    return d;
}
static bool same_bits(const struct outcome *a, const struct outcome *b)
{
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm) &&
           a->v.n == b->v.n && !memcmp(a->v.at, b->v.at, (size_t)a->v.n * sizeof *a->v.at);
}

static void check_layout(const struct layout *l, const char *const *same, const struct outcome *one,
                         struct difference *most)
{
    struct outcome base = {0};
    char text[128];
    snprintf(text, sizeof text, "%d experts: %d ranks, ep %d, %d replicas, order %s", l->experts, l->world,
             l->ep, l->replicas, orders[l->order]);
    if (run(l, "", &base)) {
        struct difference d = compare(&base, one);
        if (!CHECK(d.loss <= TOL && d.norm <= TOL && d.all <= TOL && d.tensor <= TOL && d.bias <= 10 * TOL))
            printf("  %s: loss %.2g, norm %.2g, parameters %.2g, a tensor %.2g, a bias %.2g\n", text, d.loss,
                   d.norm, d.all, d.tensor, d.bias);
        grow(&most->loss, d.loss);
        grow(&most->norm, d.norm);
        grow(&most->all, d.all);
        grow(&most->tensor, d.tensor);
        grow(&most->bias, d.bias);
    }
    for (int i = 0; same[i]; i++) {
        struct outcome o = {0};
        if (run(l, same[i], &o) && !CHECK(same_bits(&o, &base)))
            printf("  %s: other bits with %s\n", text, same[i]);
        ranks_values_release(&o.v);
    }
    ranks_values_release(&base.v);
}
/* What does not divide is refused. */
static void check_refused(const struct layout *l)
{
    struct training t = {0};
    char options[2048];
    mt_err e = {0};
    options_of(l, "", options, sizeof options);
    if (CHECK(training_config(&t.cfg, options)))
        CHECK_INT(mt_session_open(&t.s, &t.cfg, l->world, false, &e), MT_CONFIG);
    mt_session_close(&t.s);
}

static void walk(int experts, const char *const *same)
{
    struct outcome one = {0};
    struct difference most = {0};
    int legal = 0, refused = 0;
    if (!run(&(struct layout){1, 1, 1, 0, experts}, "", &one)) return;
    for (int i = 0; i < WORLDS * EPS * REPLICAS * ORDERS; i++) {
        struct layout l = {.world = worlds[i / ORDERS / REPLICAS / EPS],
                           .ep = eps[i / ORDERS / REPLICAS % EPS],
                           .replicas = 1 + i / ORDERS % REPLICAS,
                           .order = i % ORDERS,
                           .experts = experts};
        if (l.world % (l.ep * l.replicas)) {
            check_refused(&l);
            refused++;
            continue;
        }
        check_layout(&l, same, &one, &most);
        legal++;
    }
    printf("  %d experts: %d layouts, %d refused; at most: loss %.2g, norm %.2g, parameters %.2g, a tensor "
           "%.2g, "
           "a bias %.2g\n",
           experts, legal, refused, most.loss, most.norm, most.all, most.tensor, most.bias);
    CHECK_INT(legal, 40);
    ranks_values_release(&one.v);
}

TEST(twelve_experts)
{
    walk(12, alone);
}
TEST(sixteen_experts)
{
    walk(16, together);
}

int main(void)
{
    RUN(twelve_experts);
    RUN(sixteen_experts);
    return DONE();
}
