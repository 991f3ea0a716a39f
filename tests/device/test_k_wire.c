/* What travels narrower than it is: gradients as bf16, packed weights as fp8. */
#include "base/fp8.h"
#include "device/fp8_form.h"
#include "fp8.h"
#include "packed_check.h"

TEST(codes)
{
    for (int c = 0; c < 256; c++) {
        double v = (double)mt_f32_of_fp8((mt_fp8)c), want = fp8_value(c);
        CHECK(isnan(want) ? isnan(v) : v == want && !signbit(v) == !signbit(want));
        CHECK_INT(mt_fp8_of((float)v), c);
    }
    CHECK(mt_f32_of_fp8(0x7e) == MT_FP8_MAX && mt_f32_of_fp8(1) == 0x1p-9f);
}

static void same_code(float x)
{
    int got = mt_fp8_of(x), want = fp8_nearest((double)x);
    if (!CHECK(got == want)) printf("  %.9g: code %d, want %d\n", (double)x, got, want);
}
TEST(rounding)
{
    for (int c = 0; c < 0x7e; c++) { /* halfway between two codes, and just off it */
        float half = (float)((fp8_value(c) + fp8_value(c + 1)) / 2);
        const float x[] = {half, nextafterf(half, 0), nextafterf(half, 1e9f)};
        for (int i = 0; i < 3; i++) {
            same_code(x[i]);
            same_code(-x[i]);
        }
    }
    for (uint32_t h = 0; h < 65536; h++) same_code(mt_f32_of((mt_bf16)h)); /* every bf16 */
    uint64_t seed = 5;
    for (int i = 0; i < 200000; i++) { /* any float */
        kc_rand(&seed);
        uint32_t u = (uint32_t)(seed >> 32);
        float x;
        memcpy(&x, &u, 4);
        same_code(x);
    }
}
TEST(ends)
{
    const float large[] = {448, 463.9f, 464, 465, 1e30f, INFINITY};
    for (int i = 0; i < 6; i++) CHECK(mt_fp8_of(large[i]) == 0x7e && mt_fp8_of(-large[i]) == 0xfe);
    const float small[] = {0, 0x1p-10f, 0x1p-140f};
    for (int i = 0; i < 3; i++) CHECK(mt_fp8_of(small[i]) == 0 && mt_fp8_of(-small[i]) == 0x80);
    CHECK(mt_fp8_of(NAN) == 0x7f && mt_fp8_of(-NAN) == 0xff);
}

/* Bands tile the form, and one band more costs the same wherever it is. */
TEST(form)
{
    const int64_t shape[][2] = {{32, 2}, {128, 128}, {160, 130}, {384, 257}, {96, 4096}};
    for (int i = 0; i < 5; i++) {
        struct mt_fp8_form f = mt_fp8_form_of(shape[i][0], shape[i][1]);
        int64_t rows = 0, bytes = 0;
        for (int64_t b = 0; b < f.bands; b++) {
            CHECK(b + 1 == f.bands || mt_fp8_band_bytes(&f, b) == f.band_bytes);
            CHECK(mt_fp8_band_bytes(&f, b) >= 4 * f.tiles + mt_fp8_band_rows(&f, b) * f.k);
            rows += mt_fp8_band_rows(&f, b);
            bytes += mt_fp8_band_bytes(&f, b);
        }
        CHECK(rows == f.rows && bytes == f.bytes && f.tiles * MT_FP8_TILE >= f.k &&
              f.bytes % MT_FP8_ALIGN == 0);
    }
    CHECK_INT(mt_fp8_form_of(256, 256).bytes, 256 * 256 + 2 * 64);
}

/* pack -> unpack of [E, O, I] (E 0: [O, I]) over the wire; *wire and *back are left to the caller. */
static void round_trip(const struct mt_cpu_dev *dev, mt_dtype t, int64_t E, int64_t O, int64_t I,
                       const double *w, struct kc *wire, struct kc *back)
{
    const struct mt_gemm *g = dev->gemm[t];
    int64_t W = mt_fp8_form_of((O + 31) / 32 * 32, (I + g->k_align - 1) / g->k_align * g->k_align).bytes;
    *wire = (struct kc){.op = MT_OP_fp8_pack, .kernel = mt_cpu_fp8_pack, .dev = dev};
    *back = (struct kc){.op = MT_OP_fp8_unpack, .kernel = mt_cpu_fp8_unpack, .dev = dev};
    kc_arg(wire, MT_U8, E ? E : W, E ? W : 0, 0, 64, NULL);
    kc_packed(wire, g, MT_PACKED_NT, E, O, I, 128, w);
    kc_run(wire);
    kc_packed(back, g, MT_PACKED_NT, E, O, I, 64, NULL);
    kc_arg(back, MT_U8, E ? E : W, E ? W : 0, 0, 64, NULL);
    memcpy(back->b[1].start, wire->b[0].mem, (size_t)(back->b[1].bytes + 2 * KC_GUARD));
    for (int cut = 1; cut < 65; cut += 21) {
        kc_run_parts(back, cut);
        CHECK(!memcmp(back->b[1].mem, back->b[1].start, (size_t)(back->b[1].bytes + 2 * KC_GUARD)));
    }
}

/* All bytes of what came back, padding and gaps too, are those of the reference, packed. */
static void check_shape(const struct mt_cpu_dev *dev, mt_dtype t, int64_t E, int64_t O, int64_t I)
{
    int64_t n = E ? E : 1;
    double *w = kc_random(t, n * O * I, 0.1, 3), *want = kc_new(n * O * I);
    for (int64_t i = 0; i < n * O * I; i++)
        w[i] = kc_round(t, w[i] * exp(3 * sin((double)i))); /* tiles of many sizes */
    for (int64_t i = 0; i < n * O * I && i < 128; i++) w[i] = i % 3 ? 0 : -0.0;
    for (int64_t e = 0; e < n; e++) fp8_reference(t, O, I, w + e * O * I, want + e * O * I);
    struct kc wire, back, ref = {.op = MT_OP_fp8_unpack, .dev = dev};
    round_trip(dev, t, E, O, I, w, &wire, &back);
    kc_packed(&ref, dev->gemm[t], MT_PACKED_NT, E, O, I, 64, want);
    CHECK(!memcmp(back.b[0].mem, ref.b[0].start, (size_t)(ref.b[0].bytes + 2 * KC_GUARD)));
    kc_release(&wire);
    kc_release(&back);
    kc_release(&ref);
    free(w);
    free(want);
}
static void shapes(const struct mt_cpu_dev *dev, mt_dtype t)
{
    check_shape(dev, t, 0, 128, 128);
    check_shape(dev, t, 0, 300, 261);
    check_shape(dev, t, 3, 40, 17);
    check_shape(dev, t, 2, 160, 130);
    check_shape(dev, t, 1, 1, 1);
}
TEST(weights_over_fp8)
{
    kc_each_isa(shapes);
}

/* NaN stays where it is and takes no neighbour with it; an infinity takes its tile; zeros and what is next
 * to them are 0. */
static void corners(const struct mt_cpu_dev *dev, mt_dtype t)
{
    enum { O = 130, I = 257 };
    double *w = kc_random(t, O * I, 1, 9);
    float *got = calloc(O * I, sizeof *got);
    mt_bf16 *half = calloc(O * I, sizeof *half);
    w[3 * I + 5] = (double)NAN;
    w[7 * I + 128] = (double)INFINITY;
    for (int64_t i = 0; i < I; i++) w[128 * I + i] = 0, w[129 * I + i] = 0x1p-120;
    struct kc wire, back;
    round_trip(dev, t, 0, O, I, w, &wire, &back);
    dev->gemm[t]->unpack_nt(t == MT_F32 ? (void *)got : (void *)half, back.b[0].mem + KC_GUARD, I, O, I, 0,
                            1);
    for (int64_t i = 0; i < O * I && t == MT_BF16; i++) got[i] = mt_f32_of(half[i]);
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++) {
            bool nan = (o == 3 && i == 5) || (o < 128 && i >= 128 && i < 256);
            if (!CHECK(nan ? isnan(got[o * I + i])
                       : o < 128
                           ? fabs((double)got[o * I + i] - w[o * I + i]) <= 0.07 * fabs(w[o * I + i]) + 2e-3
                           : got[o * I + i] == 0))
                return;
        }
    kc_release(&wire);
    kc_release(&back);
    free(w);
    free(got);
    free(half);
}
TEST(corner_values)
{
    kc_each_isa(corners);
}

/* The scale of a tile is its own: another tile's largest element changes nothing in it. */
static void tiles_apart(const struct mt_cpu_dev *dev, mt_dtype t)
{
    enum { O = 256, I = 256 };
    double *w = kc_random(t, O * I, 1, 9);
    struct kc a, b, back;
    round_trip(dev, t, 0, O, I, w, &a, &back);
    kc_release(&back);
    w[200 * I + 3] = 1e6;
    round_trip(dev, t, 0, O, I, w, &b, &back);
    struct mt_fp8_form f = mt_fp8_form_of(O, I);
    const unsigned char *x = a.b[0].mem + KC_GUARD, *y = b.b[0].mem + KC_GUARD;
    CHECK(!memcmp(x, y, (size_t)f.band_bytes));                    /* the other band */
    CHECK(memcmp(x + f.band_bytes, y + f.band_bytes, 4) != 0);     /* its own scale */
    CHECK(!memcmp(x + f.band_bytes + 4, y + f.band_bytes + 4, 4)); /* the scale beside it */
    kc_release(&a);
    kc_release(&b);
    kc_release(&back);
    free(w);
}
TEST(tiles)
{
    kc_each_isa(tiles_apart);
}

TEST(gradients_are_rounded_once)
{
    const int64_t n = 9001;
    KC_FOR_DTYPES(t)
    {
        struct kc k = {.op = MT_OP_grad_cast, .kernel = mt_cpu_grad_cast};
        double *x = kc_random(MT_F32, n, 3, 3);
        x[0] = 1.00390625, x[1] = 1.01171875, x[2] = -0.0; /* ties go to even */
        kc_arg(&k, t, n, 0, 0, 0, NULL);
        kc_arg(&k, MT_F32, n, 0, 0, 0, x);
        kc_run(&k);
        for (int64_t i = 0; i < n; i++) x[i] = kc_round(t, x[i]);
        CHECK(t == MT_F32 || (x[0] == 1.0 && x[1] == 1.015625));
        kc_check_equal(&k, 0, x);
        kc_release(&k);
        free(x);
    }
}

/* Pieces of bf16 are added as f32, in the order of the ranks. */
TEST(pieces_of_bf16)
{
    const int64_t R = 5, N = 1501;
    double *acc = kc_random(MT_F32, N, 1, 1), *staging = kc_random(MT_BF16, R * N, 1, 2);
    struct kc k = {.op = MT_OP_sum_pieces, .kernel = mt_cpu_sum_pieces};
    kc_arg(&k, MT_F32, N, 0, 0, 0, acc);
    kc_arg(&k, MT_BF16, R, N, 0, 5, staging);
    kc_run(&k);
    for (int64_t i = 0; i < N; i++) {
        float sum = 0;
        for (int64_t r = 0; r < R; r++) sum += (float)staging[r * N + i];
        acc[i] = (double)((float)acc[i] + sum);
    }
    kc_check_equal(&k, 0, acc);
    kc_release(&k);
    free(acc);
    free(staging);
}

int main(void)
{
    RUN(codes);
    RUN(rounding);
    RUN(ends);
    RUN(form);
    RUN(weights_over_fp8);
    RUN(corner_values);
    RUN(tiles);
    RUN(gradients_are_rounded_once);
    RUN(pieces_of_bf16);
    mt_cpu_thread_setup(); /* the same bits where small numbers are flushed to zero */
    RUN(weights_over_fp8);
    RUN(corner_values);
    return DONE();
}
