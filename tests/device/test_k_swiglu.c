/* SwiGLU of dense layers and of routed rows. */
#include "kernel_check.h"

struct glu {
    int64_t N, F;
    double *u, *ds, *s, *du;
};
static struct glu glu_new(mt_dtype t, int64_t N, int64_t F)
{
    struct glu r = {
        N, F, kc_random(t, N * 2 * F, 6, 1), kc_random(t, N * F, 1, 2), kc_new(N * F), kc_new(N * 2 * F)};
    return r;
}
static void glu_free(struct glu *r)
{
    free(r->u), free(r->ds), free(r->s), free(r->du);
}
static void glu_fwd(struct glu *r)
{
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t i = 0; i < r->F; i++) {
            double x = r->u[n * 2 * r->F + i], y = r->u[n * 2 * r->F + r->F + i];
            r->s[n * r->F + i] = x / (1 + exp(-x)) * y;
        }
}
/* row n has its ds multiplied by gate[n], if given */
static void glu_bwd(struct glu *r, const double *gate)
{
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t i = 0; i < r->F; i++) {
            double *du = r->du + n * 2 * r->F + i, x = r->u[n * 2 * r->F + i],
                   y = r->u[n * 2 * r->F + r->F + i];
            double d = r->ds[n * r->F + i] * (gate ? gate[n] : 1), g = 1 / (1 + exp(-x));
            du[0] = d * y * (g + x * g * (1 - g));
            du[r->F] = d * x * g;
        }
}
static double glu_value(void *ctx)
{
    struct glu *r = ctx;
    double v = 0;
    glu_fwd(r);
    for (int64_t i = 0; i < r->N * r->F; i++) v += r->ds[i] * r->s[i];
    return v;
}

TEST(reference_is_a_gradient)
{
    struct glu r = glu_new(MT_F32, 3, 7);
    glu_bwd(&r, NULL);
    kc_check_gradient(glu_value, &r, r.u, r.du, r.N * 2 * r.F);
    glu_free(&r);
}

static const int64_t sizes[][3] = {{1, 1, 0}, {9, 37, 3}, {5, 1025, 0}, {0, 16, 0}};

TEST(forward)
{
    KC_FOR_DTYPES(t)
    {
        for (int i = 0; i < 4; i++) {
            int64_t N = sizes[i][0], F = sizes[i][1], pad = sizes[i][2];
            struct glu r = glu_new(t, N, F);
            struct kc k = {.op = MT_OP_swiglu_fwd, .kernel = mt_cpu_swiglu_fwd};
            glu_fwd(&r);
            kc_arg(&k, t, N, F, 0, pad, NULL);
            kc_arg(&k, t, N, 2 * F, 0, pad + 1, r.u);
            kc_run(&k);
            kc_check_close(&k, 0, r.s, 4e-7);
            kc_release(&k);
            glu_free(&r);
        }
    }
}
TEST(backward)
{
    KC_FOR_DTYPES(t)
    {
        for (int i = 0; i < 4; i++) {
            int64_t N = sizes[i][0], F = sizes[i][1], pad = sizes[i][2];
            struct glu r = glu_new(t, N, F);
            struct kc k = {.op = MT_OP_swiglu_bwd, .kernel = mt_cpu_swiglu_bwd};
            glu_bwd(&r, NULL);
            kc_arg(&k, t, N, 2 * F, 0, pad, NULL);
            kc_arg(&k, t, N, F, 0, pad + 1, r.ds);
            kc_arg(&k, t, N, 2 * F, 0, pad + 2, r.u);
            kc_run(&k);
            kc_check_close(&k, 0, r.du, 5e-7);
            kc_release(&k);
            glu_free(&r);
        }
    }
}
TEST(far_values_stay_finite)
{
    double u[8] = {-300, 300, -1e30, 1e30, 1, 1, 1, 1}, want[4] = {0, 300, 0, 1e30};
    struct kc k = {.op = MT_OP_swiglu_fwd, .kernel = mt_cpu_swiglu_fwd};
    kc_arg(&k, MT_F32, 1, 4, 0, 0, NULL);
    kc_arg(&k, MT_F32, 1, 8, 0, 0, u);
    kc_run(&k);
    for (int i = 0; i < 4; i++)
        CHECK_CLOSE(kc_load(kc_at(&k, 0, i), MT_F32), want[i], 1e-6 * fabs(want[i]) + 1e-12);
    kc_release(&k);
}
TEST(nan_shows)
{
    double u[12] = {0, NAN, 0, 1, 1, NAN, 1, 1, 1, 1, 1, 1};
    KC_FOR_DTYPES(t)
    {
        struct kc k = {.op = MT_OP_swiglu_fwd, .kernel = mt_cpu_swiglu_fwd};
        kc_arg(&k, t, 2, 3, 0, 0, NULL);
        kc_arg(&k, t, 2, 6, 0, 0, u);
        kc_run(&k);
        CHECK(kc_no_nan(&k, 0, 0, 1) && kc_all_nan(&k, 0, 1, 2) && kc_no_nan(&k, 0, 3, 3));
        kc_release(&k);
    }
}

enum { C = 12, F_ROUTED = 45, N_TOKENS = 10, TOPK = 3, M = N_TOKENS * TOPK };

static void check_expert_fwd(mt_dtype t, int64_t rows)
{
    struct glu r = glu_new(t, C, F_ROUTED);
    struct kc k = {.op = MT_OP_expert_swiglu_fwd, .kernel = mt_cpu_expert_swiglu_fwd, .s = {{.i = rows}}};
    glu_fwd(&r);
    double *before = kc_random(t, C * F_ROUTED, 1, 9);
    memcpy(r.s + rows * F_ROUTED, before + rows * F_ROUTED,
           (size_t)((C - rows) * F_ROUTED) * 8); /* not this round's */
    kc_arg(&k, t, C, F_ROUTED, 0, 3, before);
    kc_arg(&k, t, C, 2 * F_ROUTED, 0, 0, r.u);
    kc_run(&k);
    kc_check_close(&k, 0, r.s, 4e-7);
    free(before);
    kc_release(&k);
    glu_free(&r);
}
TEST(expert_forward)
{
    KC_FOR_DTYPES(t)
    {
        check_expert_fwd(t, 0);
        check_expert_fwd(t, 7);
        check_expert_fwd(t, C);
    }
}

/* want: du, s, dgate; what is not of this round stays as it was */
static void expert_reference(struct glu *r, double *s, double *dgate, const double *gates,
                             const double *order, int64_t first, int64_t rows)
{
    double gate[C] = {0};
    for (int64_t i = 0; i < rows; i++) {
        gate[i] = gates[(int64_t)order[first + i]];
        dgate[first + i] = 0;
        for (int64_t f = 0; f < r->F; f++) {
            dgate[first + i] += r->ds[i * r->F + f] * s[i * r->F + f];
            s[i * r->F + f] *= gate[i];
        }
    }
    double before = r->du[rows * 2 * r->F];
    glu_bwd(r, gate);
    for (int64_t i = rows * 2 * r->F; i < r->N * 2 * r->F; i++) r->du[i] = before;
}
static void check_expert_bwd(mt_dtype t, int64_t first, int64_t rows)
{
    struct glu r = glu_new(t, C, F_ROUTED);
    double *s = kc_random(t, C * F_ROUTED, 1, 5), *gates = kc_random(MT_F32, M, 1, 6), order[M], dgate[M];
    for (int i = 0; i < M; i++) order[i] = i * 7 % M, dgate[i] = -5;
    for (int64_t i = 0; i < C * 2 * F_ROUTED; i++) r.du[i] = 11;
    struct kc k = {
        .op = MT_OP_expert_swiglu_bwd, .kernel = mt_cpu_expert_swiglu_bwd, .s = {{.i = first}, {.i = rows}}};
    kc_arg(&k, t, C, 2 * F_ROUTED, 0, 1, r.du);
    kc_arg(&k, t, C, F_ROUTED, 0, 2, s);
    kc_arg(&k, MT_F32, M, 0, 0, 0, dgate);
    kc_arg(&k, t, C, F_ROUTED, 0, 3, r.ds);
    kc_arg(&k, t, C, 2 * F_ROUTED, 0, 4, r.u);
    kc_arg(&k, MT_F32, N_TOKENS, TOPK, 0, 5, gates);
    kc_arg(&k, MT_I32, M, 0, 0, 0, order);
    kc_run(&k);
    expert_reference(&r, s, dgate, gates, order, first, rows);
    kc_check_close(&k, 0, r.du, 5e-7);
    kc_check_close(&k, 1, s, 2e-7);
    kc_check_close(&k, 2, dgate, 5e-7);
    free(s), free(gates);
    kc_release(&k);
    glu_free(&r);
}
TEST(expert_backward)
{
    KC_FOR_DTYPES(t)
    {
        check_expert_bwd(t, 0, 0);
        check_expert_bwd(t, 0, C - 1);
        check_expert_bwd(t, 17, 9);
        check_expert_bwd(t, M - 1, 1);
    }
}

int main(void)
{
    RUN(reference_is_a_gradient);
    RUN(forward);
    RUN(backward);
    RUN(far_values_stay_finite);
    RUN(nan_shows);
    RUN(expert_forward);
    RUN(expert_backward);
    return DONE();
}
