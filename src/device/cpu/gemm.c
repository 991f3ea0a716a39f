#include "device/cpu/gemm.h"

#include "device/cpu/gemm_kernels.h"

#if defined(__x86_64__)
static const struct mt_gemm *const tables[MT_N_ISAS][2] = {
    [MT_ISA_SCALAR] = {&mt_gemm_scalar_f32, &mt_gemm_scalar_bf16},
    [MT_ISA_AVX2] = {&mt_gemm_avx2_f32, &mt_gemm_avx2_bf16},
    [MT_ISA_AVX512] = {&mt_gemm_avx512_f32, &mt_gemm_avx512_bf16},
    [MT_ISA_AVX512_BF16] = {&mt_gemm_avx512_f32, &mt_gemm_avx512bf16_bf16},
    [MT_ISA_AMX_BF16] = {&mt_gemm_avx512_f32, &mt_gemm_amx_bf16},
};
#elif defined(__aarch64__)
static const struct mt_gemm *const tables[MT_N_ISAS][2] = {
    [MT_ISA_SCALAR] = {&mt_gemm_scalar_f32, &mt_gemm_scalar_bf16},
    [MT_ISA_NEON] = {&mt_gemm_neon_f32, &mt_gemm_neon_bf16},
};
#else
static const struct mt_gemm *const tables[MT_N_ISAS][2] = {
    [MT_ISA_SCALAR] = {&mt_gemm_scalar_f32, &mt_gemm_scalar_bf16},
};
#endif

const struct mt_gemm *mt_gemm_of(enum mt_isa isa, mt_dtype dtype)
{
    if ((unsigned)isa >= MT_N_ISAS || (dtype != MT_F32 && dtype != MT_BF16)) return NULL;
    return tables[isa][dtype == MT_BF16];
}

int mt_gemm_k_align(enum mt_isa isa, mt_dtype dtype)
{
    if (dtype == MT_F32) return 1;
    return isa == MT_ISA_AMX_BF16 ? 32 : 2;
}

int64_t mt_gemm_packed_bytes_for(enum mt_isa isa, mt_dtype dtype, int64_t outputs, int64_t inputs)
{
    int64_t align = mt_gemm_k_align(isa, dtype);
    int64_t k = (inputs + align - 1) / align * align;
    int64_t panels = (outputs + MT_PANEL - 1) / MT_PANEL;
    return panels * MT_PANEL * k * mt_dtype_bytes(dtype);
}

int64_t mt_gemm_packed_bytes(const struct mt_gemm *g, int64_t outputs, int64_t inputs)
{
    return mt_gemm_packed_bytes_for(g->isa, g->dtype, outputs, inputs);
}

int64_t mt_gemm_scratch_bytes(void)
{
    return MT_GEMM_SCRATCH;
}
