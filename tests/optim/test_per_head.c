/* test: timeout=120
 *
 * Muon by the head: updates of q, k, v and o against torch's of each head alone. */
#include "../train/training.h"
#include "golden.h"
#include "model/param.h"
#include "model/touch.h"

/* Heads of 16 columns in a model 48 wide: a head of q, k or v is 16 x 48, of o 48 x 16, as the matrices of muon_ns.safetensors. */
enum { A = 16, D = 48, STEPS = 2 };
#define OPTIONS                                                                                    \
    "model.vocab=64 model.dim=48 model.layers=1 model.heads=4 model.kv_heads=2 model.head_dim=16 " \
    "model.ffn=80 train.seq_len=24 train.global_batch=1 train.dtype=f32 optim.warmup_steps=0 "     \
    "optim.decay_ratio=0 optim.clip=0 optim.lr=0.01 muon.scale=match_rms_adamw muon.momentum=0.95 "

static void update(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_optim_norm(t->optim, &t->rank, 0);
    mt_optim_update(t->optim, &t->rank, t->cfg, t->step, 1);
}

static float *state_of(const struct training *t, const char *name, enum mt_state what, int64_t *n)
{
    const struct mt_session_rank *r = &t->s.rank[0];
    const struct mt_store *s = &r->model.store;
    char got[96];
    for (int i = 0; i < s->n_tensors; i++) {
        mt_param_name(&s->tensor[i], 0, got);
        if (strcmp(got, name)) continue;
        mt_view v = mt_store_local_state(s, i, what);
        *n = mt_view_count(v);
        return mt_address(&r->ctx, v);
    }
    return NULL;
}

/* Element (i, j) of head h's matrix: heads are blocks of rows, or of columns. */
struct layout {
    const char *name;
    int heads;
    bool columns;
};
static int64_t place(const struct layout *x, int h, int64_t i, int64_t j)
{
    return x->columns ? i * x->heads * A + h * A + j : (h * A + i) * D + j;
}
static double size_of(int head) /* directions do not depend on it, if heads are apart */
{
    return head % 2 ? 0.25 : 8;
}

static void fill(const struct training *t, const struct golden *g, const struct layout *x, int step)
{
    char key[64];
    const int64_t rows = x->columns ? D : A, cols = x->columns ? A : D;
    int64_t n = 0;
    snprintf(key, sizeof key, "muon/%lldx%lld/grad%d", (long long)rows, (long long)cols, step);
    const float *from = golden_f32(g, key, rows * cols);
    float *grad = state_of(t, x->name, MT_STATE_GRAD, &n);
    if (!CHECK(from && grad) || !CHECK_INT(n, (int64_t)x->heads * A * D)) return;
    for (int h = 0; h < x->heads; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                grad[place(x, h, i, j)] = (float)((double)from[i * cols + j] * size_of(h));
}

/* How far the changes of the head's block since `was` are from torch's update, relative. */
static double distance(const struct training *t, const struct golden *g, const struct layout *x, int step,
                       int h, const float *was)
{
    char key[64];
    const int64_t rows = x->columns ? D : A, cols = x->columns ? A : D;
    int64_t n = 0;
    double diff = 0, norm = 0;
    snprintf(key, sizeof key, "muon/%lldx%lld/direction%d", (long long)rows, (long long)cols, step);
    const float *want = golden_f32(g, key, rows * cols), *now = state_of(t, x->name, MT_STATE_MASTER, &n);
    if (!want || !now) return (double)NAN;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = place(x, h, i, j);
            double w = -0.01 * 0.2 * sqrt((double)D) * (double)want[i * cols + j],
                   d = (double)now[at] - (double)was[at] - w;
            diff += d * d;
            norm += w * w;
        }
    return sqrt(diff / norm);
}

static const struct layout layouts[] = {{"layers.0.attn.q.weight", 4, false},
                                        {"layers.0.attn.k.weight", 2, false},
                                        {"layers.0.attn.v.weight", 2, false},
                                        {"layers.0.attn.o.weight", 4, true}};
enum { N = sizeof layouts / sizeof *layouts };

static void follow(const char *more, bool apart)
{
    struct training t;
    struct golden g;
    char options[600];
    snprintf(options, sizeof options, "%s%s", OPTIONS, more);
    if (!CHECK(golden_open(&g, "muon_ns.safetensors"))) return;
    if (training_open(&t, options)) {
        for (int i = 0; i < t.cfg.optim_groups_count; i++) t.cfg.optim_groups[i].weight_decay = 0;
        training_run(&t, mt_fill_step);
        for (int step = 0; step < STEPS; step++) {
            float *was[N];
            int64_t n = 0;
            for (int k = 0; k < N; k++) {
                fill(&t, &g, &layouts[k], step);
                const float *w = state_of(&t, layouts[k].name, MT_STATE_MASTER, &n);
                was[k] = malloc((size_t)n * sizeof **was);
                MT_ASSERT(was[k]);
                memcpy(was[k], w, (size_t)n * sizeof **was);
            }
            t.s.rank[0].step.step = step;
            training_run(&t, update);
            for (int k = 0; k < N; k++)
                for (int h = 0; h < layouts[k].heads; h++) {
                    double far = distance(&t, &g, &layouts[k], step, h, was[k]);
                    if (!CHECK(apart ? far <= 1e-4
                                     : far > 0.1 || size_of(h) > 1)) /* a large one is the whole's */
                        printf("  %s, head %d, step %d: %.3g\n", layouts[k].name, h, step, far);
                }
            for (int k = 0; k < N; k++) free(was[k]);
        }
    }
    training_close(&t);
    golden_close(&g);
}
TEST(each_head_is_a_matrix)
{
    follow("optim.weight_decay=0 muon.per_head=true", true);
    follow("optim.weight_decay=0 muon.per_head=true muon.batch_bytes=1", true);
}
TEST(without_it_heads_are_one_matrix)
{
    follow("optim.weight_decay=0", false);
}

/* Only projections of the attention that Muon takes are split; what they cost goes by the head, too. */
TEST(what_is_split)
{
    struct training t;
    if (training_open(&t, OPTIONS "muon.per_head=true")) {
        const struct mt_store *s = &t.s.rank[0].model.store;
        double flops = 0;
        for (int i = 0; i < s->n_tensors; i++) {
            const struct mt_tensor *p = &s->tensor[i];
            const struct mt_blocks b = mt_store_blocks(s, i);
            bool o = p->kind == MT_P_o, q = p->kind == MT_P_q, kv = p->kind == MT_P_k || p->kind == MT_P_v;
            CHECK_INT(p->heads.n, q || o ? 4 : kv ? 2 : 0);
            CHECK(p->heads.columns == o);
            if (o) CHECK(b.n == 4 && b.rows == D && b.cols == A);
            if (q || kv) CHECK(b.n == p->heads.n && b.rows == A && b.cols == D);
            if (p->optimizer != MT_MUON) continue;
            double r = (double)(b.rows < b.cols ? b.rows : b.cols), l = (double)(b.rows + b.cols) - r;
            flops += 5 * (double)b.n * (r * r * l + r * r * r + 2 * r * r * l);
        }
        CHECK_CLOSE(t.s.rank[0].optim.muon.load[0].flops, flops, 0);
    }
    training_close(&t);
}

int main(void)
{
    RUN(each_head_is_a_matrix);
    RUN(without_it_heads_are_one_matrix);
    RUN(what_is_split);
    return DONE();
}
