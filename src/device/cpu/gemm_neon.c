/* f32, and bf16 widened to f32, by NEON: 24 of 32 registers hold C. */
#include <arm_neon.h>

#define VW 4
#define MR 6
#define NV 4
#define MAX_STEPS 256
typedef float vec __attribute__((vector_size(16), aligned(4), may_alias));
#define vec_set(x) ((vec)vdupq_n_f32(x))
#define vec_fma(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))

#include "device/cpu/gemm_vec.h"

VEC_TABLE(neon_f32, MT_ISA_NEON, MT_F32, KIND_F32, 1, f32)
VEC_TABLE(neon_bf16, MT_ISA_NEON, MT_BF16, KIND_SPLIT, 2, bf16_pairs)
