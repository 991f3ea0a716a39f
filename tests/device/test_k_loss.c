/* Cross entropy, and the sums of steps and ranks. */
#include "kernel_check.h"

struct loss {
    int64_t N, V;
    double *logits, *labels, *loss, *dlogits, valid, weight;
};
static struct loss loss_new(int64_t N, int64_t V, double spread)
{
    struct loss r = {N, V, kc_random(MT_F32, N * V, spread, 1), kc_new(N), kc_new(N), kc_new(N * V), 13, 0.3};
    for (int64_t n = 0; n < N; n++) r.labels[n] = n % 5 == 3 ? -1 : (double)(n * 7919 % V);
    if (N > 0) r.labels[0] = (double)V - 1;
    return r;
}
static void loss_free(struct loss *r)
{
    free(r->logits), free(r->labels), free(r->loss), free(r->dlogits);
}
static void loss_reference(struct loss *r)
{
    for (int64_t n = 0; n < r->N; n++) {
        const double *x = r->logits + n * r->V;
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < r->V; i++) top = fmax(top, x[i]);
        for (int64_t i = 0; i < r->V; i++) sum += exp(x[i] - top);
        bool counts = r->labels[n] >= 0;
        r->loss[n] = counts ? top + log(sum) - x[(int64_t)r->labels[n]] : 0;
        for (int64_t i = 0; i < r->V; i++)
            r->dlogits[n * r->V + i] =
                counts ? r->weight * (exp(x[i] - top) / sum - ((double)i == r->labels[n])) / r->valid : 0;
    }
}
static double loss_value(void *ctx)
{
    struct loss *r = ctx;
    double v = 0;
    loss_reference(r);
    for (int64_t n = 0; n < r->N; n++) v += r->weight * r->loss[n] / r->valid;
    return v;
}
TEST(reference_is_a_gradient)
{
    struct loss r = loss_new(6, 9, 3);
    loss_reference(&r);
    double *grad = kc_new(54);
    memcpy(grad, r.dlogits, 54 * 8);
    kc_check_gradient(loss_value, &r, r.logits, grad, 54);
    free(grad);
    loss_free(&r);
}

static struct kc run_xent(mt_dtype t, const struct loss *r, int64_t pad)
{
    struct kc k = {.op = MT_OP_xent, .kernel = mt_cpu_xent, .s = {{.f = r->weight}}};
    kc_arg(&k, t, r->N, r->V, 0, pad, NULL);
    kc_arg(&k, MT_F32, r->N, 0, 0, 0, NULL);
    kc_arg(&k, MT_F32, r->N, r->V, 0, pad + 1, r->logits);
    kc_arg(&k, MT_I32, r->N, 0, 0, 0, r->labels);
    kc_arg(&k, MT_I64, 1, 0, 0, 0, &r->valid);
    kc_run(&k);
    return k;
}
static struct kc run_eval(const struct loss *r, int64_t pad)
{
    struct kc k = {.op = MT_OP_xent_eval, .kernel = mt_cpu_xent_eval};
    kc_arg(&k, MT_F32, r->N, 0, 0, 0, NULL);
    kc_arg(&k, MT_F32, r->N, r->V, 0, pad, r->logits);
    kc_arg(&k, MT_I32, r->N, 0, 0, 0, r->labels);
    kc_run(&k);
    return k;
}
static const int64_t sizes[][2] = {{1, 1}, {11, 37}, {6, 1543}, {3, 40000}, {0, 8}};

TEST(cross_entropy)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 5; s++) {
            struct loss r = loss_new(sizes[s][0], sizes[s][1], 5);
            loss_reference(&r);
            struct kc k = run_xent(t, &r, s);
            kc_check_scaled(&k, 1, r.loss, 2e-7, 1e-3);
            for (int64_t i = 0; i < r.N * r.V; i++) r.dlogits[i] *= r.valid;
            for (int64_t i = 0; i < r.N * r.V;
                 i++) /* relative to probability 1; small ones to 2e-6 of themselves */
                CHECK_CLOSE(kc_load(kc_at(&k, 0, i), t) * r.valid, r.dlogits[i],
                            1.5e-7 * (i % r.V == (int64_t)r.labels[i / r.V]) +
                                (t == MT_F32 ? 2e-6 : 0x1.02p-8) * fabs(r.dlogits[i]));
            kc_release(&k);
            k = run_eval(&r, s);
            kc_check_scaled(&k, 0, r.loss, 2e-7, 1e-3);
            kc_release(&k);
            loss_free(&r);
        }
    }
}
/* Large logits in every place of a row: the running maximum must carry over. */
TEST(far_apart)
{
    for (int64_t at = 0; at < 1600; at += 399) {
        struct loss r = loss_new(2, 1600, 1);
        for (int64_t i = 0; i < 1600; i++)
            r.logits[i] = kc_round(MT_F32, r.logits[i] * 50 + (double)(i * (at & 1 ? 1 : -1)));
        r.logits[at] = 3000;
        r.logits[1600 + at] = -INFINITY;
        r.labels[0] = 1;
        loss_reference(&r);
        struct kc k = run_xent(MT_F32, &r, 0);
        kc_check_close(&k, 1, r.loss, 2e-7);
        kc_check_scaled(&k, 0, r.dlogits, 1e-6, 1e-3);
        kc_release(&k);
        loss_free(&r);
    }
}
TEST(uncounted_rows_are_not_even_read)
{
    struct loss r = loss_new(5, 20, 1);
    for (int i = 0; i < 20; i++) r.logits[3 * 20 + i] = NAN; /* row 3 has label -1 */
    KC_FOR_DTYPES(t)
    {
        struct kc k = run_xent(t, &r, 0);
        CHECK(kc_load(kc_at(&k, 1, 3), MT_F32) == 0 && kc_no_nan(&k, 0, 0, 100) && kc_no_nan(&k, 1, 0, 5));
        for (int i = 60; i < 80; i++) CHECK(kc_load(kc_at(&k, 0, i), t) == 0);
        kc_release(&k);
    }
    loss_free(&r);
}
TEST(nan_shows)
{
    for (int64_t at = 0; at < 1500; at += 499) {
        struct loss r = loss_new(3, 1500, 1);
        r.logits[1500 + at] = NAN;
        struct kc k = run_xent(MT_BF16, &r, 0);
        CHECK(kc_all_nan(&k, 0, 1500, 1500) && kc_all_nan(&k, 1, 1, 1) && kc_no_nan(&k, 0, 0, 1500) &&
              kc_no_nan(&k, 1, 2, 1));
        kc_release(&k);
        k = run_eval(&r, 0);
        CHECK(kc_all_nan(&k, 0, 1, 1) && kc_no_nan(&k, 0, 0, 1) && kc_no_nan(&k, 0, 2, 1));
        kc_release(&k);
        loss_free(&r);
    }
}

TEST(valid_labels)
{
    double labels[9] = {-1, 0, 5, -100, 3, 0, -1, 7, 2}, n = 5e12;
    for (int64_t count = 0; count < 10; count++) {
        struct kc k = {.op = MT_OP_count_valid, .kernel = mt_cpu_count_valid};
        double want = n;
        for (int64_t i = 0; i < count; i++) want += labels[i] >= 0;
        kc_arg(&k, MT_I64, 1, 0, 0, 0, &n);
        kc_arg(&k, MT_I32, count, 0, 0, 0, labels);
        kc_run(&k);
        kc_check_equal(&k, 0, &want);
        kc_release(&k);
    }
}
TEST(loss_sum)
{
    enum { N = 5000 };
    double *loss = kc_random(MT_F32, N, 5, 2), acc = 0.125, want = acc;
    for (int i = 0; i < N; i++) want += loss[i];
    struct kc k = {.op = MT_OP_sum_loss, .kernel = mt_cpu_sum_loss};
    kc_arg(&k, MT_F64, 1, 0, 0, 0, &acc);
    kc_arg(&k, MT_F32, N, 0, 0, 0, loss);
    kc_run(&k);
    kc_check_close(&k, 0, &want, 1e-12);
    kc_release(&k);
    free(loss);
}
TEST(rank_sums)
{
    const double f[6] = {0.1, 1, -7e10, 2, 3, 4}, fsum[2] = {0.1 + -7e10 + 3, 7};
    struct kc k = {.op = MT_OP_sum_parts_f64, .kernel = mt_cpu_sum_parts_f64};
    kc_arg(&k, MT_F64, 2, 0, 0, 0, NULL);
    kc_arg(&k, MT_F64, 3, 2, 0, 1, f);
    kc_run(&k);
    kc_check_equal(&k, 0, fsum);
    kc_release(&k);

    double parts[4 * 70], sum[70] = {0};
    for (int i = 0; i < 280; i++) parts[i] = (i % 2 ? 1 : -1) * 1e9 * i, sum[i % 70] += parts[i];
    struct kc w = {.op = MT_OP_sum_parts_i64, .kernel = mt_cpu_sum_parts_i64};
    kc_arg(&w, MT_I64, 70, 0, 0, 0, NULL);
    kc_arg(&w, MT_I64, 4, 70, 0, 3, parts);
    kc_run(&w);
    kc_check_equal(&w, 0, sum);
    kc_release(&w);
}
TEST(gradient_pieces)
{
    const int64_t shapes[][2] = {{1, 1}, {4, 3000}, {7, 513}};
    for (int s = 0; s < 3; s++) {
        int64_t R = shapes[s][0], N = shapes[s][1];
        double *acc = kc_random(MT_F32, N, 1, 1), *staging = kc_random(MT_F32, R * N, 1, 2);
        struct kc k = {.op = MT_OP_sum_pieces, .kernel = mt_cpu_sum_pieces};
        kc_arg(&k, MT_F32, N, 0, 0, 0, acc);
        kc_arg(&k, MT_F32, R, N, 0, 5, staging);
        kc_run(&k);
        for (int64_t i = 0; i < N; i++) { /* rank after rank in f32: exactly */
            float sum = 0;
            for (int64_t r = 0; r < R; r++) sum += (float)staging[r * N + i];
            acc[i] = (double)((float)acc[i] + sum);
        }
        kc_check_equal(&k, 0, acc);
        kc_release(&k);
        free(acc), free(staging);
    }
}

int main(void)
{
    RUN(reference_is_a_gradient);
    RUN(cross_entropy);
    RUN(far_apart);
    RUN(uncounted_rows_are_not_even_read);
    RUN(nan_shows);
    RUN(valid_labels);
    RUN(loss_sum);
    RUN(rank_sums);
    RUN(gradient_pieces);
    return DONE();
}
