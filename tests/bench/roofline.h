/* roofline.h: what one core can do at most, measured: products of an instruction set, and reading memory. */
#ifndef MT_TESTS_ROOFLINE_H
#define MT_TESTS_ROOFLINE_H
#include "device/cpu/gemm.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Independent products in registers; GFLOP of one call is returned. */
typedef double peak_fn(void);
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static inline double peak_avx2(void)
{
    __m256 c[10], a = _mm256_set1_ps(0.5f);
#pragma GCC unroll 10
    for (int i = 0; i < 10; i++) c[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < 20000; n++) {
#pragma GCC unroll 10
        for (int i = 0; i < 10; i++) {
            c[i] = _mm256_fmadd_ps(c[i], a, a);
            __asm__ volatile("" : "+x"(c[i]));
        }
    }
    return 20000 * 10 * 16e-9;
}
__attribute__((target("avx512f"))) static inline double peak_avx512(void)
{
    __m512 c[20], a = _mm512_set1_ps(0.5f);
#pragma GCC unroll 20
    for (int i = 0; i < 20; i++) c[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < 10000; n++) {
#pragma GCC unroll 20
        for (int i = 0; i < 20; i++) {
            c[i] = _mm512_fmadd_ps(c[i], a, a);
            __asm__ volatile("" : "+v"(c[i]));
        }
    }
    return 10000 * 20 * 32e-9;
}
__attribute__((target("avx512f,avx512bf16"))) static inline double peak_avx512_bf16(void)
{
    __m512 c[20], a = _mm512_set1_ps(0.5f);
#pragma GCC unroll 20
    for (int i = 0; i < 20; i++) c[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < 10000; n++) {
#pragma GCC unroll 20
        for (int i = 0; i < 20; i++) {
            c[i] = _mm512_dpbf16_ps(c[i], (__m512bh)a, (__m512bh)a);
            __asm__ volatile("" : "+v"(c[i]));
        }
    }
    return 10000 * 20 * 64e-9;
}
static inline double peak_amx(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
    for (int n = 0; n < 10000; n++)
        __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                         "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::
                             : "memory");
    __asm__ volatile("tilerelease" ::: "memory");
    return 4 * 10000 * 16384e-9;
}
#endif

/* NULL: not known how to measure it. */
static inline peak_fn *roofline_peak(enum mt_isa isa, mt_dtype t)
{
#if defined(__x86_64__)
    if (isa == MT_ISA_AVX2) return peak_avx2;
    if (isa == MT_ISA_AVX512 || (t == MT_F32 && isa > MT_ISA_AVX512)) return peak_avx512;
    if (isa == MT_ISA_AVX512_BF16) return peak_avx512_bf16;
    if (isa == MT_ISA_AMX_BF16) return peak_amx;
#endif
    (void)isa, (void)t;
    return NULL;
}

/* The sum of n floats, n a multiple of 64, in four streams: as fast as they can be read. */
static inline float roofline_read(const float *x, int64_t n)
{
    typedef float line __attribute__((vector_size(64), aligned(4), may_alias));
    line a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t i = 0; i < n / 4; i += 16) {
        a += *(const line *)(x + i);
        b += *(const line *)(x + i + n / 4);
        c += *(const line *)(x + i + n / 2);
        d += *(const line *)(x + i + n / 4 * 3);
    }
    a += b + c + d;
    return a[0] + a[7] + a[15];
}
/* n floats, n a multiple of 64, read and written again, in four streams. */
static inline void roofline_update(float *x, int64_t n)
{
    typedef float line __attribute__((vector_size(64), aligned(4), may_alias));
    for (int64_t i = 0; i < n / 4; i += 16)
        for (int k = 0; k < 4; k++) *(line *)(x + i + n / 4 * k) *= 0.5f;
}
#endif
