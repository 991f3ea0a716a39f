/* f32, and bf16 widened to f32, by AVX-512: 24 of 32 registers hold C. */
#include <immintrin.h>

#define VW 16
#define MR 12
#define NV 2
#define MAX_STEPS 256
typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
#define vec_set(x) ((vec)_mm512_set1_ps(x))
#define vec_fma(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))

#include "device/cpu/gemm_vec.h"

VEC_TABLE(avx512_f32, MT_ISA_AVX512, MT_F32, KIND_F32, 1, f32_wide)
VEC_TABLE(avx512_bf16, MT_ISA_AVX512, MT_BF16, KIND_SPLIT, 2, bf16_pairs_wide)
