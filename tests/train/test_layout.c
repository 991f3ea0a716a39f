/* test: timeout=400 variants=release,asan,tsan,tsan-plain-slow
 *
 * The same training on any number of ranks: losses, norms and every parameter after 5 steps, f32, against one rank. */
#include "ranks.h"

/* Sanitizers slow the many small operations down a hundredfold: one layout of eight ranks, fewer steps. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 2, BRIEF = 1 };
#else
enum { STEPS = 5, BRIEF = 0 };
#endif

struct outcome {
    double loss[STEPS], norm[STEPS];
    struct ranks_values v;
    int64_t steps; /* 0: STEPS */
};

static void run(const char *const *options, int world, struct outcome *o)
{
    static const char *const common[] = {
        "train.seq_len=24",    "train.global_batch=24", "model.vocab=61", "optim.warmup_steps=0",
        "train.loss_chunk=20", "optim.decay_ratio=0",   "optim.lr=0.01",  "model.init_std=0.1",
        "train.steps=5",       "mesh.ranks_per_node=4"};
    char text[2048];
    int n = 0;
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s ", common[i]);
    for (int i = 0; options[i]; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%s ", options[i]);
    struct training t;
    bool ok = ranks_open(&t, text, world) && training_run(&t, mt_fill_step);
    for (int64_t step = 0; step < (o->steps ? o->steps : STEPS) && ok; step++) {
        const struct mt_session_rank *r = t.s.rank;
        ok = ranks_step(&t, step);
        o->loss[step] = r[world - 1].step.loss;
        o->norm[step] = r[world - 1].step.norm;
        if (!step && t.cfg.optim_qk_clip > 0) CHECK((double)r->step.top > t.cfg.optim_qk_clip);
        for (int i = 0; i < world; i++)
            CHECK(r[i].step.updated && r[i].step.loss == r[0].step.loss && r[i].step.norm == r[0].step.norm);
    }
    if (ok) ranks_values_take(&o->v, &t);
    training_close(&t);
}

static double relative(const float *a, const float *b, int64_t n)
{
    return check_rel(a, b, n);
}

static void compare(const char *const *options, const char *const *other, int world,
                    const struct outcome *one, double tol)
{
    struct outcome o = {.steps = one->steps};
    (void)options;
    run(other, world, &o);
    for (int i = 0; i < (o.steps ? o.steps : STEPS); i++) {
        CHECK_CLOSE(o.loss[i] / one->loss[i], 1, tol);
        CHECK_CLOSE(o.norm[i] / one->norm[i], 1, 10 * tol);
    }
    CHECK_INT(o.v.n, one->v.n);
    if (o.v.at && one->v.at) {
        double d = relative(o.v.at, one->v.at, o.v.n);
        if (!(d <= tol)) printf("  %d ranks: parameters differ by %.3g\n", world, d);
        CHECK(d <= tol);
    }
    ranks_values_release(&o.v);
}

#define DENSE_ANY \
    "model.dim=40", "model.layers=3", "model.heads=4", "model.kv_heads=2", "model.head_dim=12", "model.ffn=72"
#define MOE_ANY                                                                                      \
    DENSE_ANY, "model.top_k=3", "model.expert_ffn=24", "model.shared_ffn=40", "model.first_dense=1", \
        "model.qk_norm=true", "model.score=sigmoid", "model.bias_rate=0.01", "model.attn_bias=true"
#define WINDOW "model.window=5", "model.window_full_every=3"
#define MLA                                                                                             \
    "train.dtype=f32", "model.dim=40", "model.layers=3", "model.attention=mla", "model.q_lora_rank=20", \
        "model.kv_lora_rank=12", "model.heads=4", "model.head_dim=14", "model.v_head_dim=10",           \
        "model.rotary_dims=6", "model.rope_factor=4", "model.rope_original=16", "model.ffn=72",         \
        "model.experts=12", "model.top_k=3", "model.expert_ffn=24", "model.first_dense=1",              \
        "model.score=sigmoid", "model.bias_rate=0.01"
#define DENSE "train.dtype=f32", DENSE_ANY
#define MOE "train.dtype=f32", "model.experts=12", MOE_ANY

/* The options, and further ones in a string, with spaces between. */
struct options {
    const char *o[40];
    char text[320];
};
static const char *const *with(struct options *x, const char *const *options, const char *more)
{
    int n = 0;
    char *rest = x->text;
    snprintf(x->text, sizeof x->text, "%s", more);
    while (options[n]) x->o[n] = options[n], n++;
    for (const char *word; (word = strtok_r(rest, " ", &rest));) x->o[n++] = word;
    x->o[n] = NULL;
    return x->o;
}

static void worlds(const char *const *options, double tol)
{
    struct outcome one = {0};
    run(options, 1, &one);
    for (int w = 2; w <= 12; w += w < 4 ? 2 : 4) compare(options, options, w, &one, tol);
    ranks_values_release(&one.v);
}
TEST(dense)
{
    worlds((const char *const[]){DENSE, "optim.qk_clip=0.6", NULL}, 1e-6);
}
TEST(dense_tied)
{
    worlds((const char *const[]){DENSE, "model.tied=true", NULL}, 1e-6);
}
TEST(moe)
{
    worlds((const char *const[]){MOE, NULL}, 1e-6);
}
/* Experts, replicas, activations and state in host memory, and a layer in three without the window. */
TEST(window)
{
    static const char *const options[] = {MOE, WINDOW, NULL};
    struct options more;
    struct outcome one = {0};
    run(options, 1, &one);
    compare(options, options, 4, &one, 1e-6);
    compare(options, with(&more, options, "mesh.ep=2 mesh.replicas=2 recompute.policy=none"), 8, &one, 1e-6);
    compare(options, with(&more, options, "mesh.ep=4 offload.activations.fraction=1 offload.moments=host"), 4,
            &one, 1e-6);
    ranks_values_release(&one.v);
}
/* The same of multi-head latent attention with QK-clip, its matrices cut between heads, or each on one rank. */
#define ATTENTION(placement) "shard.groups=[{\"match\":\"*.attn.*\",\"placement\":" placement "}] "
TEST(latent)
{
    static const char *const options[] = {MLA, "optim.qk_clip=0.6", NULL};
    struct options more;
    struct outcome one = {0};
    run(options, 1, &one);
    compare(options, options, 4, &one, 1e-6);
    compare(options,
            with(&more, options, ATTENTION("block") "mesh.ep=2 mesh.replicas=2 recompute.policy=none"), 8,
            &one, 1e-6);
    compare(options,
            with(&more, options,
                 ATTENTION("owned") "mesh.ep=4 offload.activations.fraction=1 offload.moments=host "
                                    "recompute.keep=qkv recompute.keep_on=host"),
            4, &one, 1e-6);
    ranks_values_release(&one.v);
}
TEST(replicas)
{
    struct outcome one = {0};
    run((const char *const[]){MOE, NULL}, 1, &one);
    const char *const two[] = {MOE, "mesh.replicas=2", NULL};
    for (int w = 2; w <= 12; w += w < 4 ? 2 : 4) compare(two, two, w, &one, 1e-6);
    ranks_values_release(&one.v);
}

/* The same bits whatever is gathered when; and for one rank, whatever goes through a block first. */
TEST(schedules)
{
    static const struct {
        const char *option;
        int world;
        double tol;
    } t[] = {{"shard.prefetch=2", 4, 0},        {"shard.prefetch=8", 4, 0},
             {"shard.keep_last=1", 4, 0},       {"shard.keep_last=3", 8, 0},
             {"moe.buffer_factor=0.3", 4, 0},   {"device.workers=1", 8, 0},
             {"device.order_seed=3", 4, 0},     {"device.order_seed=9", 4, 0},
             {"train.micro_order=layer", 1, 0}, {"train.micro_order=layer", 4, 1e-6}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct outcome plain = {0};
        const char *const base[] = {MOE, t[i].world > 1 ? "mesh.ep=2" : "mesh.ep=1", NULL},
                          *const other[] = {MOE, t[i].world > 1 ? "mesh.ep=2" : "mesh.ep=1", t[i].option,
                                            NULL};
        run(base, t[i].world, &plain);
        compare(base, other, t[i].world, &plain, t[i].tol);
        ranks_values_release(&plain.v);
    }
}

TEST(expert_parallel)
{
    struct outcome one = {0};
    run((const char *const[]){MOE, NULL}, 1, &one);
    const char *const ep2[] = {MOE, "mesh.ep=2", NULL}, *const ep4[] = {MOE, "mesh.ep=4", NULL},
                      *const rounds[] = {MOE, "mesh.ep=4", "moe.buffer_factor=0.2", NULL},
                      *const both[] = {MOE, "mesh.ep=2", "mesh.replicas=2", NULL};
    for (int w = 2; w <= 12; w += w < 4 ? 2 : 4) compare(ep2, ep2, w, &one, 1e-6);
    for (int w = 4; w <= 12; w += 4) compare(ep4, ep4, w, &one, 1e-6);
    for (int w = 4; w <= 12; w += 4) compare(rounds, rounds, w, &one, 1e-6);
    for (int w = 4; w <= 12; w += 4) compare(both, both, w, &one, 1e-6);
    ranks_values_release(&one.v);
}

/* A rank sends fewer rows than a round may be cut at, and one expert gets most of them. */
TEST(rows_fewer_than_a_cut)
{
    struct outcome one = {0};
    run((const char *const[]){MOE, "model.top_k=1", NULL}, 1, &one);
    const char *const few[] = {MOE, "model.top_k=1", "mesh.ep=4", NULL};
    compare(few, few, 4, &one, 1e-6);
    ranks_values_release(&one.v);
}

TEST(eight_ranks)
{
    struct outcome one = {0};
    run((const char *const[]){MOE, NULL}, 1, &one);
    const char *const eight[] = {
        MOE, "mesh.ep=4", "mesh.replicas=2", "moe.buffer_factor=0.3", "device.workers=2", NULL};
    compare(eight, eight, 8, &one, 1e-6);
    ranks_values_release(&one.v);
}

/* Bit for bit: where a dense matrix is iterated on, how many at a time, in which order streams run, and on how many workers. */
static void same_bits(const char *const *options, int world, const struct outcome *want)
{
    struct outcome o = {0};
    run(options, world, &o);
    for (int i = 0; i < STEPS; i++) CHECK(o.loss[i] == want->loss[i] && o.norm[i] == want->norm[i]);
    CHECK_INT(o.v.n, want->v.n);
    CHECK(o.v.at && want->v.at && !memcmp(o.v.at, want->v.at, (size_t)o.v.n * 4));
    ranks_values_release(&o.v);
}
static void exchange_is_gather(int experts, const char *mesh, const char *dtype, int world)
{
    char shape[24];
    static const char *const many = "muon.batch_bytes=5KiB"; /* windows follow one another in both slots */
    struct outcome gathered = {0};
    snprintf(shape, sizeof shape, "model.experts=%d", experts);
    run((const char *const[]){MOE_ANY, shape, mesh, dtype, "muon.dense=gather", NULL}, world, &gathered);
    same_bits((const char *const[]){MOE_ANY, shape, mesh, dtype, NULL}, world, &gathered);
    same_bits((const char *const[]){MOE_ANY, shape, mesh, dtype, many, "device.workers=1", NULL}, world,
              &gathered);
    same_bits((const char *const[]){MOE_ANY, shape, mesh, dtype, many, "device.order_seed=1",
                                    "device.workers=2", NULL},
              world, &gathered);
    same_bits((const char *const[]){MOE_ANY, shape, mesh, dtype, many, "device.order_seed=2",
                                    "device.workers=4", NULL},
              world, &gathered);
    same_bits((const char *const[]){MOE_ANY, shape, mesh, dtype, many, "device.order_seed=3",
                                    "muon.dense=gather", NULL},
              world, &gathered);
    ranks_values_release(&gathered.v);
}
TEST(muon_exchange)
{
    exchange_is_gather(12, "mesh.ep=1", "train.dtype=f32", 4);
    exchange_is_gather(12, "mesh.ep=2", "train.dtype=bf16", 4);
    exchange_is_gather(12, "mesh.ep=4", "train.dtype=f32", 8);
    exchange_is_gather(12, "mesh.replicas=2", "train.dtype=bf16", 12);
    exchange_is_gather(5, "mesh.ep=1", "train.dtype=f32", 8); /* fewer experts than ranks */
}

/* By the head, on any number of ranks and whoever owns the projections. */
TEST(muon_per_head)
{
    static const char *const owned = "shard.groups=[{\"match\":\"*.attn.*\",\"placement\":\"owned\"}]",
                             *const block = "shard.groups=[{\"match\":\"*.attn.*\",\"placement\":\"block\"}]";
    const char *const plain[] = {MOE, "muon.per_head=true", NULL},
                      *const ep[] = {MOE, "muon.per_head=true", "mesh.ep=2", "mesh.replicas=2", owned, NULL},
                      *const blocks[] = {MOE, "muon.per_head=true", "muon.batch_bytes=5KiB", block, NULL},
                      *const hosts[] = {MOE,
                                        "muon.per_head=true",
                                        "offload.moments=host",
                                        "offload.masters=host",
                                        "offload.slot_bytes=6000",
                                        NULL};
    struct outcome one = {0}, whole = {0};
    run(plain, 1, &one);
    run((const char *const[]){MOE, NULL}, 1, &whole);
    CHECK(relative(whole.v.at, one.v.at, one.v.n) > 1e-3); /* it changes something */
    for (int w = 2; w <= 8 && !BRIEF; w *= 2) compare(plain, plain, w, &one, 1e-6);
    compare(ep, ep, 8, &one, 1e-6);
    compare(blocks, blocks, 4, &one, 1e-6);
    compare(hosts, hosts, 2, &one, 1e-6);
    ranks_values_release(&one.v);
    ranks_values_release(&whole.v);
}

/* Gathers in two levels bring the same bits; gradients are summed in another order: the first loss is equal to the bit. */
TEST(two_levels)
{
    static const struct {
        const char *mesh;
        int world;
    } t[] = {{"mesh.ep=1 mesh.ranks_per_node=2", 4},
             {"mesh.ep=1 mesh.ranks_per_node=4", 8},
             {"mesh.ep=2 mesh.ranks_per_node=4", 8},
             {"mesh.ep=2 mesh.ranks_per_node=2 mesh.replicas=2", 8},
             {"mesh.ep=4 mesh.ranks_per_node=4", 12}};
    static const char *const base[] = {MOE, NULL};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct options at_mesh, flat;
        struct outcome one = {0}, two = {0};
        const char *const *mesh = with(&at_mesh, base, t[i].mesh);
        run(with(&flat, mesh, "shard.hierarchy=flat"), t[i].world, &one);
        run(mesh, t[i].world, &two);
        CHECK(one.loss[0] == two.loss[0]);
        CHECK(one.norm[STEPS - 1] != two.norm[STEPS - 1]); /* or nothing was tried */
        for (int k = 0; k < STEPS; k++) CHECK_CLOSE(two.loss[k] / one.loss[k], 1, 1e-6);
        CHECK(one.v.n == two.v.n && relative(two.v.at, one.v.at, one.v.n) <= 1e-6);
        ranks_values_release(&one.v);
        ranks_values_release(&two.v);
    }
}

/* What of gathered weights stays, on the device or in host memory, changes no bit. */
static void same_weights(const char *const *base, const char *mesh, int world, const char *const *kept, int n)
{
    struct options at_mesh, more;
    struct outcome plain = {0};
    const char *const *options = with(&at_mesh, base, mesh);
    run(options, world, &plain);
    for (int i = 0; i < n; i++) same_bits(with(&more, options, kept[i]), world, &plain);
    ranks_values_release(&plain.v);
}
#define KEPT_DENSE "shard.reshard_dense=node shard.reshard_experts=none "
#define KEPT_EXPERTS "shard.reshard_dense=none shard.reshard_experts=node "
#define KEPT_REGIONS "shard.reshard_dense=node shard.reshard_experts=node "
static const char *const kept[] = {"shard.host_weights=all",
                                   KEPT_REGIONS "shard.host_weights=all device.order_seed=4",
                                   KEPT_DENSE,
                                   KEPT_EXPERTS "shard.prefetch=3",
                                   KEPT_EXPERTS
                                   "shard.host_weights=all shard.keep_last=1 device.order_seed=5",
                                   KEPT_DENSE "shard.host_weights=dense shard.prefetch=2 device.order_seed=6",
                                   "shard.host_weights=experts shard.prefetch=8 device.workers=1",
                                   KEPT_REGIONS "shard.keep_last=3 device.order_seed=7"};
enum { N_KEPT = sizeof kept / sizeof kept[0] };
TEST(weights_that_stay)
{
    static const char *const moe[] = {MOE, NULL}, *const tied[] = {DENSE, "model.tied=true", NULL};
    same_weights(moe, "mesh.ep=2", 8, kept + BRIEF, BRIEF ? 1 : N_KEPT);
    if (BRIEF) return;
    same_weights(moe, "mesh.ep=1 shard.hierarchy=flat", 4, kept, N_KEPT);
    same_weights(moe, "mesh.ep=2 train.micro_order=layer mesh.replicas=2 mesh.ranks_per_node=2", 8, kept,
                 N_KEPT);
    same_weights(tied, "mesh.ep=1 mesh.ranks_per_node=2", 6, kept, N_KEPT);
}

#define WIDE                                                                                              \
    "train.dtype=f32", "model.dim=136", "model.layers=2", "model.heads=4", "model.kv_heads=2",            \
        "model.head_dim=40", "model.ffn=300", "model.experts=12", "model.top_k=2", "model.expert_ffn=72", \
        "model.shared_ffn=160", "model.first_dense=1"
/* Weights over fp8 are the same bits for equal masters, whoever quantises them. Masters of two layouts differ in their last
 * bits after a step, and one between two codes may then take the other, an eighth away at most: so the first step is
 * held to 1e-6, and the five to how much the format itself changes. */
static void fp8_that_stays(void)
{
    static const char *const fp8[] = {WIDE, "wire.gather_experts=fp8", "wire.gather_dense=fp8", NULL};
    same_weights(fp8, "mesh.ep=2", 8, kept, N_KEPT);
}
TEST(fp8_gathers)
{
    fp8_that_stays();
    const char *const experts[] = {WIDE, "wire.gather_experts=fp8", NULL},
                      *const all[] = {WIDE, "wire.gather_experts=fp8", "wire.gather_dense=fp8", NULL},
                      *const ep2[] = {WIDE, "wire.gather_experts=fp8", "wire.gather_dense=fp8", "mesh.ep=2",
                                      NULL},
                      *const both[] = {WIDE,        "wire.gather_experts=fp8", "wire.gather_dense=fp8",
                                       "mesh.ep=2", "mesh.replicas=2",         NULL};
    struct outcome one = {.steps = 1};
    run(experts, 1, &one);
    compare(experts, experts, 8, &one, 1e-6);
    ranks_values_release(&one.v);
    run(all, 1, &one);
    for (int w = 2; w <= 12; w += w < 4 ? 2 : 4) compare(all, all, w, &one, 1e-6);
    compare(ep2, ep2, 12, &one, 1e-6);
    compare(both, both, 8, &one, 1e-6);
    ranks_values_release(&one.v);

    struct outcome f32 = {0};
    one = (struct outcome){0};
    run(all, 1, &one);
    run((const char *const[]){WIDE, NULL}, 1, &f32);
    double format = one.v.at && f32.v.at ? relative(f32.v.at, one.v.at, one.v.n) : 0;
    CHECK(format > 1e-3 && format < 0.1);
    compare(both, both, 8, &one, format);
    ranks_values_release(&one.v);
    ranks_values_release(&f32.v);
}
/* Every rank's gradient of a micro-batch is rounded once, to 8 bits: one in 2^9 of each element at most. Five steps at this
 * rate move the parameters by no more than one in 100 of their norm away from one rank's, which rounds nothing. */
TEST(bf16_reduction)
{
    struct outcome one = {0}, two = {0};
    const char *const plain[] = {MOE, "wire.reduce=bf16", NULL}, *const both[] = {MOE, "wire.reduce=bf16",
                                                                                  "mesh.ep=2",
                                                                                  "mesh.replicas=2", NULL};
    run(plain, 1, &one);
    run(plain, 2, &two);
    CHECK(relative(two.v.at, one.v.at, one.v.n) > 1e-5); /* it is rounded at all */
    for (int w = 4; w <= 12; w += 4) compare(plain, plain, w, &one, 0.01);
    compare(both, both, 8, &one, 0.01);
    ranks_values_release(&one.v);
    ranks_values_release(&two.v);
}

int main(void)
{
    RUN(eight_ranks);
    RUN(rows_fewer_than_a_cut);
    RUN(weights_that_stay);
    RUN(muon_per_head);
    if (BRIEF) return DONE();
    RUN(two_levels);
    RUN(schedules);
    RUN(muon_exchange);
    RUN(expert_parallel);
    RUN(dense);
    RUN(dense_tied);
    RUN(moe);
    RUN(window);
    RUN(latent);
    RUN(replicas);
    RUN(fp8_gathers);
    RUN(bf16_reduction);
    return DONE();
}
