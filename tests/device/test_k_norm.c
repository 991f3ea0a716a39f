/* RMS norm forward and backward, column sums. */
#include "kernel_check.h"

static const double EPS = 1e-5;

struct norm {
    int64_t N, D;
    double *x, *g, *dy, *res, *y, *rstd, *dx, *dg;
};
static struct norm norm_new(mt_dtype t, int64_t N, int64_t D)
{
    struct norm r = {N,
                     D,
                     kc_random(t, N * D, 2, 1),
                     kc_random(MT_F32, D, 1, 2),
                     kc_random(t, N * D, 1, 3),
                     kc_random(t, N * D, 1, 4),
                     kc_new(N * D),
                     kc_new(N),
                     kc_new(N * D),
                     kc_new(D)};
    return r;
}
static void norm_free(struct norm *r)
{
    double *all[] = {r->x, r->g, r->dy, r->res, r->y, r->rstd, r->dx, r->dg};
    for (int i = 0; i < 8; i++) free(all[i]);
}
static void norm_fwd(struct norm *r)
{
    for (int64_t n = 0; n < r->N; n++) {
        const double *x = r->x + n * r->D;
        double q = 0;
        for (int64_t i = 0; i < r->D; i++) q += x[i] * x[i];
        r->rstd[n] = 1 / sqrt(q / (double)r->D + EPS);
        for (int64_t i = 0; i < r->D; i++) r->y[n * r->D + i] = x[i] * r->rstd[n] * r->g[i];
    }
}
/* of <dy, y> + <res, x>: res takes the part of a gradient that goes round the norm */
static void norm_bwd(struct norm *r)
{
    norm_fwd(r);
    memset(r->dg, 0, (size_t)r->D * 8);
    for (int64_t n = 0; n < r->N; n++) {
        double s = r->rstd[n], dot = 0;
        const double *x = r->x + n * r->D, *dy = r->dy + n * r->D;
        for (int64_t i = 0; i < r->D; i++) dot += dy[i] * r->g[i] * x[i];
        for (int64_t i = 0; i < r->D; i++) {
            r->dx[n * r->D + i] = r->res[n * r->D + i] + s * dy[i] * r->g[i] -
                                  s * s * s * x[i] * dot / (double)r->D;
            r->dg[i] += dy[i] * x[i] * s;
        }
    }
}
static double norm_value(void *ctx)
{
    struct norm *r = ctx;
    double v = 0;
    norm_fwd(r);
    for (int64_t i = 0; i < r->N * r->D; i++) v += r->dy[i] * r->y[i] + r->res[i] * r->x[i];
    return v;
}

TEST(reference_is_a_gradient)
{
    struct norm r = norm_new(MT_F32, 3, 5);
    norm_bwd(&r);
    kc_check_gradient(norm_value, &r, r.x, r.dx, r.N * r.D);
    kc_check_gradient(norm_value, &r, r.g, r.dg, r.D);
    norm_free(&r);
}

static void check_fwd(mt_dtype t, int64_t N, int64_t D, int64_t pad)
{
    struct norm r = norm_new(t, N, D);
    struct kc k = {.op = MT_OP_rmsnorm_fwd, .kernel = mt_cpu_rmsnorm_fwd, .s = {{.f = EPS}}};
    norm_fwd(&r);
    kc_arg(&k, t, N, D, 0, pad, NULL);
    kc_arg(&k, MT_F32, N, 0, 0, 0, NULL);
    kc_arg(&k, t, N, D, 0, pad + 1, r.x);
    kc_arg(&k, MT_F32, D, 0, 0, 0, r.g);
    kc_run(&k);
    kc_check_close(&k, 0, r.y, 5e-7);
    kc_check_close(&k, 1, r.rstd, 3e-7);
    kc_release(&k);
    norm_free(&r);
}
TEST(forward)
{
    KC_FOR_DTYPES(t)
    {
        check_fwd(t, 5, 1, 0);
        check_fwd(t, 9, 37, 3);
        check_fwd(t, 3, 2051, 0);
        check_fwd(t, 0, 64, 0);
    }
}
TEST(forward_nan_and_zero_rows)
{
    double x[3 * 20] = {0}, g[20];
    for (int i = 0; i < 20; i++) g[i] = 1;
    x[25] = NAN;
    x[45] = 3;
    KC_FOR_DTYPES(t)
    {
        struct kc k = {.op = MT_OP_rmsnorm_fwd, .kernel = mt_cpu_rmsnorm_fwd, .s = {{.f = EPS}}};
        kc_arg(&k, t, 3, 20, 0, 0, NULL);
        kc_arg(&k, MT_F32, 3, 0, 0, 0, NULL);
        kc_arg(&k, t, 3, 20, 0, 0, x);
        kc_arg(&k, MT_F32, 20, 0, 0, 0, g);
        kc_run(&k);
        CHECK(kc_no_nan(&k, 0, 0, 20) && kc_all_nan(&k, 0, 20, 20) && kc_no_nan(&k, 0, 40, 20));
        kc_release(&k);
    }
}

static void check_bwd(mt_dtype t, int64_t N, int64_t D, int64_t pad, bool with_res)
{
    enum { P = MT_NORM_BLOCKS };
    struct norm r = norm_new(t, N, D);
    struct kc k = {.op = MT_OP_rmsnorm_bwd, .kernel = mt_cpu_rmsnorm_bwd};
    if (!with_res) memset(r.res, 0, (size_t)(N * D) * 8);
    norm_bwd(&r);
    for (int64_t n = 0; n < N; n++) r.rstd[n] = kc_round(MT_F32, r.rstd[n]);
    kc_arg(&k, t, N, D, 0, pad, NULL);
    kc_arg(&k, MT_F32, P, D, 0, pad, NULL);
    kc_arg(&k, t, N, D, 0, pad + 2, r.dy);
    kc_arg(&k, t, N, D, 0, pad + 1, r.x);
    kc_arg(&k, MT_F32, N, 0, 0, 0, r.rstd);
    kc_arg(&k, MT_F32, D, 0, 0, 0, r.g);
    if (with_res)
        kc_arg(&k, t, N, D, 0, pad, r.res);
    else
        kc_none(&k);
    kc_run(&k);
    kc_check_scaled(&k, 0, r.dx, 1e-6, D == 1 ? 2 : kc_rms(r.dx, N * D)); /* D = 1: all of it cancels */
    double *dgp = kc_new(P * D), *want = kc_new(P * D);
    kc_get(&k, 1, dgp);
    for (int64_t p = 0; p < P; p++) /* block by block, so that their bounds are checked too */
        for (int64_t n = N * p / P; n < N * (p + 1) / P; n++)
            for (int64_t i = 0; i < D; i++) want[p * D + i] += r.dy[n * D + i] * r.x[n * D + i] * r.rstd[n];
    kc_check_close(&k, 1, want, 1e-6);
    free(dgp);
    free(want);
    kc_release(&k);
    norm_free(&r);
}
TEST(backward)
{
    KC_FOR_DTYPES(t)
    {
        for (int res = 0; res < 2; res++) {
            check_bwd(t, 5, 1, 0, res);
            check_bwd(t, 37, 45, 3, res);
            check_bwd(t, 3, 1100, 0, res);
            check_bwd(t, 0, 64, 0, res);
        }
    }
}

TEST(rows_sum)
{
    const int64_t sizes[][2] = {{1, 1}, {16, 700}, {3, 65}};
    for (int s = 0; s < 3; s++) {
        int64_t P = sizes[s][0], D = sizes[s][1];
        double *x = kc_random(MT_F32, P * D, 1, 5), *y = kc_random(MT_F32, D, 1, 6);
        struct kc k = {.op = MT_OP_sum_rows, .kernel = mt_cpu_sum_rows};
        kc_arg(&k, MT_F32, D, 0, 0, 0, y);
        kc_arg(&k, MT_F32, P, D, 0, 3, x);
        kc_run(&k);
        for (int64_t i = 0; i < D; i++) { /* in the order of the table, in f32: exactly */
            float sum = 0;
            for (int64_t p = 0; p < P; p++) sum += (float)x[p * D + i];
            y[i] = (double)((float)y[i] + sum);
        }
        kc_check_equal(&k, 0, y);
        kc_release(&k);
        free(x);
        free(y);
    }
}

TEST(bias_gradient)
{
    const int64_t sizes[][2] = {{0, 5}, {1, 1}, {300, 133}, {5000, 70}};
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++) {
            int64_t N = sizes[s][0], O = sizes[s][1];
            double *dy = kc_random(t, N * O, 1, 5), *db = kc_random(MT_F32, O, 1, 6);
            for (int64_t i = 0; i < N * O; i++)
                dy[i] = kc_round(t, dy[i] + 1); /* no cancellation: sums grow with N */
            struct kc k = {.op = MT_OP_bias_bwd, .kernel = mt_cpu_bias_bwd};
            kc_arg(&k, MT_F32, O, 0, 0, 0, db);
            kc_arg(&k, t, N, O, 0, 5, dy);
            kc_run(&k);
            for (int64_t n = 0; n < N; n++)
                for (int64_t i = 0; i < O; i++) db[i] += dy[n * O + i];
            kc_check_close(&k, 0, db, 3e-7);
            kc_release(&k);
            free(dy);
            free(db);
        }
    }
}

int main(void)
{
    RUN(reference_is_a_gradient);
    RUN(forward);
    RUN(forward_nan_and_zero_rows);
    RUN(backward);
    RUN(rows_sum);
    RUN(bias_gradient);
    return DONE();
}
