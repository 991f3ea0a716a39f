/* amx_copy.h: blocks of a matrix brought into the order that tiles want. Strides are in elements. */
#ifndef MT_DEVICE_CPU_AMX_COPY_H
#define MT_DEVICE_CPU_AMX_COPY_H
#include "device/cpu/amx_block.h"

#if defined(__AVX512BW__) && !defined(MT_AMX_SOFT)
#include "device/cpu/turn_avx512.h"
#define AMX_VECTORS 1
#else
#define AMX_VECTORS 0
#endif

#if AMX_VECTORS
/* 8 columns of 32 rows, as 8 rows of 32: lane L takes rows 8L .. 8L + 7, then 8x8 transposes inside the
 * lanes. */
static inline void transpose_8(mt_bf16 *out, const mt_bf16 *y, int64_t ld)
{
    __m512i r[8], s[8];
    UNROLL for (int j = 0; j < 8; j++) r[j] = lanes(y + j * ld, 8 * ld);
    UNROLL for (int j = 0; j < 4; j++)
    {
        s[2 * j] = _mm512_unpacklo_epi16(r[2 * j], r[2 * j + 1]);
        s[2 * j + 1] = _mm512_unpackhi_epi16(r[2 * j], r[2 * j + 1]);
    }
    UNROLL for (int j = 0; j < 2; j++)
    {
        r[4 * j] = _mm512_unpacklo_epi32(s[4 * j], s[4 * j + 2]);
        r[4 * j + 1] = _mm512_unpackhi_epi32(s[4 * j], s[4 * j + 2]);
        r[4 * j + 2] = _mm512_unpacklo_epi32(s[4 * j + 1], s[4 * j + 3]);
        r[4 * j + 3] = _mm512_unpackhi_epi32(s[4 * j + 1], s[4 * j + 3]);
    }
    UNROLL for (int j = 0; j < 4; j++)
    {
        _mm512_store_si512(out + 32 * (2 * j), _mm512_unpacklo_epi64(r[j], r[4 + j]));
        _mm512_store_si512(out + 32 * (2 * j + 1), _mm512_unpackhi_epi64(r[j], r[4 + j]));
    }
}
static inline void transpose(mt_bf16 *out, const mt_bf16 *y, int64_t ld)
{
    transpose_8(out, y, ld);
    transpose_8(out + 256, y + 8, ld);
}
/* 16 pairs of rows, 32 columns: out[pair][column][2]. */
static inline void interleave(mt_bf16 *out, const mt_bf16 *x, int64_t ld)
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    UNROLL for (int i = 0; i < 16; i++)
    {
        __m512i a = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(x + 2 * i * ld));
        __m512i b = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(x + (2 * i + 1) * ld));
        _mm512_store_si512(out + 64 * i, _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512(out + 64 * i + 32, _mm512_unpackhi_epi16(a, b));
    }
}
#else
static inline void transpose(mt_bf16 *out, const mt_bf16 *y, int64_t ld)
{
    for (int n = 0; n < 16; n++)
        for (int m = 0; m < STEP; m++) out[STEP * n + m] = y[m * ld + n];
}
static inline void interleave(mt_bf16 *out, const mt_bf16 *x, int64_t ld)
{
    for (int i = 0; i < STEP; i++)
        for (int c = 0; c < MT_PANEL; c++) out[i / 2 * 64 + 2 * c + i % 2] = x[i * ld + c];
}
#endif

#if AMX_VECTORS
/* out[w][r] = in[r][w] for 16 rows of 16 words, of f32 or two bf16; ldo in words, ldi in bf16. */
static inline void turn_16(void *out, int64_t ldo, const void *in, int64_t ldi)
{
    turn_words_16(out, ldo, in, ldi, false);
}
#else
static inline void turn_16(void *out, int64_t ldo, const void *in, int64_t ldi)
{
    for (int r = 0; r < 16; r++)
        for (int w = 0; w < 16; w++)
            memcpy((char *)out + 4 * (w * ldo + r), (const mt_bf16 *)in + r * ldi + 2 * w, 4);
}
#endif
#endif
