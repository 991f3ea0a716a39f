/* Gradient norm and clipping, AdamW, and Muon with its Newton-Schulz iteration. */
#include "base/exact.h"
#include "base/ns_coeff.h"
#include "device/cpu/muon_ws.h"
#include "golden.h"
#include "packed_check.h"

/* The words of an accumulator after a run in that many parts. */
static double sumsq_value(struct kc *k, int parts, int64_t *acc)
{
    kc_run_parts(k, parts);
    kc_check_untouched(k);
    for (int i = 0; i < MT_EXACT_WORDS; i++) memcpy(&acc[i], kc_at(k, 0, i), 8);
    return mt_exact_value(acc);
}

TEST(sumsq_is_exact_and_accumulates)
{
    enum { N = 9001 };
    double *x = kc_random(MT_F32, N, 3, 5), zero[MT_EXACT_WORDS] = {0};
    long double want = 0;
    for (int i = 0; i < N; i++) want += (long double)x[i] * (long double)x[i];
    struct kc k = {.op = MT_OP_sumsq, .kernel = mt_cpu_sumsq};
    kc_arg(&k, MT_I64, MT_EXACT_WORDS, 0, 0, 0, zero);
    kc_arg(&k, MT_F32, N, 0, 0, 0, x);
    int64_t acc[MT_EXACT_WORDS];
    double one = sumsq_value(&k, 1, acc);
    CHECK_CLOSE(one, want, 1e-12 * (double)want);
    CHECK(sumsq_value(&k, 3, acc) == one && sumsq_value(&k, 64, acc) == one);
    memcpy(k.b[0].start + KC_GUARD, acc, sizeof acc); /* goes on from a sum */
    CHECK(sumsq_value(&k, 4, acc) == 2 * one);
    kc_release(&k);
    free(x);
}

static void check_clip(const float *x, int64_t n, double max_norm, double norm, double scale)
{
    int64_t acc[MT_EXACT_WORDS] = {0};
    mt_exact_add(acc, x, n);
    struct kc k = {.op = MT_OP_clip, .kernel = mt_cpu_clip, .s[0].f = max_norm};
    kc_arg(&k, MT_F32, 1, 0, 0, 0, NULL);
    kc_arg(&k, MT_F64, 1, 0, 0, 0, NULL);
    kc_arg(&k, MT_I64, MT_EXACT_WORDS, 0, 0, 0, NULL);
    memcpy(k.b[2].start + KC_GUARD, acc, sizeof acc);
    kc_run(&k);
    if (isnan(norm))
        CHECK(kc_all_nan(&k, 1, 0, 1) && (max_norm == 0 || kc_all_nan(&k, 0, 0, 1)));
    else {
        kc_check_close(&k, 1, &norm, 1e-15);
        kc_check_close(&k, 0, &scale, 1e-7);
    }
    kc_release(&k);
}
TEST(clip)
{
    const float x[] = {3, 4}, nan[] = {1, (float)NAN};
    check_clip(x, 2, 1, 5, 1 / (5 + 1e-6));
    check_clip(x, 2, 10, 5, 1);
    check_clip(x, 2, 0, 5, 1);
    check_clip(x, 0, 1, 0, 1);
    check_clip(nan, 2, 1, (double)NAN, 0);
}

TEST(adamw)
{
    enum { N = 1003, STEP = 7 };
    const double lr = 3e-3, wd = 0.1, b1 = 0.9, b2 = 0.95, eps = 1e-8, scale = 0.25;
    double *w = kc_random(MT_F32, N, 1, 1), *m = kc_random(MT_F32, N, 0.1, 2),
           *v = kc_random(MT_F32, N, 0.1, 3);
    double *grad = kc_random(MT_F32, N, 2, 4), nw[N], nm[N], nv[N];
    for (int i = 0; i < N; i++) {
        v[i] = fabs(v[i]);
        double g = grad[i] * scale;
        nm[i] = b1 * m[i] + (1 - b1) * g;
        nv[i] = b2 * v[i] + (1 - b2) * g * g;
        nw[i] = w[i] * (1 - lr * wd) -
                lr / (1 - pow(b1, STEP)) * nm[i] / (sqrt(nv[i]) / sqrt(1 - pow(b2, STEP)) + eps);
    }
    struct kc k = {.op = MT_OP_adamw,
                   .kernel = mt_cpu_adamw,
                   .s = {{.f = lr}, {.f = wd}, {.f = b1}, {.f = b2}, {.f = eps}, {.i = STEP}}};
    kc_arg(&k, MT_F32, N, 0, 0, 0, w);
    kc_arg(&k, MT_F32, N, 0, 0, 0, m);
    kc_arg(&k, MT_F32, N, 0, 0, 0, v);
    kc_arg(&k, MT_F32, N, 0, 0, 0, grad);
    kc_arg(&k, MT_F32, 1, 0, 0, 0, &scale);
    kc_run(&k);
    kc_check_close(&k, 0, nw, 3e-7);
    kc_check_close(&k, 1, nm, 3e-7);
    kc_check_close(&k, 2, nv, 3e-7);
    kc_release(&k);
    double *all[] = {w, m, v, grad};
    for (int i = 0; i < 4; i++) free(all[i]);
}

static void momentum_case(mt_dtype t, bool nesterov, int64_t B, int64_t R, int64_t C, int64_t pad)
{
    const double mu = 0.95, scale = 0.5;
    int64_t n = B * R * C;
    double *m = kc_random(MT_F32, n, 1, 1), *grad = kc_random(MT_F32, n, 1, 2), *u = kc_new(n),
           *nm = kc_new(n);
    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * scale;
        nm[i] = mu * m[i] + (1 - mu) * g;
        u[i] = nesterov ? (1 - mu) * g + mu * nm[i] : nm[i];
    }
    struct kc k = {
        .op = MT_OP_muon_momentum, .kernel = mt_cpu_muon_momentum, .s = {{.f = mu}, {.i = nesterov}}};
    kc_arg(&k, t, B, R, C, 0, NULL);
    kc_arg(&k, MT_F32, B, R, C, pad, m);
    kc_arg(&k, MT_F32, B, R, C, pad, grad);
    kc_arg(&k, MT_F32, 1, 0, 0, 0, &scale);
    kc_run(&k);
    kc_check_close(&k, 0, u, 3e-7);
    kc_check_close(&k, 1, nm, 3e-7);
    kc_release(&k);
    double *all[] = {m, grad, u, nm};
    for (int i = 0; i < 4; i++) free(all[i]);
}
TEST(muon_momentum)
{
    KC_FOR_DTYPES(t)
    {
        momentum_case(t, true, 3, 5, 7, 4);
        momentum_case(t, false, 1, 9, 33, 0);
    }
}

TEST(muon_apply)
{
    enum { B = 3, R = 6, C = 11, N = B * R * C };
    KC_FOR_DTYPES(t)
    {
        double *w = kc_random(MT_F32, N, 1, 1), *x = kc_random(t, N, 1, 2), want[N];
        for (int i = 0; i < N; i++) want[i] = w[i] * (1 - 0.02 * 0.1) - 0.02 * 1.5 * x[i];
        struct kc k = {
            .op = MT_OP_muon_apply, .kernel = mt_cpu_muon_apply, .s = {{.f = 0.02}, {.f = 0.1}, {.f = 1.5}}};
        kc_arg(&k, MT_F32, B, R, C, 5, w);
        kc_arg(&k, t, B, R, C, 0, x);
        kc_run(&k);
        kc_check_close(&k, 0, want, 3e-7);
        kc_release(&k);
        free(w);
        free(x);
    }
}

/* One matrix in double; rows first whichever side is short. */
static void ns_reference(double *x, int64_t r, int64_t c, int64_t steps, int set)
{
    bool tall = r > c;
    int64_t s = tall ? c : r, l = tall ? r : c;
    double *y = kc_new(s * l), *next = kc_new(s * l), *a = kc_new(s * s), *b = kc_new(s * s), norm = 0;
    for (int64_t i = 0; i < r * c; i++) norm += x[i] * x[i];
    norm = fmax(sqrt(norm), 1e-7);
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < l; j++) y[i * l + j] = (tall ? x[j * c + i] : x[i * c + j]) / norm;
    for (int64_t k = 0; k < steps; k++) {
        struct mt_ns_triple co = mt_ns_coeff(set, k);
        for (int64_t i = 0; i < s; i++)
            for (int64_t j = 0; j < s; j++) {
                a[i * s + j] = 0;
                for (int64_t q = 0; q < l; q++) a[i * s + j] += y[i * l + q] * y[j * l + q];
            }
        for (int64_t i = 0; i < s; i++)
            for (int64_t j = 0; j < s; j++) {
                double aa = 0;
                for (int64_t q = 0; q < s; q++) aa += a[i * s + q] * a[q * s + j];
                b[i * s + j] = co.b * a[i * s + j] + co.c * aa;
            }
        for (int64_t i = 0; i < s; i++)
            for (int64_t j = 0; j < l; j++) {
                next[i * l + j] = co.a * y[i * l + j];
                for (int64_t q = 0; q < s; q++) next[i * l + j] += b[i * s + q] * y[q * l + j];
            }
        memcpy(y, next, (size_t)(s * l) * sizeof *y);
    }
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < l; j++) x[tall ? j * c + i : i * c + j] = y[i * l + j];
    double *all[] = {y, next, a, b};
    for (int i = 0; i < 4; i++) free(all[i]);
}

static double rel_error(const double *got, const double *want, int64_t n)
{
    double d = 0, w = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (got[i] - want[i]) * (got[i] - want[i]);
        w += want[i] * want[i];
    }
    return w > 0 ? sqrt(d / w) : sqrt(d);
}

/* Runs the op on x [B, R, C]; the result into got. */
static void ns_run(const struct mt_cpu_dev *dev, mt_dtype t, const double *x, int64_t B, int64_t R, int64_t C,
                   int64_t pad, int64_t steps, int set, double *got)
{
    struct kc k = {.op = MT_OP_newton_schulz,
                   .kernel = mt_cpu_newton_schulz,
                   .dev = dev,
                   .s = {{.i = steps}, {.i = set}}};
    kc_arg(&k, t, B, R, C, pad, x);
    kc_arg(&k, MT_U8, mt_newton_schulz_ws_bytes(B, R, C, t), 0, 0, 0, NULL);
    static const int cuts[] = {1, 3, 64};
    double *first = kc_new(B * R * C);
    for (int i = 0; i < 3; i++) {
        kc_run_parts(&k, cuts[i]);
        kc_check_untouched(&k);
        kc_get(&k, 0, got);
        if (i == 0)
            memcpy(first, got, (size_t)(B * R * C) * sizeof *got);
        else
            CHECK(!memcmp(first, got, (size_t)(B * R * C) * sizeof *got));
    }
    free(first);
    kc_release(&k);
}

/* scale: of the elements; a matrix of the batch each. */
static void ns_case(const struct mt_cpu_dev *dev, mt_dtype t, int64_t B, int64_t R, int64_t C, int64_t pad,
                    int set)
{
    int64_t n = R * C;
    double *x = kc_random(t, B * n, 1e-3, 9), *got = kc_new(B * n);
    ns_run(dev, t, x, B, R, C, pad, 5, set, got);
    for (int64_t i = 0; i < B; i++) {
        ns_reference(x + i * n, R, C, 5, set);
        double e = rel_error(got + i * n, x + i * n, n);
        double tol = t == MT_F32 ? 1e-5
                     : R < 10    ? 4e-2
                                 : 2e-2; /* few elements do not average their rounding */
        if (!CHECK_CLOSE(e, 0, tol))
            printf("  %lld x %lld, set %d, %s\n", (long long)R, (long long)C, set, mt_dtype_name(t));
    }
    free(x);
    free(got);
}
static void ns_shapes(const struct mt_cpu_dev *dev, mt_dtype t)
{
    ns_case(dev, t, 2, 64, 64, 0, MT_NS_SIMPLE);
    ns_case(dev, t, 1, 96, 160, 0, MT_NS_SIMPLE); /* more than one block of rows */
    ns_case(dev, t, 1, 67, 33, 3, MT_NS_SIMPLE);
    ns_case(dev, t, 20, 5, 9, 2, MT_NS_SIMPLE); /* more matrices than workspaces */
    ns_case(dev, t, 1, 1, 20, 0, MT_NS_SIMPLE);
    /* cans maps to the very edge of where its next polynomials contract: the rounding of bf16 leads outside.
     */
    for (int set = 0; set < (t == MT_F32 ? MT_N_NS_SETS : MT_NS_CANS); set++)
        ns_case(dev, t, 1, 24, 70, 0, set);
}
TEST(newton_schulz)
{
    kc_each_isa(ns_shapes);
}

/* A set whose last triple is the exact step converges: all singular values become 1, so X X^T the unit
 * matrix. */
TEST(more_steps_than_triples_repeat_the_last)
{
    enum { R = 12, C = 30 };
    struct mt_cpu_dev dev;
    mt_cpu_dev_init(&dev, mt_isa_best());
    double *x = kc_random(MT_F32, R * C, 1, 3), *got = kc_new(R * C);
    ns_run(&dev, MT_F32, x, 1, R, C, 0, 14, MT_NS_POLAR_EXPRESS, got);
    for (int i = 0; i < R; i++)
        for (int j = 0; j <= i; j++) {
            double s = 0;
            for (int q = 0; q < C; q++) s += got[i * C + q] * got[j * C + q];
            CHECK_CLOSE(s, i == j, 1e-5);
        }
    free(x);
    free(got);
}

TEST(zero_matrix_stays_zero_and_nan_stays_visible)
{
    struct mt_cpu_dev dev;
    mt_cpu_dev_init(&dev, mt_isa_best());
    double x[12] = {0}, got[12];
    ns_run(&dev, MT_F32, x, 1, 3, 4, 0, 5, MT_NS_SIMPLE, got);
    for (int i = 0; i < 12; i++) CHECK(got[i] == 0);
    x[5] = (double)NAN;
    ns_run(&dev, MT_F32, x, 1, 3, 4, 0, 5, MT_NS_SIMPLE, got);
    for (int i = 0; i < 12; i++) CHECK(isnan(got[i]));
}

/* Newton-Schulz in float64 by PyTorch. */
static void ns_golden(const struct golden *g, const struct mt_cpu_dev *dev, const char *name, double tol)
{
    char key[64];
    snprintf(key, sizeof key, "ns/%s/in", name);
    const struct golden_tensor *in = golden_find(g, key);
    snprintf(key, sizeof key, "ns/%s/out", name);
    const struct golden_tensor *out = golden_find(g, key);
    if (!CHECK(in && out)) return;
    double *x = kc_new(in->n), *want = kc_new(in->n), *got = kc_new(in->n);
    for (int64_t i = 0; i < in->n; i++) {
        x[i] = (double)((const float *)in->data)[i];
        want[i] = (double)((const float *)out->data)[i];
    }
    ns_run(dev, MT_F32, x, 1, in->dim[0], in->dim[1], 0, golden_meta_int(g, "ns_steps"), MT_NS_SIMPLE, got);
    if (!CHECK_CLOSE(rel_error(got, want, in->n), 0, tol)) printf("  %s\n", name);
    free(x);
    free(want);
    free(got);
}
/* Momentum and Newton-Schulz in bf16 against torch.optim.Muon's updates, each to its own rounding. */
static void muon_golden(const struct golden *g, const struct mt_cpu_dev *dev, int64_t R, int64_t C)
{
    int64_t n = R * C;
    double *m = kc_new(n), *grad = kc_new(n), *u = kc_new(n), *got = kc_new(n), *want = kc_new(n), one = 1;
    for (int s = 0; s < 2; s++) {
        char key[64];
        snprintf(key, sizeof key, "muon/%lldx%lld/grad%d", (long long)R, (long long)C, s);
        const float *gr = golden_f32(g, key, n);
        snprintf(key, sizeof key, "muon/%lldx%lld/match_rms_adamw/update%d", (long long)R, (long long)C, s);
        const float *up = golden_f32(g, key, n);
        if (!CHECK(gr && up)) break;
        for (int64_t i = 0; i < n; i++) {
            grad[i] = (double)gr[i];
            want[i] = (double)up[i] / (0.2 * sqrt((double)(R > C ? R : C)));
        }
        struct kc k = {
            .op = MT_OP_muon_momentum, .kernel = mt_cpu_muon_momentum, .s = {{.f = 0.95}, {.i = 1}}};
        kc_arg(&k, MT_BF16, 1, R, C, 0, NULL);
        kc_arg(&k, MT_F32, 1, R, C, 0, m);
        kc_arg(&k, MT_F32, 1, R, C, 0, grad);
        kc_arg(&k, MT_F32, 1, 0, 0, 0, &one);
        kc_run(&k);
        kc_get(&k, 0, u);
        kc_get(&k, 1, m);
        kc_release(&k);
        ns_run(dev, MT_BF16, u, 1, R, C, 0, 5, MT_NS_SIMPLE, got);
        CHECK_CLOSE(rel_error(got, want, n), 0, 2e-2);
    }
    double *all[] = {m, grad, u, got, want};
    for (int i = 0; i < 5; i++) free(all[i]);
}
TEST(golden)
{
    static const char *const names[] = {"24x24", "48x16", "16x48", "7x33", "33x7",
                                        "1x20",  "20x1",  "rank1", "tiny", "zero"};
    struct golden g;
    if (!CHECK(golden_open(&g, "muon_ns.safetensors"))) return;
    for (int isa = 0; isa < MT_N_ISAS; isa++) {
        struct mt_cpu_dev dev;
        if (!mt_isa_available((enum mt_isa)isa, NULL)) continue;
        mt_cpu_dev_init(&dev, (enum mt_isa)isa);
        /* What ought to be zero in the matrix of rank 1 is rounding, multiplied by 3.4445 in each of 5 steps.
         */
        for (int i = 0; i < 10; i++) ns_golden(&g, &dev, names[i], strcmp(names[i], "rank1") ? 1e-5 : 1e-4);
        muon_golden(&g, &dev, 32, 32);
        muon_golden(&g, &dev, 48, 16);
        muon_golden(&g, &dev, 16, 48);
    }
    golden_close(&g);
}

int main(void)
{
    mt_cpu_thread_setup();
    RUN(sumsq_is_exact_and_accumulates);
    RUN(clip);
    RUN(adamw);
    RUN(muon_momentum);
    RUN(muon_apply);
    RUN(newton_schulz);
    RUN(more_steps_than_triples_repeat_the_last);
    RUN(zero_matrix_stays_zero_and_nan_stays_visible);
    RUN(golden);
    return DONE();
}
