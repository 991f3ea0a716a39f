/* turn_avx512.h: blocks of words turned by wide registers, for files that are compiled with AVX-512. */
#ifndef MT_DEVICE_CPU_TURN_AVX512_H
#define MT_DEVICE_CPU_TURN_AVX512_H
#include "base/dtype.h"

#ifdef __AVX512BW__
#include <immintrin.h>
#include <stdbool.h>

#define UNROLL _Pragma("GCC unroll 8")
/* Lane L of the result: 16 bytes at p + L * step. Loads gather the lanes, which saves shuffles. */
static inline __m512i lanes(const mt_bf16 *p, int64_t step)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const void *)(p + step)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const void *)(p + 2 * step)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const void *)(p + 3 * step)));
}
static inline __attribute__((always_inline)) void put_line(void *to, __m512i x, bool past)
{
    if (past)
        _mm512_stream_si512(to, x);
    else
        _mm512_storeu_si512(to, x);
}
/* out[w][r] = in[r][w] for 16 rows of 16 words, of f32 or two bf16; ldo in words, ldi in bf16. past: the caches. */
static inline __attribute__((always_inline)) void turn_words_16(void *out, int64_t ldo, const void *in,
                                                                int64_t ldi, bool past)
{
    UNROLL for (int w = 0; w < 16; w += 4)
    {
        const mt_bf16 *p = (const mt_bf16 *)in + 2 * w;
        uint32_t *to = (uint32_t *)out + w * ldo;
        __m512i a = lanes(p, 4 * ldi), b = lanes(p + ldi, 4 * ldi), c = lanes(p + 2 * ldi, 4 * ldi),
                d = lanes(p + 3 * ldi, 4 * ldi);
        __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
        put_line(to, _mm512_unpacklo_epi64(ab, cd), past);
        put_line(to + ldo, _mm512_unpackhi_epi64(ab, cd), past);
        ab = _mm512_unpackhi_epi32(a, b), cd = _mm512_unpackhi_epi32(c, d);
        put_line(to + 2 * ldo, _mm512_unpacklo_epi64(ab, cd), past);
        put_line(to + 3 * ldo, _mm512_unpackhi_epi64(ab, cd), past);
    }
}
#endif
#endif
