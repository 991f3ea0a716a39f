/* fp8.h: e4m3fn, the 8-bit float of weights on the wire: 4 bits of exponent with bias 7, 3 of fraction, no
 * infinities; 0x7f and 0xff are NaN, 0x7e is 448, the largest, and 1 is 2^-9, the smallest. */
#ifndef MT_BASE_FP8_H
#define MT_BASE_FP8_H
#include "base/dtype.h"
#include <stdint.h>

typedef uint8_t mt_fp8;
#define MT_FP8_MAX 448.0f

/* a where the condition holds, else b; by a mask, because a compiler may turn selections into branches,
 * and loops over those do not vectorise. */
static inline uint32_t mt_fp8_pick(int holds, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)holds;
    return (a & mask) | (b & ~mask);
}

/* Round to nearest even; what is beyond 448 becomes 448, NaN stays NaN, the sign is kept. */
static inline mt_fp8 mt_fp8_of(float x)
{
    uint32_t u = mt_bits_of_f32(x), a = u & 0x7fffffffu, m = mt_fp8_pick(a < 0x43e00000u, a, 0x43e00000u);
    uint32_t code = ((m + 0x7ffffu + (m >> 20 & 1)) >> 20) - (120u << 3);
    /* Below 2^-6 codes are multiples of 2^-9, the last place of a float between 2^14 and 2^15. */
    uint32_t tiny = mt_bits_of_f32(mt_f32_of_bits(m) + 0x1p14f);
    code = mt_fp8_pick(m < 0x3c800000u, tiny - 0x46800000u, code);
    code = mt_fp8_pick(a > 0x7f800000u, 0x7fu, code);
    return (mt_fp8)(code | (u >> 24 & 0x80u));
}

/* Exact. */
static inline float mt_f32_of_fp8(mt_fp8 c)
{
    uint32_t m = c & 0x7fu, u = (m << 20) + (120u << 23);
    u = mt_fp8_pick(m < 8, mt_bits_of_f32((float)(int32_t)m * 0x1p-9f), u);
    u = mt_fp8_pick(m == 0x7f, 0x7fc00000u, u);
    u |= (uint32_t)(c & 0x80u) << 24;
    return mt_f32_of_bits(u);
}
#endif
