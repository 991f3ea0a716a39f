/* Products of routed rows with their experts, in one dispatch round and in several. */
#include "packed_check.h"

enum { E = 6, O = 40, I = 24, M = 5 + 0 + 100 + 33 + 0 + 64 };
static const double COUNTS[E] = {5, 0, 100, 33, 0, 64}; /* two experts have nothing */
/* Cuts inside experts 2 and 5 at multiples of 32 of their rows; and one between experts. */
static const int64_t CUTS[] = {0, 5 + 32, 5 + 100, 5 + 100 + 33 + 32, M};
enum { ROUNDS = 4 };

struct grp {
    double *x, *dy, *w, *dw; /* [M, I], [M, O], [E, O, I] */
};
static struct grp grp_new(mt_dtype t)
{
    return (struct grp){kc_random(t, M * I, 1, 1), kc_random(t, M * O, 1, 2), kc_random(t, E * O * I, 1, 3),
                        kc_random(MT_F32, E * O * I, 1, 4)};
}
static void grp_free(struct grp *r)
{
    double *all[] = {r->x, r->dy, r->w, r->dw};
    for (int i = 0; i < 4; i++) free(all[i]);
}

/* y = x w^T by expert, dx = dy w by expert */
static void reference(const struct grp *r, double *y, double *dx, double *dw)
{
    memcpy(dw, r->dw, E * O * I * sizeof *dw);
    for (int64_t e = 0, m = 0; e < E; e++)
        for (int64_t end = m + (int64_t)COUNTS[e]; m < end; m++)
            for (int64_t o = 0; o < O; o++) {
                y[m * O + o] = 0;
                for (int64_t i = 0; i < I; i++) {
                    double w = r->w[(e * O + o) * I + i];
                    if (o == 0) dx[m * I + i] = 0;
                    y[m * O + o] += r->x[m * I + i] * w;
                    dx[m * I + i] += r->dy[m * O + o] * w;
                    dw[(e * O + o) * I + i] += r->dy[m * O + o] * r->x[m * I + i];
                }
            }
}

/* The part of an output outside rows [first, first + rows) keeps the bytes it had. */
static bool kept(const struct kc *k, int64_t first, int64_t rows, int64_t width)
{
    int64_t el = mt_dtype_bytes((mt_dtype)k->v[0].dtype);
    for (int64_t i = 0, n = mt_view_count(k->v[0]); i < n; i++) {
        int64_t row = i / width, at = KC_GUARD + kc_offset(&k->v[0], i);
        if ((row < first || row >= first + rows) && memcmp(k->b[0].mem + at, k->b[0].start + at, (size_t)el))
            return false;
    }
    return true;
}

/* One direction, forward or dX, bounded or into the full buffer, round by round; want [M, out]. */
static void check_rounds(const struct mt_cpu_dev *dev, mt_dtype t, const struct grp *r, bool forward,
                         bool into, const double *want)
{
    static const enum mt_op ops[2][2] = {{MT_OP_grouped_bwdx, MT_OP_grouped_bwdx_into},
                                         {MT_OP_grouped_fwd, MT_OP_grouped_fwd_into}};
    static mt_kernel *const kernels[2][2] = {{mt_cpu_grouped_bwdx, mt_cpu_grouped_bwdx_into},
                                             {mt_cpu_grouped_fwd, mt_cpu_grouped_fwd_into}};
    int64_t in = forward ? I : O, out = forward ? O : I;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t first = CUTS[i], rows = CUTS[i + 1] - first, cap = rows + 7;
        double *x = kc_new(cap * in), *got = kc_new((into ? M : cap) * out), d = 0, w = 0;
        memcpy(x, (forward ? r->x : r->dy) + first * in, (size_t)(rows * in) * sizeof *x);
        for (int64_t j = rows * in; j < cap * in; j++) x[j] = (double)NAN; /* unused rows are garbage */
        struct kc k = {.op = ops[forward][into],
                       .kernel = kernels[forward][into],
                       .dev = dev,
                       .s = {{.i = first}, {.i = rows}}};
        kc_arg(&k, t, into ? M : cap, out, 0, 1, NULL);
        kc_arg(&k, t, cap, in, 0, 3, x);
        kc_packed(&k, dev->gemm[t], forward ? MT_PACKED_NT : MT_PACKED_NN, E, O, I, 64, r->w);
        kc_arg(&k, MT_I32, E, 0, 0, 0, COUNTS);
        kc_run(&k);
        kc_get(&k, 0, got);
        int64_t at = into ? first : 0;
        CHECK(kept(&k, at, rows, out));
        for (int64_t j = 0; j < rows * out; j++) {
            double e = got[at * out + j] - want[first * out + j];
            d += e * e;
            w += want[first * out + j] * want[first * out + j];
        }
        CHECK_CLOSE(sqrt(d / w), 0, t == MT_F32 ? 1e-6 : 3e-3);
        kc_release(&k);
        free(x);
        free(got);
    }
}

/* dw over rounds [CUTS[from], CUTS[to]) by CUTS; the f32 result of each call is the input of the next. */
static void run_dw(const struct mt_cpu_dev *dev, mt_dtype t, const struct grp *r, int step, double *dw)
{
    memcpy(dw, r->dw, E * O * I * sizeof *dw);
    for (int i = 0; i < ROUNDS; i += step) {
        int64_t first = CUTS[i], rows = CUTS[i + step] - first;
        struct kc k = {.op = MT_OP_grouped_bwdw,
                       .kernel = mt_cpu_grouped_bwdw,
                       .dev = dev,
                       .s = {{.i = first}, {.i = rows}}};
        kc_arg(&k, MT_F32, E, O, I, 3, dw);
        kc_arg(&k, t, rows, O, 0, 0, r->dy + first * O);
        kc_arg(&k, t, rows, I, 0, 2, r->x + first * I);
        kc_arg(&k, MT_I32, E, 0, 0, 0, COUNTS);
        kc_run(&k);
        kc_get(&k, 0, dw);
        kc_release(&k);
    }
}

static void rounds(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct grp r = grp_new(t);
    double *y = kc_new(M * O), *dx = kc_new(M * I), *dw = kc_new(E * O * I), *one = kc_new(E * O * I),
           *many = kc_new(E * O * I);
    reference(&r, y, dx, dw);
    for (int into = 0; into < 2; into++) {
        check_rounds(dev, t, &r, true, into, y);
        check_rounds(dev, t, &r, false, into, dx);
    }
    run_dw(dev, t, &r, ROUNDS, one);
    run_dw(dev, t, &r, 1, many);
    for (int64_t i = 0; i < E * O * I; i++)
        if (!CHECK_CLOSE(one[i], dw[i], 2e-5)) break;
    CHECK(!memcmp(one, many, E * O * I * sizeof *one));
    CHECK(!memcmp(one + O * I, r.dw + O * I,
                  O * I * sizeof *one)); /* expert 1 has no rows: its gradient stays */
    double *all[] = {y, dx, dw, one, many};
    for (int i = 0; i < 5; i++) free(all[i]);
    grp_free(&r);
}
TEST(rounds)
{
    kc_each_isa(rounds);
}

/* A round without rows writes nothing. */
static void empty(const struct mt_cpu_dev *dev, mt_dtype t)
{
    struct grp r = grp_new(t);
    struct kc k = {
        .op = MT_OP_grouped_fwd, .kernel = mt_cpu_grouped_fwd, .dev = dev, .s = {{.i = 37}, {.i = 0}}};
    kc_arg(&k, t, 4, O, 0, 0, NULL);
    kc_arg(&k, t, 4, I, 0, 0, r.x);
    kc_packed(&k, dev->gemm[t], MT_PACKED_NT, E, O, I, 0, r.w);
    kc_arg(&k, MT_I32, E, 0, 0, 0, COUNTS);
    kc_run(&k);
    CHECK(kept(&k, 0, 0, O));
    kc_release(&k);
    grp_free(&r);
}
TEST(round_without_rows)
{
    kc_each_isa(empty);
}

int main(void)
{
    mt_cpu_thread_setup();
    RUN(rounds);
    RUN(round_without_rows);
    return DONE();
}
