/* Keys from a shared and an own part, and their gradients; where attention begins in a window. */
#include "kernel_check.h"

static const int64_t sizes[][5] = {{1, 1, 2, 1, 0}, {9, 3, 8, 11, 3}, {5, 4, 300, 16, 0}, {0, 2, 4, 4, 0}};

/* Both ops see the same elements of k: [N, H, R + C]. */
static double *joined(const double *shared, const double *own, const int64_t *z)
{
    int64_t N = z[0], H = z[1], R = z[2], C = z[3];
    double *k = kc_new(N * H * (R + C));
    for (int64_t i = 0; i < N * H; i++) {
        memcpy(k + i * (R + C), shared + i / H * R, (size_t)R * 8);
        memcpy(k + i * (R + C) + R, own + i * C, (size_t)C * 8);
    }
    return k;
}
TEST(join)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++) {
            const int64_t *z = sizes[s], N = z[0], H = z[1], R = z[2], C = z[3];
            double *shared = kc_random(t, N * R, 1, 1), *own = kc_random(t, N * H * C, 1, 2),
                   *want = joined(shared, own, z);
            struct kc k = {.op = MT_OP_key_join, .kernel = mt_cpu_key_join};
            kc_arg(&k, t, N, H, R + C, z[4], NULL);
            kc_arg(&k, t, N, R, 0, z[4], shared);
            kc_arg(&k, t, N, H, C, z[4], own);
            kc_run(&k);
            kc_check_equal(&k, 0, want);
            kc_release(&k);
            free(shared), free(own), free(want);
        }
    }
}
TEST(split)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++) {
            const int64_t *z = sizes[s], N = z[0], H = z[1], R = z[2], C = z[3];
            double *dk = kc_random(t, N * H * (R + C), 1, 3), *sum = kc_new(N * R), *part = kc_new(N * H * C);
            for (int64_t i = 0; i < N * H; i++) {
                for (int64_t r = 0; r < R; r++) sum[i / H * R + r] += dk[i * (R + C) + r];
                memcpy(part + i * C, dk + i * (R + C) + R, (size_t)C * 8);
            }
            struct kc k = {.op = MT_OP_key_split, .kernel = mt_cpu_key_split};
            kc_arg(&k, t, N, R, 0, z[4], NULL);
            kc_arg(&k, t, N, H, C, z[4], NULL);
            kc_arg(&k, t, N, H, R + C, z[4], dk);
            kc_run(&k);
            kc_check_scaled(&k, 0, sum, 1e-7, (double)H);
            kc_check_equal(&k, 1, part);
            kc_release(&k);
            free(dk), free(sum), free(part);
        }
    }
}
TEST(window)
{
    double begin[2 * 7] = {0, 0, 0, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0},
                     want[2 * 7] = {0, 0, 0, 3, 3, 3, 4, 0, 0, 0, 1, 2, 3, 4};
    struct kc k = {.op = MT_OP_window_begin, .kernel = mt_cpu_window_begin, .s = {{.i = 3}}};
    kc_arg(&k, MT_I32, 2, 7, 0, 1, NULL);
    kc_arg(&k, MT_I32, 2, 7, 0, 2, begin);
    kc_run(&k);
    kc_check_equal(&k, 0, want);
    kc_release(&k);
}

int main(void)
{
    RUN(join);
    RUN(split);
    RUN(window);
    return DONE();
}
