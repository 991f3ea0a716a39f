/* half.h: IEEE half precision, the F16 of safetensors. */
#ifndef MT_HF_HALF_H
#define MT_HF_HALF_H
#include <stdint.h>
#include <string.h>

/* Every number of it is one of f32's. */
static inline float mt_f32_of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, frac = h & 0x3ff, u;
    float f;
    if (exp == 31)
        u = sign | 0x7f800000u | frac << 13;
    else if (exp)
        u = sign | (exp + 112) << 23 | frac << 13;
    else {
        f = (float)frac * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    memcpy(&f, &u, 4);
    return f;
}
#endif
