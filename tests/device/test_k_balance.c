/* What the router learns besides the loss: counts, balance losses, the z-loss, and their gradients. */
#include "kernel_check.h"

struct aux {
    int64_t N, E, K, Q, score;
    double weight, factor;
    double *logits, *counts, *dlogits, *loss;
};
static struct aux aux_new(int64_t N, int64_t E, int64_t K, int64_t Q, int64_t score)
{
    struct aux x = {
        N,        E, K, Q, score, 0.37, 0.11, kc_random(MT_F32, N * E, 3, 1), kc_new(Q * E), kc_new(N * E),
        kc_new(N)};
    return x;
}
static void aux_free(struct aux *x)
{
    free(x->logits), free(x->counts), free(x->dlogits), free(x->loss);
}
/* An expert counts where fewer than K others come before it. */
static void aux_count(struct aux *x)
{
    for (int64_t i = 0; i < x->Q * x->E; i++) x->counts[i] = 0;
    for (int64_t n = 0; n < x->N; n++)
        for (int64_t e = 0; e < x->E; e++) {
            const double *l = x->logits + n * x->E;
            int64_t before = 0;
            for (int64_t o = 0; o < x->E; o++) before += l[o] > l[e] || (!(l[o] < l[e]) && o < e);
            x->counts[n / (x->N / x->Q) * x->E + e] += before < x->K;
        }
}
/* The sum over tokens of the balance loss, by its definition: counts times scores that sum to 1. */
static double balance_of(struct aux *x)
{
    double sum = 0;
    for (int64_t n = 0; n < x->N; n++) {
        const double *l = x->logits + n * x->E, *c = x->counts + n / (x->N / x->Q) * x->E;
        double all = 0, dot = 0, top = -INFINITY;
        for (int64_t e = 0; e < x->E; e++) top = fmax(top, l[e]);
        for (int64_t e = 0; e < x->E; e++) {
            double s = x->score ? 1 / (1 + exp(-l[e])) : exp(l[e] - top);
            all += s;
            dot += s * c[e];
        }
        sum += x->loss[n] = x->weight * dot / all;
    }
    return sum;
}
static double z_of(struct aux *x)
{
    double sum = 0;
    for (int64_t n = 0; n < x->N; n++) {
        double all = 0;
        for (int64_t e = 0; e < x->E; e++) all += exp(x->logits[n * x->E + e]);
        sum += x->loss[n] = log(all) * log(all);
    }
    return sum;
}
/* Central differences of a sum over all logits, in f64: what the kernel's gradient is held to. */
static void differences(double (*value)(struct aux *), struct aux *x)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < x->N * x->E; i++) {
        double at = x->logits[i];
        x->logits[i] = at + h;
        double up = value(x);
        x->logits[i] = at - h;
        x->dlogits[i] = (up - value(x)) / (2 * h);
        x->logits[i] = at;
    }
    value(x);
}

static const int64_t sizes[][4] = {
    {12, 9, 3, 3}, {6, 40, 8, 1}, {20, 5, 1, 10}, {4, 4, 4, 2}, {2, 700, 6, 2}};

TEST(counts_of_runs)
{
    for (int s = 0; s < 5; s++) {
        struct aux x = aux_new(sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], 0);
        if (x.N > 1)
            for (int64_t e = 0; e < x.E; e++) x.logits[x.E + e] = 0.5; /* ties go to the lower id */
        aux_count(&x);
        struct kc k = {.op = MT_OP_router_counts, .kernel = mt_cpu_router_counts, .s = {{.i = x.K}}};
        kc_arg(&k, MT_I64, x.Q, x.E, 0, 1, NULL);
        kc_arg(&k, MT_F32, x.N, x.E, 0, 2, x.logits);
        kc_run(&k);
        kc_check_equal(&k, 0, x.counts);
        kc_release(&k);
        aux_free(&x);
    }
}
TEST(counts_add_up)
{
    double all[3 * 70], acc[70], want[70];
    for (int e = 0; e < 70; e++) {
        want[e] = acc[e] = 3e12 + e;
        for (int r = 0; r < 3; r++) want[e] += all[r * 70 + e] = 1e9 * r - e;
    }
    struct kc k = {.op = MT_OP_counts_total, .kernel = mt_cpu_counts_total};
    kc_arg(&k, MT_I64, 70, 0, 0, 0, acc);
    kc_arg(&k, MT_I64, 70, 0, 0, 0, NULL);
    kc_arg(&k, MT_I64, 3, 70, 0, 2, all);
    kc_run(&k);
    kc_check_equal(&k, 0, want);
    kc_check_equal(&k, 1, want);
    kc_release(&k);
}

/* Kernel: adds factor times the gradient to what is there. */
static void check(struct aux *x, struct kc *k)
{
    double *was = kc_random(MT_F32, x->N * x->E, 0.01, 5);
    kc_arg(k, MT_F32, x->N, x->E, 0, 1, was);
    kc_arg(k, MT_F32, x->N, 0, 0, 0, NULL);
    kc_arg(k, MT_F32, x->N, x->E, 0, 2, x->logits);
    if (k->op == MT_OP_router_balance) kc_arg(k, MT_I64, x->Q, x->E, 0, 3, x->counts);
    kc_run(k);
    for (int64_t i = 0; i < x->N * x->E; i++) was[i] += x->factor * x->dlogits[i];
    kc_check_close(k, 0, was, 2e-6);
    kc_check_close(k, 1, x->loss, 1e-6);
    kc_release(k);
    free(was);
}
TEST(balance_by_finite_differences)
{
    for (int s = 0; s < 5; s++)
        for (int score = 0; score < 2; score++) {
            struct aux x = aux_new(sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], score);
            aux_count(&x);
            differences(balance_of, &x);
            struct kc k = {.op = MT_OP_router_balance,
                           .kernel = mt_cpu_router_balance,
                           .s = {{.i = score}, {.f = x.weight}, {.f = x.factor}}};
            check(&x, &k);
            aux_free(&x);
        }
}
TEST(z_by_finite_differences)
{
    for (int s = 0; s < 5; s++) {
        struct aux x = aux_new(sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], 0);
        differences(z_of, &x);
        struct kc k = {.op = MT_OP_router_z, .kernel = mt_cpu_router_z, .s = {{.f = x.factor}}};
        check(&x, &k);
        aux_free(&x);
    }
}
/* Even choices cost 1 whatever the scores: what an even load is reported as. */
TEST(even_is_one)
{
    for (int score = 0; score < 2; score++) {
        struct aux x = aux_new(8, 6, 2, 1, score);
        for (int e = 0; e < 6; e++) x.counts[e] = 8.0 * 2 / 6 * 3;
        for (int n = 0; n < 8; n++) x.loss[n] = 1;
        struct kc k = {.op = MT_OP_router_balance,
                       .kernel = mt_cpu_router_balance,
                       .s = {{.i = score}, {.f = 6.0 / (2 * 8 * 3)}, {.f = 1}}};
        double *zero = kc_new(8 * 6);
        kc_arg(&k, MT_F32, 8, 6, 0, 0, zero);
        kc_arg(&k, MT_F32, 8, 0, 0, 0, NULL);
        kc_arg(&k, MT_F32, 8, 6, 0, 0, x.logits);
        kc_arg(&k, MT_I64, 1, 6, 0, 0, x.counts);
        kc_run(&k);
        kc_check_close(&k, 1, x.loss, 1e-6);
        for (int i = 0; i < 48; i++) CHECK_CLOSE(kc_load(kc_at(&k, 0, i), MT_F32), 0, 1e-6);
        kc_release(&k);
        free(zero);
        aux_free(&x);
    }
}
TEST(nan_shows)
{
    struct aux x = aux_new(3, 5, 2, 1, 1);
    x.logits[6] = NAN;
    for (int score = 0; score < 2; score++) {
        struct kc k = {.op = MT_OP_router_balance,
                       .kernel = mt_cpu_router_balance,
                       .s = {{.i = score}, {.f = 1}, {.f = 1}}};
        for (int e = 0; e < 5; e++) x.counts[e] = e + 1;
        kc_arg(&k, MT_F32, 3, 5, 0, 0, x.dlogits);
        kc_arg(&k, MT_F32, 3, 0, 0, 0, NULL);
        kc_arg(&k, MT_F32, 3, 5, 0, 0, x.logits);
        kc_arg(&k, MT_I64, 1, 5, 0, 0, x.counts);
        kc_run(&k);
        CHECK(kc_all_nan(&k, 0, 5, 5) && kc_no_nan(&k, 0, 0, 5) && kc_all_nan(&k, 1, 1, 1));
        kc_release(&k);
    }
    aux_free(&x);
}

int main(void)
{
    RUN(counts_of_runs);
    RUN(counts_add_up);
    RUN(balance_by_finite_differences);
    RUN(z_by_finite_differences);
    RUN(even_is_one);
    RUN(nan_shows);
    return DONE();
}
