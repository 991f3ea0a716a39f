/* test: timeout=240 variants=release,asan
 *
 * Choices of the router, what it learns besides, and rows that are dropped, on any layout of ranks: losses, norms, the additional
 * losses and every parameter are one rank's to 1e-6 in f32. */
#include "ranks.h"

#ifdef __SANITIZE_ADDRESS__
enum { STEPS = 2, BRIEF = 1 };
#else
enum { STEPS = 3, BRIEF = 0 };
#endif
static const double TOL = 1e-6;

#define TINY                                                                                            \
    "model.vocab=61 model.dim=24 model.layers=3 model.heads=2 model.kv_heads=1 model.head_dim=12 "      \
    "model.ffn=40 model.experts=12 model.top_k=3 model.expert_ffn=16 model.first_dense=1 "              \
    "model.score=sigmoid model.bias_rate=0.01 model.init_std=0.1 train.seq_len=12 "                     \
    "train.global_batch=24 train.loss_chunk=10 optim.warmup_steps=0 optim.lr=0.01 optim.decay_ratio=0 " \
    "train.dtype=f32 device.workers=2 mesh.ranks_per_node=4 "

/* Micro-batches of the global balance loss are those of all ranks: it is the same where they hold the same sequences, eight here. */
struct layout {
    int world, micro;
    const char *options;
    bool other_batches;
};
static const struct layout layouts[] = {{8, 1, "mesh.ep=4", false},
                                        {2, 4, "mesh.ep=2 train.micro_order=layer", false},
                                        {4, 2, "mesh.ep=2 mesh.replicas=2 moe.buffer_factor=0.3", false},
                                        {1, 8, "train.micro_order=layer recompute.policy=selective", false},
                                        {8, 1, "mesh.ep=2 train.micro_order=layer mesh.replicas=2", false},
                                        {4, 2, "mesh.ep=1 shard.hierarchy=flat", false},
                                        {2, 1, "mesh.ep=1", true},
                                        {12, 1, "mesh.ep=4 train.micro_order=layer", true}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

struct outcome {
    double loss[STEPS], norm[STEPS], aux[STEPS][MT_N_AUX];
    int64_t kept; /* rows that experts got, in the last step */
    struct ranks_values v;
};

static int64_t rows_kept(const struct training *t)
{
    const struct mt_model *m = &t->s.rank[0].model;
    int64_t n = 0;
    for (int r = 0; r < t->s.world; r++)
        for (int64_t b = 0; b < m->opt.micro_batches; b++)
            for (int l = 1; l < (int)m->shape.L; l++)
                for (int64_t e = 0; e < m->shape.E; e++)
                    n += mt_rank_counts(&t->s.rank[r].step.rank, b, l)[e];
    return n;
}
static bool run(const char *what, const struct layout *l, struct outcome *o)
{
    char options[2048];
    struct training t;
    snprintf(options, sizeof options, TINY "%s train.micro_batch=%d %s", what, l->micro, l->options);
    bool ok = ranks_open(&t, options, l->world) && training_run(&t, mt_fill_step);
    for (int64_t i = 0; i < STEPS && ok; i++) {
        const struct mt_step *s = &t.s.rank[l->world - 1].step;
        ok = ranks_step(&t, i) && CHECK(s->updated);
        o->loss[i] = s->loss;
        o->norm[i] = s->norm;
        memcpy(o->aux[i], s->aux, sizeof s->aux);
    }
    if (ok) o->kept = rows_kept(&t);
    ok = ok && ranks_values_take(&o->v, &t);
    training_close(&t);
    return ok;
}

static double apart(double a, double b)
{
    return fabs(a - b) / (fabs(b) > 0 ? fabs(b) : 1);
}
static void check_same(const char *what, const struct layout *l, const struct outcome *one)
{
    struct outcome o = {0};
    if (!run(what, l, &o)) return;
    double d = check_rel(o.v.at, one->v.at, o.v.n);
    bool same = CHECK_INT(o.v.n, one->v.n) && CHECK(d <= TOL);
    for (int i = 0; i < STEPS; i++) {
        same &= CHECK(apart(o.loss[i], one->loss[i]) <= TOL && apart(o.norm[i], one->norm[i]) <= 10 * TOL);
        for (int k = 0; k < MT_N_AUX; k++) same &= CHECK(apart(o.aux[i][k], one->aux[i][k]) <= TOL);
    }
    same &= CHECK_INT(o.kept, one->kept);
    if (!same) printf("  %s: %d ranks, %s: parameters differ by %.3g\n", what, l->world, l->options, d);
    ranks_values_release(&o.v);
}

/* Every layout against one rank; and one rank against one without: each has an effect. */
static void walk(const char *what, const struct outcome *plain)
{
    static const struct layout one_rank = {1, 8, "", false};
    struct outcome one = {0};
    if (run(what, &one_rank, &one)) {
        CHECK(!(check_rel(one.v.at, plain->v.at, one.v.n) <= 1e-4));
        for (int i = 0; i < (BRIEF ? 3 : LAYOUTS); i++)
            if (!layouts[i].other_batches || !strstr(what, "global")) check_same(what, &layouts[i], &one);
    }
    ranks_values_release(&one.v);
}
static void walk_all(const char *const *what)
{
    struct outcome plain = {0};
    if (run("", &(struct layout){1, 8, "", false}, &plain))
        for (; *what; what++) walk(*what, &plain);
    ranks_values_release(&plain.v);
}

TEST(groups)
{
    walk_all((const char *const[]){"model.n_group=4 model.topk_group=2",
                                   "model.n_group=6 model.topk_group=2 model.group_score=max", NULL});
}
TEST(balance_of_sequences)
{
    walk_all((const char *const[]){"moe.aux_loss_sequence=0.1", "moe.aux_loss_sequence=1 model.score=softmax",
                                   NULL});
}
TEST(balance_of_the_global_batch)
{
    walk_all((const char *const[]){"moe.aux_loss_global=0.3", NULL});
}
TEST(z_loss)
{
    walk_all((const char *const[]){"moe.z_loss=0.1", NULL});
}
TEST(capacity)
{
    walk_all(
        (const char *const[]){"moe.capacity_factor=1", "moe.capacity_factor=0.7 moe.drop=position", NULL});
}
TEST(forced)
{
    walk_all((const char *const[]){"moe.routing=balanced", NULL});
}
TEST(all_of_it)
{
    walk_all((const char *const[]){"model.n_group=4 model.topk_group=2 moe.aux_loss_sequence=0.1 "
                                   "moe.aux_loss_global=0.3 moe.z_loss=0.1 moe.capacity_factor=1",
                                   NULL});
}

/* The running counts are those up to each micro-batch whichever goes through a block first: to the bit on one rank. */
TEST(either_order_gives_the_same_bits)
{
    static const char *const order[] = {"train.micro_order=batch", "train.micro_order=layer"};
    struct outcome o[2] = {{.kept = 0}};
    for (int i = 0; i < 2; i++)
        if (!run("moe.aux_loss_global=0.3 moe.aux_loss_sequence=0.1 moe.z_loss=0.1 moe.capacity_factor=1",
                 &(struct layout){1, 4, order[i], false}, &o[i]))
            return;
    CHECK(!memcmp(o[0].loss, o[1].loss, sizeof o[0].loss) && !memcmp(o[0].norm, o[1].norm, sizeof o[0].norm));
    CHECK(!memcmp(o[0].v.at, o[1].v.at, (size_t)o[0].v.n * sizeof *o[0].v.at));
    for (int i = 0; i < 2; i++) ranks_values_release(&o[i].v);
}

/* Rows that are dropped take no memory: buffers of rows, all of the same shape else, are the smaller for a capacity. */
TEST(capacity_bounds_memory)
{
    int64_t bytes[2], rows[2], C[2];
    static const char *const what[] = {"moe.capacity_factor=0", "moe.capacity_factor=0.5"};
    for (int i = 0; i < 2; i++) {
        struct training t;
        char options[2048];
        snprintf(options, sizeof options,
                 TINY "train.micro_batch=3 train.seq_len=256 moe.buffer_factor=1 mesh.ep=2 %s", what[i]);
        if (!ranks_open(&t, options, 2)) return;
        bytes[i] = t.s.plan.peak[MT_DEVICE_ARENA];
        rows[i] = t.s.rank[0].model.shape.M;
        C[i] = t.s.rank[0].model.shape.C;
        training_close(&t);
    }
    CHECK_INT(rows[0], 3 * 256 * 3);
    CHECK_INT(rows[1], 3 * 12 * 32); /* sequences, experts, half of 256 * 3 / 12 */
    CHECK_INT(C[1], rows[1]);
    printf("  %lld bytes, with a capacity of half a balanced load %lld\n", (long long)bytes[0],
           (long long)bytes[1]);
    CHECK(bytes[1] < bytes[0]);
}

int main(void)
{
    if (BRIEF) {
        RUN(all_of_it);
        RUN(capacity_bounds_memory);
        return DONE();
    }
    RUN(groups);
    RUN(balance_of_sequences);
    RUN(balance_of_the_global_batch);
    RUN(z_loss);
    RUN(capacity);
    RUN(forced);
    RUN(all_of_it);
    RUN(either_order_gives_the_same_bits);
    RUN(capacity_bounds_memory);
    return DONE();
}
