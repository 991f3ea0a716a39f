/* bf16 by vdpbf16ps. */
#include <immintrin.h>

#define VW 16
#define MR 12
#define NV 2
#define MAX_STEPS 256
typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
#define vec_set(x) ((vec)_mm512_set1_ps(x))
#define vec_fma(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
/* c, a pair of A as a word, 16 pairs of B */
#define vec_dot(c, pair, b) \
    ((vec)_mm512_dpbf16_ps((__m512)(c), (__m512bh)_mm512_set1_epi32(pair), (__m512bh)(__m512)(b)))
/* 16 words of one bf16 from each of two rows */
#define vec_pairs(h0, h1)                                                                                   \
    ((vec_bits)_mm512_or_si512(                                                                             \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(const void *)(h0))),                   \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(const void *)(h1))), \
                          16)))

#include "device/cpu/gemm_vec.h"

VEC_TABLE(avx512bf16_bf16, MT_ISA_AVX512_BF16, MT_BF16, KIND_DOT, 2, bf16_pairs_wide)
