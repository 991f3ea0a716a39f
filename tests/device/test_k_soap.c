/* SOAP's kernels against plain loops in double: turns, means of products, moments, Adam, bases. */
#include "device/cpu/muon_ws.h"
#include "packed_check.h"

/* y = op(a) op(b) of matrices: a is m x k, or k x m and turned; b is k x n, or n x k and turned. */
struct operand {
    const double *at;
    bool turned;
};
static void product(double *y, struct operand a, struct operand b, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (a.turned ? a.at[l * m + i] : a.at[i * k + l]) *
                       (b.turned ? b.at[j * k + l] : b.at[l * n + j]);
            y[i * n + j] = sum;
        }
}

static void turn_case(int64_t B, int64_t R, int64_t C, bool left, bool turned, int64_t pad)
{
    int64_t n = left ? R : C;
    double *x = kc_random(MT_F32, B * R * C, 1, 1), *q = kc_random(MT_F32, B * n * n, 1, 2),
           *want = kc_new(B * R * C);
    for (int64_t b = 0; b < B; b++) {
        struct operand m = {x + b * R * C, false}, s = {q + b * n * n, turned};
        product(want + b * R * C, left ? s : m, left ? m : s, R, C, n);
    }
    struct kc k = {.op = left ? MT_OP_turn_left : MT_OP_turn_right,
                   .kernel = left ? mt_cpu_turn_left : mt_cpu_turn_right,
                   .s = {{.i = turned}}};
    kc_arg(&k, MT_F32, B, R, C, pad, NULL);
    if (!left) kc_arg(&k, MT_F32, B, R, C, 0, x);
    kc_arg(&k, MT_F32, B, n, n, pad, q);
    if (left) kc_arg(&k, MT_F32, B, R, C, 0, x);
    kc_run(&k);
    kc_check_close(&k, 0, want, 2e-6);
    kc_release(&k);
    free(x), free(q), free(want);
}
TEST(turn)
{
    for (int i = 0; i < 4; i++) {
        turn_case(2, 5, 7, i & 1, i & 2, 3);
        turn_case(1, 40, 600, i & 1, i & 2, 0); /* more than a chunk */
    }
}

static void gram_case(int64_t B, int64_t R, int64_t C, bool left, double beta)
{
    int64_t n = left ? R : C;
    double *x = kc_random(MT_F32, B * R * C, 1, 1), *acc = kc_random(MT_F32, B * n * n, 1, 2),
           *want = kc_new(B * n * n);
    for (int64_t b = 0; b < B; b++) {
        struct operand m = {x + b * R * C, !left}, t = {x + b * R * C, left};
        product(want + b * n * n, m, t, n, n, left ? C : R);
    }
    for (int64_t i = 0; i < B * n * n; i++) want[i] = beta * acc[i] + (1 - beta) * want[i];
    struct kc k = {.op = left ? MT_OP_gram_left : MT_OP_gram_right,
                   .kernel = left ? mt_cpu_gram_left : mt_cpu_gram_right,
                   .s = {{.f = beta}}};
    kc_arg(&k, MT_F32, B, n, n, 2, acc);
    kc_arg(&k, MT_F32, B, R, C, 1, x);
    kc_run(&k);
    kc_check_close(&k, 0, want, 2e-6);
    kc_release(&k);
    free(x), free(acc), free(want);
}
TEST(gram)
{
    for (int left = 0; left < 2; left++) {
        gram_case(3, 6, 9, left, 0.9);
        gram_case(1, 20, 530, left, 0);
    }
}

TEST(moment)
{
    enum { B = 2, R = 3, C = 11, N = B * R * C };
    const double beta = 0.9, scale = 0.25;
    double *m = kc_random(MT_F32, N, 1, 1), *grad = kc_random(MT_F32, N, 1, 2), g[N], mean[N];
    for (int i = 0; i < N; i++) g[i] = grad[i] * scale, mean[i] = beta * m[i] + (1 - beta) * g[i];
    struct kc k = {.op = MT_OP_soap_moment, .kernel = mt_cpu_soap_moment, .s = {{.f = beta}}};
    kc_arg(&k, MT_F32, B, R, C, 0, NULL);
    kc_arg(&k, MT_F32, B, R, C, 0, NULL);
    kc_arg(&k, MT_F32, B, R, C, 2, m);
    kc_arg(&k, MT_F32, B, R, C, 3, grad);
    kc_arg(&k, MT_F32, 1, 0, 0, 0, &scale);
    kc_run(&k);
    kc_check_close(&k, 0, g, 3e-7);
    kc_check_close(&k, 1, mean, 3e-7);
    kc_check_close(&k, 2, mean, 3e-7);
    kc_release(&k);
    free(m), free(grad);
}

TEST(adam)
{
    enum { B = 2, R = 3, C = 11, N = B * R * C, STEP = 4 };
    const double b1 = 0.9, b2 = 0.95, eps = 1e-8;
    double *v = kc_random(MT_F32, N, 1, 1), *u = kc_random(MT_F32, N, 1, 2), *g = kc_random(MT_F32, N, 1, 3),
           nv[N], nu[N];
    for (int i = 0; i < N; i++) {
        v[i] = fabs(v[i]);
        nv[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
        nu[i] = u[i] / (1 - pow(b1, STEP)) / (sqrt(nv[i] / (1 - pow(b2, STEP))) + eps);
    }
    struct kc k = {.op = MT_OP_soap_adam,
                   .kernel = mt_cpu_soap_adam,
                   .s = {{.f = b1}, {.f = b2}, {.f = eps}, {.i = STEP}}};
    kc_arg(&k, MT_F32, B, R, C, 2, v);
    kc_arg(&k, MT_F32, B, R, C, 0, u);
    kc_arg(&k, MT_F32, B, R, C, 0, g);
    kc_run(&k);
    kc_check_close(&k, 0, nv, 3e-7);
    kc_check_close(&k, 1, nu, 1e-6);
    kc_release(&k);
    free(v), free(u), free(g);
}

/* ---- bases ---- */
static const double OVER = 0.75, EPS = 1e-3;
static void basis_run(int64_t B, int64_t n, int mode, const double *p, const double *q, double *got)
{
    struct kc k = {.op = MT_OP_eigen_basis,
                   .kernel = mt_cpu_eigen_basis,
                   .s = {{.i = mode}, {.f = OVER}, {.f = EPS}, {.i = 4}}};
    kc_arg(&k, MT_F32, B, n, n, 1, q);
    kc_arg(&k, MT_F32, B, n, n, 2, p);
    kc_arg(&k, MT_U8, mt_eigen_ws_bytes(B, n), 0, 0, 0, NULL);
    static const int cuts[] = {1, 3, 64};
    for (int i = 0; i < 3; i++) {
        double *again = kc_new(B * n * n);
        kc_run_parts(&k, cuts[i]);
        kc_check_untouched(&k);
        kc_get(&k, 0, again);
        if (i) CHECK(!memcmp(again, got, (size_t)(B * n * n) * sizeof *got));
        memcpy(got, again, (size_t)(B * n * n) * sizeof *got);
        free(again);
    }
    kc_release(&k);
}
/* The largest distance of q^T q from the unit matrix. */
static double skew(const double *q, int64_t n)
{
    double most = 0, *g = kc_new(n * n);
    product(g, (struct operand){q, true}, (struct operand){q, false}, n, n, n);
    for (int64_t i = 0; i < n * n; i++) {
        double d = fabs(g[i] - (i / n == i % n));
        if (!(d <= most)) most = d;
    }
    free(g);
    return most;
}
/* What q^T p q has off its diagonal (mode 2), or q^T s below it (mode 1), largest, over the largest of it. */
static double left_over(const double *q, const double *s, int64_t n, bool below)
{
    double most = 0, top = 0, *g = kc_new(n * n), *h = kc_new(n * n);
    product(h, (struct operand){q, true}, (struct operand){s, false}, n, n, n);
    if (!below) product(g, (struct operand){h, false}, (struct operand){q, false}, n, n, n);
    const double *x = below ? h : g;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double a = fabs(x[i * n + j]);
            if (a > top) top = a;
            if ((below ? j < i : j != i) && !(a <= most)) most = a;
        }
    free(g), free(h);
    return top > 0 ? most / top : most;
}
/* p = x x^T of n x rank: singular where rank is less. */
static double *symmetric(int64_t B, int64_t n, int64_t rank, uint64_t seed)
{
    double *x = kc_random(MT_F32, B * n * rank, 1, seed), *p = kc_new(B * n * n);
    for (int64_t b = 0; b < B; b++)
        product(p + b * n * n, (struct operand){x + b * n * rank, false},
                (struct operand){x + b * n * rank, true}, n, n, rank);
    for (int64_t i = 0; i < B * n * n; i++) p[i] = kc_round(MT_F32, p[i]);
    free(x);
    return p;
}
static void basis_case(int64_t B, int64_t n, int64_t rank)
{
    double *p = symmetric(B, n, rank, 3), *old = kc_random(MT_F32, B * n * n, 1, 5), *got = kc_new(B * n * n),
           *s = kc_new(n * n);
    basis_run(B, n, 2, p, old, got);
    for (int64_t b = 0; b < B; b++) {
        CHECK_CLOSE(skew(got + b * n * n, n), 0, 1e-6);
        CHECK_CLOSE(left_over(got + b * n * n, p + b * n * n, n, false), 0, 1e-6);
    }
    basis_run(B, n, 1, p, old, got);
    for (int64_t b = 0; b < B; b++) {
        product(s, (struct operand){p + b * n * n, false}, (struct operand){old + b * n * n, false}, n, n, n);
        CHECK_CLOSE(skew(got + b * n * n, n), 0, 1e-6);
        CHECK_CLOSE(left_over(got + b * n * n, s, n, true), 0, 1e-6);
    }
    basis_run(B, n, 0, p, old, got);
    CHECK(!memcmp(got, old, (size_t)(B * n * n) * sizeof *got));
    free(p), free(old), free(got), free(s);
}
TEST(bases)
{
    basis_case(2, 24, 24);
    basis_case(20, 5, 5); /* more than workspaces */
    basis_case(1, 33, 10);
    basis_case(1, 1, 1);
}
/* Nothing to go by: some orthogonal matrix. And the iteration converges to what Jacobi's rotations find. */
TEST(bases_of_nothing_and_in_the_limit)
{
    enum { N = 9 };
    double zero[N * N] = {0}, q[N * N], *p = kc_new(N * N);
    for (int mode = 1; mode < 3; mode++) {
        basis_run(1, N, mode, zero, zero, q);
        CHECK_CLOSE(skew(q, N), 0, 1e-6);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) p[i * N + j] = kc_round(MT_F32, i == j ? pow(3, i) : 0.1 / (1 + i + j));
    for (int i = 0; i < 40; i++) basis_run(1, N, 1, p, q, q);
    CHECK_CLOSE(left_over(q, p, N, false), 0, 1e-6);
    free(p);
}

/* The inverse fourth root, raised again, times the matrix: the unit matrix; also of one that is singular or zero. */
static void root_case(int64_t B, int64_t n, int64_t rank)
{
    double *p = symmetric(B, n, rank, 7), *q = kc_new(B * n * n), *two = kc_new(n * n), *four = kc_new(n * n),
           *unit = kc_new(n * n);
    basis_run(B, n, 3, p, q, q);
    for (int64_t b = 0; b < B; b++) {
        double *at = p + b * n * n, most = 0;
        struct operand x = {q + b * n * n, false};
        for (int64_t i = 0; i < n * n; i++) at[i] = at[i] / OVER + (i / n == i % n ? EPS : 0);
        product(two, x, x, n, n, n);
        product(four, (struct operand){two, false}, (struct operand){two, false}, n, n, n);
        product(unit, (struct operand){at, false}, (struct operand){four, false}, n, n, n);
        for (int64_t i = 0; i < n * n; i++) {
            double d = fabs(unit[i] - (i / n == i % n));
            if (!(d <= most)) most = d;
        }
        if (!CHECK(most <= 3e-3)) printf("  %lld x %lld: %.3g\n", (long long)n, (long long)n, most);
    }
    free(p), free(q), free(two), free(four), free(unit);
}
TEST(roots)
{
    root_case(2, 24, 40);
    root_case(1, 9, 4);
    root_case(18, 5, 7);
    root_case(1, 1, 1);
}
TEST(graft)
{
    enum { B = 3, R = 4, C = 11, N = B * R * C };
    for (int takes = 0; takes < 2; takes++) {
        double *x = kc_random(MT_F32, N, 1, 1), *like = kc_random(MT_F32, N, 3, 2), want[N];
        memset(x, 0, R * C * sizeof *x); /* stays zero */
        for (int b = 0; b < B; b++) {
            double x2 = 0, like2 = 0;
            for (int i = b * R * C; i < (b + 1) * R * C; i++) x2 += x[i] * x[i], like2 += like[i] * like[i];
            for (int i = b * R * C; i < (b + 1) * R * C; i++)
                want[i] = !takes ? like[i] : x2 > 0 ? x[i] * sqrt(like2 / x2) : 0;
        }
        struct kc k = {.op = MT_OP_graft, .kernel = mt_cpu_graft, .s = {{.i = takes}}};
        kc_arg(&k, MT_F32, B, R, C, 2, x);
        kc_arg(&k, MT_F32, B, R, C, 0, like);
        kc_run(&k);
        kc_check_close(&k, 0, want, 3e-7);
        kc_release(&k);
        free(x), free(like);
    }
}

int main(void)
{
    mt_cpu_thread_setup();
    RUN(turn);
    RUN(gram);
    RUN(moment);
    RUN(adam);
    RUN(bases);
    RUN(bases_of_nothing_and_in_the_limit);
    RUN(roots);
    RUN(graft);
    return DONE();
}
