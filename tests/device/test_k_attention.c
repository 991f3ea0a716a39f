/* Attention against plain loops in double, whose backward is itself checked by finite differences: with every
 * instruction set this machine has, and with the AMX kernels over the stand-in for the tile unit. */
#define MT_AMX_SOFT 1
#include "device/cpu/attention_amx.c"
#include "device/cpu/attention_bwd_amx.c"
#include "device/cpu/gemm_amx.c"
#include "device/cpu/gemm_tn_amx.c"

#include "packed_check.h"

/* one problem: dims, inputs and reference results, all in double */
struct att {
    int64_t N, H, G, A, B;
    double scale;
    double *q, *k, *v, *begin, *dout, *o, *lse, *top, *dq, *dk, *dv;
};

static struct att att_new(mt_dtype t, int64_t N, int64_t H, int64_t G, int64_t A, int64_t B,
                          const int64_t *docs)
{
    struct att r = {N,
                    H,
                    G,
                    A,
                    B,
                    1 / sqrt((double)A),
                    .q = kc_random(t, N * H * A, 2, 1),
                    .k = kc_random(t, N * G * A, 2, 2),
                    .v = kc_random(t, N * G * B, 1, 3),
                    .begin = kc_new(N),
                    .dout = kc_random(t, N * H * B, 1, 4),
                    .o = kc_new(N * H * B),
                    .lse = kc_new(H * N),
                    .top = kc_new(H * N),
                    .dq = kc_new(N * H * A),
                    .dk = kc_new(N * G * A),
                    .dv = kc_new(N * G * B)};
    int64_t at = 0;
    for (int64_t d = 0; docs && docs[d]; d++)
        for (int64_t n = at, end = (at += docs[d]); n < end && n < N; n++)
            r.begin[n] = (double)(end - docs[d]);
    return r;
}
static void att_free(struct att *r)
{
    double *all[] = {r->q, r->k, r->v, r->begin, r->dout, r->o, r->lse, r->top, r->dq, r->dk, r->dv};
    for (int i = 0; i < 11; i++) free(all[i]);
}

static double dot(const double *x, const double *y, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

static void att_fwd(struct att *r)
{
    int64_t per = r->H / r->G;
    double *p = kc_new(r->N);
    for (int64_t i = 0; i < r->N; i++)
        for (int64_t h = 0; h < r->H; h++) {
            int64_t b = (int64_t)r->begin[i], g = h / per;
            double top = -1e300, sum = 0, *o = r->o + (i * r->H + h) * r->B;
            for (int64_t j = b; j <= i; j++) {
                p[j] = r->scale * dot(r->q + (i * r->H + h) * r->A, r->k + (j * r->G + g) * r->A, r->A);
                top = fmax(top, p[j]);
            }
            for (int64_t j = b; j <= i; j++) sum += p[j] = exp(p[j] - top);
            r->lse[h * r->N + i] = top + log(sum);
            r->top[h * r->N + i] = top;
            for (int64_t c = 0; c < r->B; c++) o[c] = 0;
            for (int64_t j = b; j <= i; j++)
                for (int64_t c = 0; c < r->B; c++) o[c] += p[j] / sum * r->v[(j * r->G + g) * r->B + c];
        }
    free(p);
}

static void att_bwd(struct att *r)
{
    int64_t per = r->H / r->G;
    att_fwd(r);
    memset(r->dq, 0, (size_t)(r->N * r->H * r->A) * 8);
    memset(r->dk, 0, (size_t)(r->N * r->G * r->A) * 8);
    memset(r->dv, 0, (size_t)(r->N * r->G * r->B) * 8);
    for (int64_t i = 0; i < r->N; i++)
        for (int64_t h = 0; h < r->H; h++) {
            int64_t row = i * r->H + h;
            const double *q = r->q + row * r->A, *dout = r->dout + row * r->B;
            double delta = dot(dout, r->o + row * r->B, r->B);
            for (int64_t j = (int64_t)r->begin[i]; j <= i; j++) {
                int64_t key = j * r->G + h / per;
                const double *k = r->k + key * r->A;
                double p = exp(r->scale * dot(q, k, r->A) - r->lse[h * r->N + i]);
                double ds = p * (dot(dout, r->v + key * r->B, r->B) - delta) * r->scale;
                for (int64_t c = 0; c < r->A; c++) {
                    r->dq[row * r->A + c] += ds * k[c];
                    r->dk[key * r->A + c] += ds * q[c];
                }
                for (int64_t c = 0; c < r->B; c++) r->dv[key * r->B + c] += p * dout[c];
            }
        }
}
static double att_value(void *ctx)
{
    struct att *r = ctx;
    att_fwd(r);
    return dot(r->dout, r->o, r->N * r->H * r->B);
}

TEST(reference_is_a_gradient)
{
    struct att r = att_new(MT_F32, 7, 4, 2, 3, 2, (const int64_t[]){4, 3, 0});
    att_bwd(&r);
    kc_check_gradient(att_value, &r, r.q, r.dq, r.N * r.H * r.A);
    kc_check_gradient(att_value, &r, r.k, r.dk, r.N * r.G * r.A);
    kc_check_gradient(att_value, &r, r.v, r.dv, r.N * r.G * r.B);
    att_free(&r);
}

/* Error in norm, relative to values that are not all tiny (gradients of one token's attention are zero):
 * probabilities and score gradients are rounded to T before they are multiplied. */
static void check_norm(const struct kc *k, int arg, const double *want, double tol)
{
    int64_t n = mt_view_count(k->v[arg]);
    double *got = kc_new(n), d = 0, w = 0;
    kc_get(k, arg, got);
    for (int64_t i = 0; i < n; i++) {
        d += (got[i] - want[i]) * (got[i] - want[i]);
        w += want[i] * want[i];
    }
    if (!CHECK_CLOSE(sqrt(d / fmax(w, 1e-3 * (double)n + 1e-30)), 0, tol))
        printf("  %s: argument %d\n", mt_op_info[k->op].name, arg);
    free(got);
}

/* pad: elements after every row; tokens then lie apart as in a fused projection's output */
static void fwd_args(struct kc *k, mt_dtype t, const struct att *r, int64_t pad)
{
    k->s[0].f = r->scale;
    kc_arg(k, t, r->N, r->H, r->B, pad, NULL);
    kc_arg(k, MT_F32, r->H, r->N, 0, 0, NULL);
    k->v[1].nd = 2; /* even if there are no tokens */
    kc_arg(k, t, r->N, r->H, r->A, pad, r->q);
    kc_arg(k, t, r->N, r->G, r->A, pad, r->k);
    kc_arg(k, t, r->N, r->G, r->B, pad, r->v);
    kc_arg(k, MT_I32, r->N, 0, 0, 0, r->begin);
}
static void bwd_args(struct kc *k, mt_dtype t, const struct att *r, int64_t pad)
{
    k->s[0].f = r->scale;
    kc_arg(k, t, r->N, r->H, r->A, pad, NULL);
    kc_arg(k, t, r->N, r->G, r->A, pad, NULL);
    kc_arg(k, t, r->N, r->G, r->B, pad, NULL);
    kc_arg(k, t, r->N, r->H, r->B, pad, r->dout);
    kc_arg(k, t, r->N, r->H, r->B, pad, r->o);
    kc_arg(k, MT_F32, r->H, r->N, 0, 0, r->N ? r->lse : NULL);
    kc_arg(k, t, r->N, r->H, r->A, pad, r->q);
    kc_arg(k, t, r->N, r->G, r->A, pad, r->k);
    kc_arg(k, t, r->N, r->G, r->B, pad, r->v);
    kc_arg(k, MT_I32, r->N, 0, 0, 0, r->begin);
    kc_arg(k, MT_F32, r->H, r->N, 0, 0, NULL);
    k->v[5].nd = k->v[10].nd = 2;
}

/* The same with the largest scores: the bits of everything else are those without. */
static void check_top(const struct mt_cpu_dev *dev, mt_dtype t, struct att *r, int64_t pad,
                      const struct kc *f)
{
    struct kc k = {.op = MT_OP_attention_fwd_top, .kernel = mt_cpu_attention_fwd_top, .dev = dev};
    fwd_args(&k, t, r, pad);
    kc_arg(&k, MT_F32, r->H, r->N, 0, 0, NULL);
    k.v[6].nd = 2;
    kc_run(&k);
    for (int arg = 0; arg < 2; arg++) {
        const int64_t n = mt_view_count(k.v[arg]);
        double *one = kc_new(n), *other = kc_new(n);
        kc_get(f, arg, one);
        kc_get(&k, arg, other);
        CHECK(!memcmp(one, other, (size_t)n * sizeof *one));
        free(one), free(other);
    }
    check_norm(&k, 6, r->top, 1e-6);
    kc_release(&k);
}

/* lse is f32 of either type, and its error that of f32 scores */
static void check_within(const struct mt_cpu_dev *dev, mt_dtype t, struct att *r, int64_t pad, double tol)
{
    struct kc f = {.op = MT_OP_attention_fwd, .kernel = mt_cpu_attention_fwd, .dev = dev};
    struct kc b = {.op = MT_OP_attention_bwd, .kernel = mt_cpu_attention_bwd, .dev = dev};
    att_bwd(r);
    fwd_args(&f, t, r, pad);
    kc_run(&f);
    check_norm(&f, 0, r->o, tol);
    check_norm(&f, 1, r->lse, 1e-6);
    check_top(dev, t, r, pad, &f);
    bwd_args(&b, t, r, pad);
    kc_run(&b);
    check_norm(&b, 0, r->dq, 2 * tol);
    check_norm(&b, 1, r->dk, 2 * tol);
    check_norm(&b, 2, r->dv, 2 * tol);
    kc_release(&f);
    kc_release(&b);
}

static void check_case(const struct mt_cpu_dev *dev, mt_dtype t, struct att *r, int64_t pad)
{
    check_within(dev, t, r, pad, t == MT_F32 ? 1e-6 : 6e-3);
}

/* Documents that begin inside key blocks, at their edges, and of one token. */
static void documents(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct att r = att_new(t, 150, 4, 2, 16, 24, (const int64_t[]){1, 63, 64, 5, 1, 16, 0});
    check_case(dev, t, &r, 0);
    att_free(&r);
}
/* Widths that no vector divides, rows apart, more query tiles than one. */
static void odd(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct att r = att_new(t, 131, 15, 3, 19, 33, NULL);
    check_case(dev, t, &r, 3);
    att_free(&r);
}
static void wide(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct att r = att_new(t, 70, 3, 1, 256, 128, (const int64_t[]){33, 37, 0});
    check_case(dev, t, &r, 0);
    att_free(&r);
}
/* The widest heads of an instruction set's own kernels, and those that configurations end at. */
static void widest(const struct mt_cpu_dev *dev, mt_dtype t)
{
    for (int64_t width = 512; width <= 1024; width *= 2) {
        struct att r = att_new(t, 40, 2, 1, width, width, (const int64_t[]){33, 7, 0});
        check_case(dev, t, &r, 0);
        att_free(&r);
    }
}
static void one_token(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct att r = att_new(t, 1, 2, 1, 8, 8, NULL);
    check_case(dev, t, &r, 0);
    att_free(&r);
    r = att_new(t, 0, 2, 1, 8, 8, NULL);
    struct kc f = {.op = MT_OP_attention_fwd, .kernel = mt_cpu_attention_fwd, .dev = dev};
    struct kc b = {.op = MT_OP_attention_bwd, .kernel = mt_cpu_attention_bwd, .dev = dev};
    fwd_args(&f, t, &r, 0);
    bwd_args(&b, t, &r, 0);
    kc_run(&f);
    kc_run(&b);
    kc_release(&f);
    kc_release(&b);
    att_free(&r);
}
TEST(documents)
{
    kc_each_isa(documents);
}
TEST(odd_sizes)
{
    kc_each_isa(odd);
}
TEST(wide_heads)
{
    kc_each_isa(wide);
}
TEST(the_widest_heads)
{
    kc_each_isa(widest);
}
TEST(no_token_and_one)
{
    kc_each_isa(one_token);
}
/* Small, since the stand-in is slow: documents, padded widths, more panels and key blocks than one. */
TEST(tiles_over_the_stand_in)
{
    const struct mt_cpu_dev dev = {.isa = MT_ISA_AMX_BF16, .gemm = {[MT_BF16] = &mt_gemm_amx_soft}};
    struct att r = att_new(MT_BF16, 70, 3, 1, 19, 33, (const int64_t[]){5, 1, 64, 0});
    check_case(&dev, MT_BF16, &r, 3);
    att_free(&r);
}

/* A document's result is the same bits whether it is packed behind another or alone, if key blocks match. */
static void check_documents_apart(mt_dtype t)
{
    struct mt_cpu_dev dev;
    mt_cpu_dev_init(&dev, mt_isa_best());
    struct att all = att_new(t, 192, 2, 1, 16, 16, (const int64_t[]){64, 128, 0}), last = all;
    double *got = kc_new(192 * 2 * 16), *alone = kc_new(128 * 2 * 16);
    last.N = 128;
    last.q += 64 * 2 * 16;
    last.k += 64 * 16;
    last.v += 64 * 16;
    last.begin = kc_new(128);
    struct kc a = {.op = MT_OP_attention_fwd, .kernel = mt_cpu_attention_fwd, .dev = &dev}, b = a;
    fwd_args(&a, t, &all, 0);
    fwd_args(&b, t, &last, 0);
    kc_run(&a);
    kc_run(&b);
    kc_get(&a, 0, got);
    kc_get(&b, 0, alone);
    CHECK(!memcmp(got + 64 * 2 * 16, alone, 128 * 2 * 16 * sizeof *got));
    kc_release(&a);
    kc_release(&b);
    free(got);
    free(alone);
    free(last.begin);
    att_free(&all);
}

TEST(documents_do_not_mix)
{
    check_documents_apart(MT_F32);
    check_documents_apart(MT_BF16);
}

static void check_nan(mt_dtype t)
{
    struct mt_cpu_dev dev;
    mt_cpu_dev_init(&dev, mt_isa_best());
    struct att r = att_new(t, 5, 1, 1, 4, 4, NULL);
    r.q[2 * 4] = (double)NAN;
    struct kc f = {.op = MT_OP_attention_fwd, .kernel = mt_cpu_attention_fwd, .dev = &dev};
    fwd_args(&f, t, &r, 0);
    kc_run(&f);
    CHECK(kc_no_nan(&f, 0, 0, 8));
    CHECK(kc_all_nan(&f, 0, 8, 4));
    CHECK(kc_no_nan(&f, 0, 12, 8));
    kc_release(&f);
    att_free(&r);
}
TEST(nan_stays_visible)
{
    check_nan(MT_F32);
    check_nan(MT_BF16);
}

/* Scores far apart: nothing may overflow, and the running maximum must carry over key blocks. Scores of some
 * hundreds are off by some 1e-5, and so are their exponentials. */
TEST(large_scores)
{
    struct mt_cpu_dev dev;
    mt_cpu_dev_init(&dev, mt_isa_best());
    struct att r = att_new(MT_F32, 200, 1, 1, 8, 8, NULL);
    for (int64_t i = 0; i < 200 * 8; i++) r.k[i] = (double)(float)(r.k[i] * (double)(i / 8));
    check_within(&dev, MT_F32, &r, 0, 2e-5);
    att_free(&r);
}

int main(void)
{
    mt_cpu_thread_setup();
    RUN(reference_is_a_gradient);
    RUN(documents);
    RUN(odd_sizes);
    RUN(wide_heads);
    RUN(the_widest_heads);
    RUN(no_token_and_one);
    RUN(tiles_over_the_stand_in);
    RUN(documents_do_not_mix);
    RUN(nan_stays_visible);
    RUN(large_scores);
    return DONE();
}
