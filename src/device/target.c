#include "device/target.h"

#include "device/ledger.h"

enum { PANEL = 32, ALIGN = 64 };
/* bf16 operands are multiplied in pairs, in tiles in groups of 32. A tile loads 16 rows a stride apart: at
 * multiples of 512 bytes they fall in a few sets of the cache, hence the padding. */
static const struct mt_target cpu_target[MT_N_ISAS] = {
    [MT_ISA_SCALAR] = {"cpu/scalar", ALIGN, PANEL, 1, 2, false, 0},
    [MT_ISA_NEON] = {"cpu/neon", ALIGN, PANEL, 1, 2, false, 0},
    [MT_ISA_AVX2] = {"cpu/avx2", ALIGN, PANEL, 1, 2, false, 0},
    [MT_ISA_AVX512] = {"cpu/avx512", ALIGN, PANEL, 1, 2, false, 0},
    [MT_ISA_AVX512_BF16] = {"cpu/avx512-bf16", ALIGN, PANEL, 1, 2, false, 0},
    [MT_ISA_AMX_BF16] = {"cpu/amx-bf16", ALIGN, PANEL, 1, 32, false, 64},
};

const struct mt_target *mt_target_cpu(enum mt_isa isa)
{
    MT_ASSERT(isa >= 0 && isa < MT_N_ISAS);
    return &cpu_target[isa];
}

/* 256 bytes: what cudaMalloc aligns to, and more than any vector access or matrix copy asks for. */
const struct mt_target *mt_target_cuda(void)
{
    static const struct mt_target cuda = {"cuda/sm90", 256, 1, 1, 1, true, 0, true};
    return &cuda;
}

static int64_t round_up(int64_t x, int64_t m)
{
    return (x + m - 1) / m * m;
}
int64_t mt_packed_bytes(const struct mt_target *t, mt_dtype d, enum mt_format f, int64_t o, int64_t i)
{
    MT_ASSERT(f != MT_ROWS && (d == MT_F32 || d == MT_BF16));
    int64_t k = d == MT_F32 ? t->k_align_f32 : t->k_align_bf16;
    int64_t outputs = f == MT_PACKED_NT ? o : i, inputs = f == MT_PACKED_NT ? i : o;
    return round_up(outputs, t->panel) * round_up(inputs, k) * mt_dtype_bytes(d);
}

struct mt_fp8_form mt_fp8_form(const struct mt_target *t, mt_dtype d, int64_t o, int64_t i)
{
    return mt_fp8_form_of(round_up(o, t->panel), round_up(i, d == MT_F32 ? t->k_align_f32 : t->k_align_bf16));
}

mt_view mt_packed_view(const struct mt_target *t, int32_t row, mt_dtype d, enum mt_format f, int64_t off,
                       int64_t o, int64_t i)
{
    int64_t bytes = mt_packed_bytes(t, d, f, o, i);
    return (mt_view){.row = row,
                     .dtype = (uint8_t)d,
                     .nd = 2,
                     .format = (uint8_t)f,
                     .off = off,
                     .bytes = bytes,
                     .dim = {o, i},
                     .ld = i,
                     .stride = bytes};
}
