/* test: variants=cuemu */
/* Each PTX wrapper against plain loops. Built by nvcc and run on a GPU, the same
 * program tells whether the emulation means what the instruction does. */
#include "base/dtype.h"
#include "check.h"
#include "device_memory.h"
#include "wrappers.h"

/* Absent on a GPU. */
void cuemu_set_policy(const char *policy, unsigned long long seed) __attribute__((weak));

static void mma_inputs(uint16_t *a, uint16_t *b, float *d, float *want)
{
    uint64_t rng = 88172645463325252u;
    for (int i = 0; i < 256; i++) a[i] = mt_bf16_of(uniform_of(&rng));
    for (int i = 0; i < 128; i++) b[i] = mt_bf16_of(uniform_of(&rng)), want[i] = d[i] = uniform_of(&rng);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < 16; k++)
                want[i * 8 + j] += mt_f32_of(a[i * 16 + k]) * mt_f32_of(b[j * 16 + k]);
}
static void mma_case(bool ldmatrix)
{
    uint16_t a[256], b[128], turned[128];
    float d[128], want[128], got[128];
    mma_inputs(a, b, d, want);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++) turned[k * 8 + j] = b[j * 16 + k];
    uint16_t *da = device_new(a, sizeof a), *db = device_new(ldmatrix ? turned : b, sizeof b);
    float *dd = device_new(d, sizeof d);
    CHECK((ldmatrix ? wrap_mma_ldmatrix : wrap_mma)(dd, da, db, NULL) == cudaSuccess);
    device_get(got, dd, sizeof got);
    CHECK_REL(got, want, 128, 1e-6);
    cudaFree(da), cudaFree(db), cudaFree(dd);
}
TEST(mma)
{
    mma_case(false);
}
TEST(ldmatrix)
{
    mma_case(true);
}

TEST(cp_async)
{
    enum { TILES = 5, TILE = 512, N = TILES * TILE, VALID = N - 300 };
    static float x[N], got[N];
    int wrong = 0;
    for (int i = 0; i < N; i++) x[i] = (float)i + 1;
    float *dx = device_new(x, sizeof x), *dy = device_new(NULL, sizeof x);
    CHECK(wrap_cp_async(dy, dx, TILES, VALID, NULL) == cudaSuccess);
    device_get(got, dy, sizeof got);
    for (int i = 0; i < N; i++) {
        int from = (i + TILE) % N;
        wrong += got[i] != (from < VALID ? x[from] : 0);
    }
    CHECK_INT(wrong, 0);
    cudaFree(dx), cudaFree(dy);
}

TEST(named_barriers)
{
    enum { N = 160 };
    float x[N], got[N];
    int wrong = 0;
    for (int i = 0; i < N; i++) x[i] = (float)i * 3;
    float *dx = device_new(x, sizeof x), *dy = device_new(NULL, sizeof x);
    CHECK(wrap_named_barriers(dy, dx, N, NULL) == cudaSuccess);
    device_get(got, dy, sizeof got);
    for (int i = 0; i < N; i++) wrong += got[i] != 2 * x[i] + (float)(i / 32);
    CHECK_INT(wrong, 0);
    cudaFree(dx), cudaFree(dy);
}

TEST(exp2_and_warp_sum)
{
    enum { N = 96 };
    uint64_t rng = 5;
    float x[N], want[N], got[N], sum = 0, zero = 0;
    for (int i = 0; i < N; i++) x[i] = 8 * uniform_of(&rng), want[i] = (float)exp2((double)x[i]), sum += x[i];
    float *dx = device_new(x, sizeof x), *dy = device_new(NULL, sizeof x),
          *ds = device_new(&zero, sizeof zero);
    CHECK(wrap_exp2(dy, dx, N, NULL) == cudaSuccess && wrap_warp_sum(ds, dx, N, NULL) == cudaSuccess);
    device_get(got, dy, sizeof got);
    CHECK_REL(got, want, N, 1e-6);
    device_get(got, ds, sizeof *got);
    CHECK_CLOSE(got[0], sum, 1e-3);
    cudaFree(dx), cudaFree(dy), cudaFree(ds);
}

int main(void)
{
    static const char *const policy[] = {"fwd", "rev", "rand"};
    for (int i = 0; i < (cuemu_set_policy ? 3 : 1); i++) {
        if (cuemu_set_policy) cuemu_set_policy(policy[i], 7);
        RUN(mma);
        RUN(ldmatrix);
        RUN(cp_async);
        RUN(named_barriers);
        RUN(exp2_and_warp_sum);
    }
    return DONE();
}
