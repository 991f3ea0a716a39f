/* vec.h: what the row kernels share: rows of f32 or bf16 in chunks of f32, sums of a fixed order, exp.
 *
 * All of it is plain C that the compiler turns into vector code. Where it helps, MT_VEC makes clones of a kernel for
 * wider instruction sets; they give the same bits, because products and sums are never contracted (-ffp-contract=off)
 * and because every sum has a fixed number of lanes, whatever the width of a register. */
#ifndef MT_DEVICE_CPU_VEC_H
#define MT_DEVICE_CPU_VEC_H
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

/* The clones are chosen by an ifunc, which runs before the sanitizers are ready. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MT_VEC __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define MT_VEC
#endif
#define MT_VEC_INLINE static inline __attribute__((always_inline, unused))
/* The iterations of the next loop are independent, though its output may be one of its inputs, element for element. */
#ifdef __clang__
#define MT_VEC_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define MT_VEC_LOOP _Pragma("GCC ivdep")
#endif

/* MT_CHUNK elements are converted at a time: a handful of such buffers stay in the first-level cache. */
enum { MT_CHUNK = 512, MT_LANES = 16 };

MT_VEC_INLINE int64_t mt_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements [at, at + n) of x as f32: in place if x is f32, else converted into buf. */
MT_VEC_INLINE const float *mt_vec_in(const void *x, int dtype, int64_t at, int64_t n, float *buf)
{
    if (dtype == MT_F32) return (const float *)x + at;
    const mt_bf16 *h = (const mt_bf16 *)x + at;
    for (int64_t i = 0; i < n; i++) buf[i] = mt_f32_of(h[i]);
    return buf;
}
/* Where to write elements [at, ...) of x, and the conversion that puts them there. */
MT_VEC_INLINE float *mt_vec_out(void *x, int dtype, int64_t at, float *buf)
{
    return dtype == MT_F32 ? (float *)x + at : buf;
}
MT_VEC_INLINE void mt_vec_put(void *x, int dtype, int64_t at, const float *buf, int64_t n)
{
    if (dtype == MT_F32) return;
    mt_bf16 *h = (mt_bf16 *)x + at;
    for (int64_t i = 0; i < n; i++) h[i] = mt_bf16_of(buf[i]);
}

/* 16 partial sums to one, by halves: in small vectors, which every instruction set has. Loops over halves would wait for their own
 * stores. */
typedef float mt_four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t mt_four_bits __attribute__((vector_size(16), aligned(4), may_alias));
MT_VEC_INLINE float mt_vec_fold(const float *lane)
{
    const mt_four *v = (const mt_four *)lane;
    mt_four s = (v[0] + v[2]) + (v[1] + v[3]);
    s += __builtin_shufflevector(s, s, 2, 3, 0, 1);
    return s[0] + s[1];
}
/* The greater of each two; of a NaN and a number, the first one given unless the second is greater. */
MT_VEC_INLINE mt_four mt_four_max(mt_four a, mt_four b)
{
    mt_four_bits above = (mt_four_bits)(b > a);
    return (mt_four)(((mt_four_bits)b & above) | ((mt_four_bits)a & ~above));
}
/* lane[j] = x[j] where that is greater. In vectors, since compilers make a branch or a chain of scalars of the loop. */
MT_VEC_INLINE void mt_vec_raise(float lane[MT_LANES], const float *x)
{
    typedef float all __attribute__((vector_size(64), aligned(4), may_alias));
    typedef int32_t all_bits __attribute__((vector_size(64), aligned(4), may_alias));
    all a = *(const all *)lane, b = *(const all *)x;
    all_bits above = (all_bits)(b > a);
    *(all *)lane = (all)(((all_bits)b & above) | ((all_bits)a & ~above));
}
/* The greatest of 16 numbers. */
MT_VEC_INLINE float mt_vec_top(const float *lane)
{
    const mt_four *v = (const mt_four *)lane;
    mt_four s = mt_four_max(mt_four_max(v[0], v[2]), mt_four_max(v[1], v[3]));
    s = mt_four_max(s, __builtin_shufflevector(s, s, 2, 3, 0, 1));
    return s[1] > s[0] ? s[1] : s[0];
}
/* Element i goes to lane i mod 16, in ascending order. Over at most MT_CHUNK elements no lane adds more than 32. */
MT_VEC_INLINE float mt_vec_dot(const float *x, const float *y, int64_t n)
{
    float lane[MT_LANES] = {0};
    int64_t i = 0;
    for (; i + MT_LANES <= n; i += MT_LANES)
        for (int j = 0; j < MT_LANES; j++) lane[j] += x[i + j] * y[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += x[i + j] * y[i + j];
    return mt_vec_fold(lane);
}
MT_VEC_INLINE float mt_vec_sum(const float *x, int64_t n)
{
    float lane[MT_LANES] = {0};
    int64_t i = 0;
    for (; i + MT_LANES <= n; i += MT_LANES)
        for (int j = 0; j < MT_LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += x[i + j];
    return mt_vec_fold(lane);
}
/* The largest element, at least -FLT_MAX; NaNs are passed over. */
MT_VEC_INLINE float mt_vec_max(const float *x, int64_t n)
{
    float lane[MT_LANES], top = -FLT_MAX;
    for (int j = 0; j < MT_LANES; j++) lane[j] = -FLT_MAX;
    int64_t i = 0;
    for (; i + MT_LANES <= n; i += MT_LANES) mt_vec_raise(lane, x + i);
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    float most = mt_vec_top(lane);
    return most > top ? most : top;
}

/* exp within 1e-7 of its value: x = k ln 2 + r with |r| <= ln 2 / 2, exp(r) = 1 + r + r^2 p(r) with p the first terms
 * of the series (what is left out is below 2e-9), times 2^k in two steps so that neither overflows before the result
 * does. k ln 2 is subtracted in two parts, the first exact. Beyond +-104 the result is 0 or infinite in f32. That bound,
 * and that NaN stays NaN, are put in integers: selections between floats would become branches, which don't vectorise. */
MT_VEC_INLINE float mt_vec_exp(float x)
{
    const uint32_t bound = 0x42d00000u /* 104 */, inf = 0x7f800000u, sign = 0x80000000u;
    /* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits */
    const float magic = 12582912.0f;
    uint32_t bits = mt_bits_of_f32(x), size = bits & ~sign, nan = -(uint32_t)(size > inf);
    x = mt_f32_of_bits((size < bound ? size : bound) | (bits & sign));
    float t = x * 1.44269504f + magic, n = t - magic;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    float e = 1.0f + (r + r * r * p);
    int32_t k = (int32_t)(mt_bits_of_f32(t) - mt_bits_of_f32(magic)), half = k >> 1;
    e = e * mt_f32_of_bits((uint32_t)(half + 127) << 23) * mt_f32_of_bits((uint32_t)(k - half + 127) << 23);
    return mt_f32_of_bits(mt_bits_of_f32(e) | nan);
}
MT_VEC_INLINE float mt_vec_sigmoid(float x)
{
    return 1.0f / (1.0f + mt_vec_exp(-x));
}
#endif
