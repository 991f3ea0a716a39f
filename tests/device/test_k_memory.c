/* Fills, copies, casts, initial weights. */
#include "base/rng.h"
#include "kernel_check.h"

static const int64_t counts[] = {0, 1, 7, 4096, 20001};

TEST(fill_zero)
{
    const mt_dtype types[] = {MT_F32, MT_BF16, MT_I64};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 5; i++) {
            struct kc k = {.op = MT_OP_fill0, .kernel = mt_cpu_fill0};
            double *zero = kc_new(counts[i]);
            kc_arg(&k, types[t], counts[i], 0, 0, 0, NULL);
            kc_run(&k);
            kc_check_equal(&k, 0, zero);
            kc_release(&k);
            free(zero);
        }
}
/* Large areas are written in another way: to the last byte, and not one beyond, wherever they begin. */
TEST(fill_large)
{
    const int64_t bytes = (3 << 20) + 17, guard = 64;
    char *area = malloc((size_t)(bytes + 2 * guard));
    for (int64_t skip = 1; skip <= guard; skip += 21) {
        struct mt_call c = {.op = MT_OP_fill0, .arg = {area + skip}, .bytes = {bytes}};
        memset(area, 0x5a, (size_t)(bytes + 2 * guard));
        mt_cpu_fill0(&c, 0, 1, NULL, NULL);
        int64_t wrong = 0;
        for (int64_t i = 0; i < bytes + 2 * guard; i++) {
            bool inside = i >= skip && i < skip + bytes;
            wrong += area[i] != (inside ? 0 : 0x5a);
        }
        CHECK_INT(wrong, 0);
    }
    free(area);
}
TEST(fill_value)
{
    for (int i = 0; i < 5; i++) {
        struct kc k = {.op = MT_OP_fill_f32, .kernel = mt_cpu_fill_f32, .s = {{.f = 0.1}}};
        double *want = kc_new(counts[i]);
        for (int64_t j = 0; j < counts[i]; j++) want[j] = (double)0.1f;
        kc_arg(&k, MT_F32, counts[i], 0, 0, 0, NULL);
        kc_run(&k);
        kc_check_equal(&k, 0, want);
        kc_release(&k);
        free(want);
    }
}
TEST(copies)
{
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < 5; i++) {
            struct kc k = {.op = way ? MT_OP_copy_d2h : MT_OP_copy_h2d,
                           .kernel = way ? mt_cpu_copy_d2h : mt_cpu_copy_h2d};
            double *x = kc_random(MT_BF16, counts[i], 1, 3);
            kc_arg(&k, MT_BF16, counts[i], 0, 0, 0, NULL);
            kc_arg(&k, MT_BF16, counts[i], 0, 0, 0, x);
            kc_run(&k);
            kc_check_equal(&k, 0, x);
            kc_release(&k);
            free(x);
        }
}
TEST(cast)
{
    KC_FOR_DTYPES(t)
    {
        for (int i = 0; i < 5; i++) {
            struct kc k = {.op = MT_OP_weight_cast, .kernel = mt_cpu_weight_cast};
            double *x = kc_random(MT_F32, counts[i], 3, 3);
            kc_arg(&k, t, counts[i], 0, 0, 0, NULL);
            kc_arg(&k, MT_F32, counts[i], 0, 0, 0, x);
            kc_run(&k);
            for (int64_t j = 0; j < counts[i]; j++) x[j] = kc_round(t, x[j]);
            kc_check_equal(&k, 0, x);
            kc_release(&k);
            free(x);
        }
    }
}
/* Ties go to even; halves of the last place, overflow, denormals and NaN: where a vectorised rounding goes wrong. */
TEST(cast_corners)
{
    const double x[8] = {1.00390625, 1.01171875, -1.00390625, 3.4e38, 0x1p-133, 0x1.8p-133, INFINITY, -0.0};
    const double want[8] = {1.0, 1.015625, -1.0, INFINITY, 0x1p-133, 0x1p-132, INFINITY, -0.0};
    struct kc k = {.op = MT_OP_weight_cast, .kernel = mt_cpu_weight_cast};
    kc_arg(&k, MT_BF16, 8, 0, 0, 0, NULL);
    kc_arg(&k, MT_F32, 8, 0, 0, 0, x);
    kc_run(&k);
    kc_check_equal(&k, 0, want);
    CHECK(signbit(kc_load(kc_at(&k, 0, 7), MT_BF16)));
    kc_release(&k);

    const uint32_t nans[3] = {0x7f800001u, 0xffffffffu,
                              0x7fc00000u}; /* a payload that rounding would lose or overflow */
    double y[3];
    struct kc n = {.op = MT_OP_weight_cast, .kernel = mt_cpu_weight_cast};
    kc_arg(&n, MT_BF16, 3, 0, 0, 0, NULL);
    kc_arg(&n, MT_F32, 3, 0, 0, 0, NULL);
    memcpy(n.b[1].start + KC_GUARD, nans, sizeof nans);
    kc_run(&n);
    kc_get(&n, 0, y);
    for (int i = 0; i < 3; i++) CHECK(isnan(y[i]));
    kc_release(&n);
}
TEST(normal_values)
{
    const int64_t firsts[] = {0, 1, 5000000001};
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 5; i++) {
            uint64_t key = mt_rng_key(42, "layers.3.w");
            double *want = kc_new(counts[i]);
            for (int64_t j = 0; j < counts[i]; j++)
                want[j] = (double)(float)(0.02 * mt_rng_normal(key, firsts[f] + j));
            struct kc k = {.op = MT_OP_init_normal,
                           .kernel = mt_cpu_init_normal,
                           .s = {{.i = (int64_t)key}, {.i = firsts[f]}, {.f = 0.02}}};
            kc_arg(&k, MT_F32, counts[i], 0, 0, 0, NULL);
            kc_run(&k);
            kc_check_equal(&k, 0, want);
            kc_release(&k);
            free(want);
        }
}

int main(void)
{
    RUN(fill_zero);
    RUN(fill_large);
    RUN(fill_value);
    RUN(copies);
    RUN(cast);
    RUN(cast_corners);
    RUN(normal_values);
    return DONE();
}
