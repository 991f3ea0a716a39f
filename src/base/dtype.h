/* dtype.h: element types of buffers, files and wires. */
#ifndef MT_BASE_DTYPE_H
#define MT_BASE_DTYPE_H
#include <stdint.h>
#include <string.h>

typedef enum mt_dtype { MT_F32, MT_BF16, MT_I32, MT_I64, MT_U8, MT_F64, MT_N_DTYPES } mt_dtype;
typedef uint16_t mt_bf16;

static inline int64_t mt_dtype_bytes(mt_dtype t)
{
    return t == MT_I64 || t == MT_F64 ? 8 : t == MT_BF16 ? 2 : t == MT_U8 ? 1 : 4;
}
static inline const char *mt_dtype_name(mt_dtype t)
{
    static const char *const name[] = {"f32", "bf16", "i32", "i64", "u8", "f64"};
    return name[t];
}

/* By the builtin: where ThreadSanitizer looks on, memcpy is a call. */
static inline uint32_t mt_bits_of_f32(float x)
{
    uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}
static inline float mt_f32_of_bits(uint32_t u)
{
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}

/* Round to nearest even; NaN stays NaN (quiet). */
static inline mt_bf16 mt_bf16_of(float x)
{
    uint32_t u = mt_bits_of_f32(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (mt_bf16)(u >> 16 | 0x40);
    return (mt_bf16)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline float mt_f32_of(mt_bf16 h)
{
    return mt_f32_of_bits((uint32_t)h << 16);
}
#endif
