/* The kernel table, and into how many parts calls are cut. */
#include "check.h"
#include "device/cpu/kernels.h"

TEST(every_op_has_a_kernel_of_its_own)
{
    for (int i = 0; i < MT_N_OPS; i++) {
        CHECK(mt_cpu_kernel[i] != NULL);
        for (int j = 0; j < i; j++) CHECK(mt_cpu_kernel[i] != mt_cpu_kernel[j]);
    }
    CHECK(mt_cpu_kernel[MT_OP_swiglu_fwd] == mt_cpu_swiglu_fwd &&
          mt_cpu_kernel[MT_OP_init_normal] == mt_cpu_init_normal);
}
TEST(the_device_knows_its_matrix_products)
{
    struct mt_cpu_dev d;
    mt_cpu_dev_init(&d, MT_ISA_SCALAR);
    CHECK(d.isa == MT_ISA_SCALAR && d.gemm[MT_F32]->dtype == MT_F32 && d.gemm[MT_BF16]->dtype == MT_BF16);
    CHECK(d.gemm[MT_F32]->isa == MT_ISA_SCALAR);
}
static int swiglu_parts(int64_t N, int workers)
{
    char msg[256];
    struct mt_call c = {0};
    mt_view v[2] = {mt_view_of(0, MT_BF16, 0, N, 64, 0), mt_view_of(1, MT_BF16, 0, N, 128, 0)};
    CHECK(!mt_op_bind(MT_OP_swiglu_fwd, v, &c, msg));
    return mt_cpu_parts(&c, workers);
}
TEST(parts_grow_with_the_work)
{
    CHECK_INT(swiglu_parts(0, 64), 1);
    CHECK_INT(swiglu_parts(8, 64), 1);
    CHECK(swiglu_parts(10000, 64) > 4);
    for (int64_t n = 1, last = 1; n < 1 << 30; n *= 3) {
        int now = swiglu_parts(n, 64);
        CHECK(now >= last && now <= 64);
        last = now;
    }
}
TEST(parts_grow_with_the_workers)
{
    const int64_t large = 1 << 20;
    CHECK_INT(swiglu_parts(8, 1), 1);
    for (int workers = 1, last = 0; workers < 8; workers++) {
        int now = swiglu_parts(large, workers);
        CHECK(now > last && now >= 2 * workers && now < 64);
        last = now;
    }
    CHECK_INT(swiglu_parts(large, 8), 64);
    CHECK_INT(swiglu_parts(large, 4096), 64);
}
TEST(shares_cover_everything_once)
{
    for (int64_t n = 0; n < 300; n += 7)
        for (int64_t grain = 1; grain < 80; grain += 13)
            for (int parts = 1; parts < 9; parts++) {
                int64_t at = 0, lo, hi;
                for (int p = 0; p < parts; p++, at = hi) {
                    mt_share(n, grain, p, parts, &lo, &hi);
                    CHECK(lo == at && hi >= lo && (hi == n || hi % grain == 0));
                }
                CHECK_INT(at, n);
            }
}

int main(void)
{
    RUN(every_op_has_a_kernel_of_its_own);
    RUN(the_device_knows_its_matrix_products);
    RUN(parts_grow_with_the_work);
    RUN(parts_grow_with_the_workers);
    RUN(shares_cover_everything_once);
    return DONE();
}
