/* amx_lanes.h: 16 f32 side by side for the attention kernels of amx, one per row of queries. Over the stand-in
 * for the tile unit it is plain C, whose results may differ in the last bit of an exponential. */
#ifndef MT_DEVICE_CPU_AMX_LANES_H
#define MT_DEVICE_CPU_AMX_LANES_H
#include "device/cpu/amx_copy.h"

#include <math.h>

enum { LANES = 16 };

#if AMX_VECTORS
#define LANES_INLINE static inline __attribute__((always_inline))
typedef __m512 lanes16;
typedef __mmask16 seen16;

LANES_INLINE lanes16 l_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
LANES_INLINE lanes16 l_load_bf16(const mt_bf16 *p)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
LANES_INLINE void l_store(float *p, lanes16 x)
{
    _mm512_storeu_ps(p, x);
}
LANES_INLINE float l_sum(lanes16 x)
{
    return _mm512_reduce_add_ps(x);
}
LANES_INLINE lanes16 l_all(float x)
{
    return _mm512_set1_ps(x);
}
LANES_INLINE lanes16 l_add(lanes16 a, lanes16 b)
{
    return _mm512_add_ps(a, b);
}
LANES_INLINE lanes16 l_sub(lanes16 a, lanes16 b)
{
    return _mm512_sub_ps(a, b);
}
LANES_INLINE lanes16 l_mul(lanes16 a, lanes16 b)
{
    return _mm512_mul_ps(a, b);
}
/* The greater; b if one is NaN. */
LANES_INLINE lanes16 l_max(lanes16 a, lanes16 b)
{
    return _mm512_max_ps(a, b);
}
LANES_INLINE bool l_any_less(lanes16 a, lanes16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0;
}
/* Lanes that see a key: begin <= key <= token. */
LANES_INLINE seen16 l_seen(const int32_t *begin, const int32_t *token, int32_t key)
{
    __m512i k = _mm512_set1_epi32(key);
    return _mm512_cmple_epi32_mask(_mm512_loadu_si512(begin), k) &
           _mm512_cmple_epi32_mask(k, _mm512_loadu_si512(token));
}
LANES_INLINE lanes16 l_pick(seen16 m, lanes16 x, lanes16 other)
{
    return _mm512_mask_blend_ps(m, other, x);
}
/* exp as mt_vec_exp has it, in fused steps; beyond +-104 0 or infinite, and NaN stays NaN: it is the second
 * operand of max and min. */
LANES_INLINE lanes16 l_exp(lanes16 x)
{
    x = _mm512_min_ps(l_all(104), _mm512_max_ps(l_all(-104), x));
    lanes16 n =
        _mm512_roundscale_ps(l_mul(x, l_all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    lanes16 r = _mm512_fnmadd_ps(n, l_all(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, l_all(-2.12194440e-4f), r);
    lanes16 p = l_all(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, l_all(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, l_all(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, l_all(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, l_all(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, l_all(0.5f));
    p = l_add(_mm512_fmadd_ps(p, l_mul(r, r), r), l_all(1));
    return _mm512_scalef_ps(p, n);
}
/* 32 values of a row to bf16. */
LANES_INLINE void l_put_row(mt_bf16 *out, lanes16 low, lanes16 high)
{
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
/* Two rows to bf16, interleaved in pairs. */
LANES_INLINE void l_put_pairs(mt_bf16 *out, lanes16 first, lanes16 second)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, both));
}
#else
/* As calls: spread out under the sanitizers they take a compiler minutes. */
#define LANES_INLINE static __attribute__((noinline, unused))
typedef struct {
    float x[LANES];
} lanes16;
typedef uint32_t seen16;

#define EACH(expression)                                     \
    lanes16 l_out;                                           \
    for (int i = 0; i < LANES; i++) l_out.x[i] = expression; \
    return l_out

LANES_INLINE lanes16 l_load(const float *p)
{
    EACH(p[i]);
}
LANES_INLINE lanes16 l_load_bf16(const mt_bf16 *p)
{
    EACH(mt_f32_of(p[i]));
}
LANES_INLINE void l_store(float *p, lanes16 a)
{
    memcpy(p, a.x, sizeof a.x);
}
LANES_INLINE float l_sum(lanes16 a)
{
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) a.x[i] += a.x[i + n];
    return a.x[0];
}
LANES_INLINE lanes16 l_all(float x)
{
    EACH(x);
}
LANES_INLINE lanes16 l_add(lanes16 a, lanes16 b)
{
    EACH(a.x[i] + b.x[i]);
}
LANES_INLINE lanes16 l_sub(lanes16 a, lanes16 b)
{
    EACH(a.x[i] - b.x[i]);
}
LANES_INLINE lanes16 l_mul(lanes16 a, lanes16 b)
{
    EACH(a.x[i] * b.x[i]);
}
LANES_INLINE lanes16 l_max(lanes16 a, lanes16 b)
{
    EACH(a.x[i] > b.x[i] ? a.x[i] : b.x[i]);
}
LANES_INLINE bool l_any_less(lanes16 a, lanes16 b)
{
    bool any = false;
    for (int i = 0; i < LANES; i++) any |= a.x[i] < b.x[i];
    return any;
}
LANES_INLINE seen16 l_seen(const int32_t *begin, const int32_t *token, int32_t key)
{
    seen16 m = 0;
    for (int i = 0; i < LANES; i++) m |= (seen16)(begin[i] <= key && key <= token[i]) << i;
    return m;
}
LANES_INLINE lanes16 l_pick(seen16 m, lanes16 a, lanes16 b)
{
    EACH(m >> i & 1 ? a.x[i] : b.x[i]);
}
LANES_INLINE lanes16 l_exp(lanes16 a)
{
    EACH(expf(a.x[i]));
}
LANES_INLINE void l_put_row(mt_bf16 *out, lanes16 low, lanes16 high)
{
    for (int i = 0; i < LANES; i++) out[i] = mt_bf16_of(low.x[i]), out[LANES + i] = mt_bf16_of(high.x[i]);
}
LANES_INLINE void l_put_pairs(mt_bf16 *out, lanes16 first, lanes16 second)
{
    for (int i = 0; i < LANES; i++)
        out[2 * i] = mt_bf16_of(first.x[i]), out[2 * i + 1] = mt_bf16_of(second.x[i]);
}
#undef EACH
#endif
#endif
