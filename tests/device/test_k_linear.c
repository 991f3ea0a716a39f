/* Dense products with packed weights, and the packing itself. */
#include "packed_check.h"

struct lin {
    int64_t N, O, I;
    double *x, *w, *bias, *add_y, *add_x, *dy, *dw;
};
static struct lin lin_new(mt_dtype t, int64_t N, int64_t O, int64_t I)
{
    return (struct lin){N,
                        O,
                        I,
                        kc_random(t, N * I, 1, 1),
                        kc_random(t, O * I, 1, 2),
                        kc_random(MT_F32, O, 1, 3),
                        kc_random(t, N * O, 1, 4),
                        kc_random(t, N * I, 1, 5),
                        kc_random(t, N * O, 1, 6),
                        kc_random(MT_F32, O * I, 1, 7)};
}
static void lin_free(struct lin *r)
{
    double *all[] = {r->x, r->w, r->bias, r->add_y, r->add_x, r->dy, r->dw};
    for (int i = 0; i < 7; i++) free(all[i]);
}

/* x [N, I] times w [O, I], and so on, in double */
static void ref_y(const struct lin *r, bool extra, double *y)
{
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t o = 0; o < r->O; o++) {
            double s = extra ? r->bias[o] + r->add_y[n * r->O + o] : 0;
            for (int64_t i = 0; i < r->I; i++) s += r->x[n * r->I + i] * r->w[o * r->I + i];
            y[n * r->O + o] = s;
        }
}
static void ref_dx(const struct lin *r, bool extra, double *dx)
{
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t i = 0; i < r->I; i++) {
            double s = extra ? r->add_x[n * r->I + i] : 0;
            for (int64_t o = 0; o < r->O; o++) s += r->dy[n * r->O + o] * r->w[o * r->I + i];
            dx[n * r->I + i] = s;
        }
}
static void ref_dw(const struct lin *r, double *dw)
{
    for (int64_t o = 0; o < r->O; o++)
        for (int64_t i = 0; i < r->I; i++) {
            double s = r->dw[o * r->I + i];
            for (int64_t n = 0; n < r->N; n++) s += r->dy[n * r->O + o] * r->x[n * r->I + i];
            dw[o * r->I + i] = s;
        }
}

/* y with and without the optional terms, as T and, for logits, as f32 */
static void check_y(const struct mt_cpu_dev *dev, mt_dtype t, const struct lin *r, bool extra, bool logits,
                    int64_t pad)
{
    struct kc k = {.op = logits ? MT_OP_logits_fwd : MT_OP_linear_fwd,
                   .kernel = logits ? mt_cpu_logits_fwd : mt_cpu_linear_fwd,
                   .dev = dev};
    double *want = kc_new(r->N * r->O);
    ref_y(r, extra, want);
    kc_arg(&k, logits ? MT_F32 : t, r->N, r->O, 0, pad, NULL);
    kc_arg(&k, t, r->N, r->I, 0, pad, r->x);
    kc_packed(&k, dev->gemm[t], MT_PACKED_NT, 0, r->O, r->I, 0, r->w);
    if (!logits && extra) {
        kc_arg(&k, MT_F32, r->O, 0, 0, 0, r->bias);
        kc_arg(&k, t, r->N, r->O, 0, pad + 1, r->add_y);
    } else if (!logits) {
        kc_none(&k);
        kc_none(&k);
    }
    kc_run(&k);
    kc_check_close(&k, 0, want, 2e-6);
    kc_release(&k);
    free(want);
}
static void check_dx(const struct mt_cpu_dev *dev, mt_dtype t, const struct lin *r, bool extra, int64_t pad)
{
    struct kc k = {.op = MT_OP_linear_bwdx, .kernel = mt_cpu_linear_bwdx, .dev = dev};
    double *want = kc_new(r->N * r->I);
    ref_dx(r, extra, want);
    kc_arg(&k, t, r->N, r->I, 0, pad, NULL);
    kc_arg(&k, t, r->N, r->O, 0, pad, r->dy);
    kc_packed(&k, dev->gemm[t], MT_PACKED_NN, 0, r->O, r->I, 0, r->w);
    if (extra)
        kc_arg(&k, t, r->N, r->I, 0, pad + 1, r->add_x);
    else
        kc_none(&k);
    kc_run(&k);
    kc_check_close(&k, 0, want, 2e-6);
    kc_release(&k);
    free(want);
}
static void check_dw(const struct mt_cpu_dev *dev, mt_dtype t, const struct lin *r, int64_t pad)
{
    struct kc k = {.op = MT_OP_linear_bwdw, .kernel = mt_cpu_linear_bwdw, .dev = dev};
    double *want = kc_new(r->O * r->I);
    ref_dw(r, want);
    kc_arg(&k, MT_F32, r->O, r->I, 0, pad, r->dw);
    kc_arg(&k, t, r->N, r->O, 0, pad, r->dy);
    kc_arg(&k, t, r->N, r->I, 0, pad, r->x);
    kc_run(&k);
    kc_check_close(&k, 0, want, 2e-6);
    kc_release(&k);
    free(want);
}

static void products(const struct mt_cpu_dev *dev, mt_dtype t)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {5, 33, 7}, {67, 96, 64}, {40, 70, 129}};
    for (int i = 0; i < 4; i++) {
        struct lin r = lin_new(t, sizes[i][0], sizes[i][1], sizes[i][2]);
        for (int extra = 0; extra < 2; extra++) {
            check_y(dev, t, &r, extra, false, 3 * extra);
            check_dx(dev, t, &r, extra, 3 * extra);
        }
        check_y(dev, t, &r, false, true, 5);
        check_dw(dev, t, &r, i);
        lin_free(&r);
    }
}
TEST(products)
{
    kc_each_isa(products);
}

static void no_rows(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct lin r = lin_new(t, 0, 8, 4);
    struct kc k = {.op = MT_OP_linear_bwdw, .kernel = mt_cpu_linear_bwdw, .dev = dev};
    kc_arg(&k, MT_F32, r.O, r.I, 0, 0, r.dw);
    kc_arg(&k, t, 0, r.O, 0, 0, r.dy);
    kc_arg(&k, t, 0, r.I, 0, 0, r.x);
    kc_run(&k);
    kc_check_equal(&k, 0, r.dw);
    kc_release(&k);
    lin_free(&r);
}
TEST(no_rows_leave_the_gradient_alone)
{
    kc_each_isa(no_rows);
}

/* A NaN in one row of x spoils that row of y and no other. */
static void nan_row(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct lin r = lin_new(t, 6, 40, 12);
    r.x[2 * 12 + 5] = (double)NAN;
    struct kc k = {.op = MT_OP_linear_fwd, .kernel = mt_cpu_linear_fwd, .dev = dev};
    kc_arg(&k, t, r.N, r.O, 0, 0, NULL);
    kc_arg(&k, t, r.N, r.I, 0, 0, r.x);
    kc_packed(&k, dev->gemm[t], MT_PACKED_NT, 0, r.O, r.I, 0, r.w);
    kc_none(&k);
    kc_none(&k);
    kc_run(&k);
    CHECK(kc_no_nan(&k, 0, 0, 2 * 40));
    CHECK(kc_all_nan(&k, 0, 2 * 40, 40));
    CHECK(kc_no_nan(&k, 0, 3 * 40, 3 * 40));
    kc_release(&k);
    lin_free(&r);
}
TEST(nan_stays_in_its_row)
{
    kc_each_isa(nan_row);
}

/* Runs a packing op and compares all its bytes, with the gaps between the matrices, with the same argument
 * made by hand. */
static void check_form(struct kc *k, const struct kc *want)
{
    static const int cuts[] = {1, 3, 64};
    for (int i = 0; i < 3; i++) {
        kc_run_parts(k, cuts[i]);
        CHECK(k->b[0].bytes == want->b[0].bytes);
        CHECK(!memcmp(k->b[0].mem, want->b[0].start, (size_t)(k->b[0].bytes + 2 * KC_GUARD)));
        CHECK(!memcmp(k->b[1].mem, k->b[1].start, (size_t)(k->b[1].bytes + 2 * KC_GUARD)));
    }
}
static void forms_of(const struct mt_cpu_dev *dev, mt_dtype t, int64_t E, int64_t O, int64_t I)
{
    const struct mt_gemm *g = dev->gemm[t];
    double *w = kc_random(MT_F32, (E ? E : 1) * O * I, 1, 8); /* masters, not yet rounded to T */
    struct kc pack = {.op = MT_OP_weight_pack, .kernel = mt_cpu_weight_pack, .dev = dev}, nt = pack,
              nn = pack;
    kc_packed(&nt, g, MT_PACKED_NT, E, O, I, 128, w);
    kc_packed(&nn, g, MT_PACKED_NN, E, O, I, 64, w);
    kc_packed(&pack, g, MT_PACKED_NT, E, O, I, 128, NULL);
    kc_arg(&pack, MT_F32, E ? E : O, E ? O : I, E ? I : 0, 3, w);
    check_form(&pack, &nt);
    struct kc turn = {.op = MT_OP_weight_turn, .kernel = mt_cpu_weight_turn, .dev = dev};
    kc_packed(&turn, g, MT_PACKED_NN, E, O, I, 64, NULL);
    kc_packed(&turn, g, MT_PACKED_NT, E, O, I, 128, w);
    check_form(&turn, &nn);
    kc_release(&pack);
    kc_release(&turn);
    kc_release(&nt);
    kc_release(&nn);
    free(w);
}
static void forms(const struct mt_cpu_dev *dev, mt_dtype t)
{
    forms_of(dev, t, 0, 70, 33);
    forms_of(dev, t, 5, 33, 20);
    forms_of(dev, t, 2, 100, 3);
    double *w = kc_random(t, 45 * 21, 1, 8);
    struct kc form = {.op = MT_OP_weight_form, .kernel = mt_cpu_weight_form, .dev = dev}, nt = form;
    kc_packed(&nt, dev->gemm[t], MT_PACKED_NT, 0, 45, 21, 0, w);
    kc_packed(&form, dev->gemm[t], MT_PACKED_NT, 0, 45, 21, 0, NULL);
    kc_arg(&form, t, 45, 21, 0, 2, w);
    check_form(&form, &nt);
    kc_release(&form);
    kc_release(&nt);
    free(w);
}
TEST(working_forms)
{
    kc_each_isa(forms);
}

int main(void)
{
    mt_cpu_thread_setup();
    RUN(products);
    RUN(no_rows_leave_the_gradient_alone);
    RUN(nan_stays_in_its_row);
    RUN(working_forms);
    return DONE();
}
