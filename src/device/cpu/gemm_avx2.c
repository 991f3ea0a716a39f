/* f32, and bf16 widened to f32, by AVX2 and FMA: 12 of 16 registers hold C. */
#include <immintrin.h>

#define VW 8
#define MR 6
#define NV 2
#define MAX_STEPS 256
typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
#define vec_set(x) ((vec)_mm256_set1_ps(x))
#define vec_fma(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))

#include "device/cpu/gemm_vec.h"

VEC_TABLE(avx2_f32, MT_ISA_AVX2, MT_F32, KIND_F32, 1, f32)
VEC_TABLE(avx2_bf16, MT_ISA_AVX2, MT_BF16, KIND_SPLIT, 2, bf16_pairs)
