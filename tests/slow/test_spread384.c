/* test: timeout=900
 *
 * 384 ranks against one on real text, within a bound that is fixed before they run: twice the spread of one rank's run over
 * permuted orders of its sums. A step's sequences are the same in each, so only the order in which gradients and losses are added up
 * differs. */
#include "tests/train/ranks.h"

enum { WORLD = 384, STEPS = 4, RUNS = 5 };

/* ---- text: this project's own ---- */
static const char *const files[] = {"README.md",           "configs/OPTIONS.md",    "docs/data.md",
                                    "docs/checkpoints.md", "docs/communication.md", "docs/parallelism.md",
                                    "docs/wire.md"};
struct text {
    unsigned char *at; /* owned */
    int64_t n;
};
static bool text_read(struct text *x)
{
    *x = (struct text){malloc(1 << 22), 0};
    MT_ASSERT(x->at);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(files[i], "rb");
        if (!CHECK(f != NULL)) return false;
        x->n += (int64_t)fread(x->at + x->n, 1, (size_t)((1 << 22) - x->n), f);
        fclose(f);
    }
    return CHECK(x->n > 40000);
}

/* ---- a step's sequences, in any order ---- */
static void shuffle(int order[WORLD], int run)
{
    uint64_t state = (uint64_t)run;
    for (int i = 0; i < WORLD; i++) order[i] = i;
    for (int i = WORLD - 1; i > 0 && run; i--) {
        int k = (int)(training_random(&state) % (uint32_t)(i + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}
static void batch(struct training *t, const struct text *x, const int order[WORLD], int64_t step)
{
    for (int r = 0; r < t->s.world; r++) {
        const struct mt_model *m = &t->s.rank[r].model;
        const struct mt_ctx *c = &t->s.rank[r].ctx;
        int64_t S = m->shape.S, B = m->shape.N / S, M = m->opt.micro_batches;
        int32_t *tok = mt_address(c, m->host.tokens), *lab = mt_address(c, m->host.labels),
                *beg = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        for (int64_t i = 0; i < M * B; i++) {
            int64_t q = order[i / B * t->s.world * B + r * B + i % B];
            int64_t from = (step * WORLD + q) * 97 % (x->n - S - 1);
            for (int64_t k = 0; k < S; k++) {
                tok[i * S + k] = x->at[from + k];
                lab[i * S + k] = x->at[from + k + 1];
                beg[i * S + k] = (int32_t)(i % B * S);
                pos[i * S + k] = (int32_t)k;
            }
        }
    }
}

/* ---- runs ---- */
struct outcome {
    double loss[STEPS], norm[STEPS];
    struct ranks_values v;
};
static bool run(struct outcome *o, const struct text *x, int world, char *ep, char *micro, int shuffled)
{
    struct training t = {0};
    int order[WORLD];
    char *arg[] = {ep, micro, (char[]){"train.eval_interval=0"}, (char[]){"data.train=none"}};
    mt_err e = {0};
    shuffle(order, shuffled);
    mt_status st = mt_config_load(&t.cfg, "configs/fake-384.yaml", 4, arg, &e);
    if (st == MT_OK) st = mt_session_open(&t.s, &t.cfg, world, false, &e);
    if (st == MT_OK) st = mt_session_run(&t.s, mt_fill_step, &e);
    for (int64_t step = 0; step < STEPS && st == MT_OK; step++) {
        batch(&t, x, order, step);
        for (int r = 0; r < world; r++) t.s.rank[r].step.step = step;
        st = mt_session_run(&t.s, mt_train_step, &e);
        o->loss[step] = t.s.rank[0].step.loss / (double)t.s.rank[0].step.valid;
        o->norm[step] = t.s.rank[0].step.norm;
        CHECK(t.s.rank[0].step.updated);
    }
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    bool ok = st == MT_OK && ranks_values_take(&o->v, &t);
    training_close(&t);
    return ok;
}

struct apart {
    double loss[STEPS], norm[STEPS], values;
};
static void widen(double *a, double x)
{
    if (!(x <= *a)) *a = x;
}
static void compare(struct apart *d, const struct outcome *a, const struct outcome *b)
{
    for (int i = 0; i < STEPS; i++) {
        widen(&d->loss[i], fabs(a->loss[i] - b->loss[i]) / b->loss[i]);
        widen(&d->norm[i], fabs(a->norm[i] - b->norm[i]) / b->norm[i]);
    }
    if (CHECK_INT(a->v.n, b->v.n)) widen(&d->values, check_rel(a->v.at, b->v.at, a->v.n));
}

TEST(as_near_as_orders_of_sums)
{
    struct outcome one[RUNS] = {0}, many = {0};
    struct apart spread = {0}, far = {0};
    struct text x;
    bool ok = text_read(&x);
    for (int i = 0; i < RUNS && ok; i++) {
        ok = run(&one[i], &x, 1, (char[]){"mesh.ep=1"}, (char[]){"train.micro_batch=8"}, i);
        for (int k = 0; k < i && ok; k++) compare(&spread, &one[i], &one[k]);
    }
    CHECK(spread.loss[STEPS - 1] > 0 && spread.norm[0] > 0 && spread.values > 0);
    CHECK(spread.loss[STEPS - 1] < 1e-6 && spread.norm[STEPS - 1] < 1e-5); /* a bound that means something */
    if (ok && run(&many, &x, WORLD, (char[]){"mesh.ep=4"}, (char[]){"train.micro_batch=1"}, 0)) {
        compare(&far, &many, &one[0]);
        for (int i = 0; i < STEPS; i++) {
            printf("  step %d: loss %.9f, apart %.2g, bound %.2g; norm apart %.2g, bound %.2g\n", i + 1,
                   one[0].loss[i], far.loss[i], 2 * spread.loss[i], far.norm[i], 2 * spread.norm[i]);
            CHECK(far.loss[i] <= 2 * spread.loss[i] && far.norm[i] <= 2 * spread.norm[i]);
        }
        printf("  parameters apart %.2g, bound %.2g\n", far.values, 2 * spread.values);
        CHECK(far.values <= 2 * spread.values);
        CHECK(one[0].loss[STEPS - 1] < one[0].loss[0]); /* it learns */
    }
    for (int i = 0; i < RUNS; i++) ranks_values_release(&one[i].v);
    ranks_values_release(&many.v);
    free(x.at);
}

int main(void)
{
    RUN(as_near_as_orders_of_sums);
    return DONE();
}
