/* exp, sums and maxima of the row kernels. */
#include "device/cpu/vec.h"

#include "kernel_check.h"

TEST(exp_is_accurate)
{
    double worst = 0;
    for (uint32_t u = 0; u < 0x42ae0000u; u += 997) /* 0 .. 87, both signs */
        for (int s = 0; s < 2; s++) {
            float x = mt_f32_of_bits(u | (uint32_t)s << 31);
            double want = exp((double)x), err = fabs((double)mt_vec_exp(x) - want) / want;
            if (!(err <= worst)) worst = err;
        }
    CHECK_CLOSE(worst, 0, 1.0e-7);
}

TEST(exp_at_the_ends)
{
    CHECK(mt_vec_exp(0.0f) == 1.0f && mt_vec_exp(-0.0f) == 1.0f);
    CHECK(isnan(mt_vec_exp(NAN)) && isnan(mt_vec_exp(-NAN)));
    CHECK(mt_vec_exp(INFINITY) == INFINITY && mt_vec_exp(89.0f) == INFINITY && mt_vec_exp(1e30f) == INFINITY);
    CHECK(mt_vec_exp(-INFINITY) == 0 && mt_vec_exp(-110.0f) == 0 && mt_vec_exp(-FLT_MAX) == 0);
    CHECK_CLOSE(mt_vec_exp(88.7f) / 3.325e38f, 1, 1e-3);           /* near the largest float */
    CHECK_CLOSE((double)mt_vec_exp(-95.0f), exp(-95.0), 0x1p-149); /* denormal */
    CHECK(mt_vec_sigmoid(-200.0f) == 0 && mt_vec_sigmoid(200.0f) == 1.0f && mt_vec_sigmoid(0.0f) == 0.5f);
}

TEST(sums_and_maxima)
{
    enum { N = 600 };
    float x[N], y[N];
    uint64_t seed = 1;
    for (int i = 0; i < N; i++) x[i] = (float)kc_rand(&seed), y[i] = (float)kc_rand(&seed);
    double dot = 0, sum = 0;
    float top = -FLT_MAX;
    for (int n = 0; n <= N; n++) {
        CHECK_CLOSE(mt_vec_dot(x, y, n), dot, 5e-6 * (1 + fabs(dot)));
        CHECK_CLOSE(mt_vec_sum(x, n), sum, 5e-6 * (1 + fabs(sum)));
        CHECK(mt_vec_max(x, n) == top);
        if (n == N) break;
        dot += (double)x[n] * (double)y[n];
        sum += (double)x[n];
        if (x[n] > top) top = x[n];
    }
    x[77] = NAN;
    CHECK(isnan(mt_vec_sum(x, N)) && isnan(mt_vec_dot(y, x, N)) && !isnan(mt_vec_max(x, N)));
}

int main(void)
{
    RUN(exp_is_accurate);
    RUN(exp_at_the_ends);
    RUN(sums_and_maxima);
    return DONE();
}
