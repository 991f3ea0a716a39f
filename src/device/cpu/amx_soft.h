/* amx_soft.h: a stand-in for the tile unit, included by amx_tile.h in a test's object. The tile file is part
 * of the machine, hence a variable; the object is used by one thread. */
#ifndef MT_DEVICE_CPU_AMX_SOFT_H
#define MT_DEVICE_CPU_AMX_SOFT_H
#include "device/cpu/amx_tile.h"

#include <math.h>
#include <stdlib.h>

static struct {
    struct tile_config config;
    uint8_t tile[8][16][64];
} soft;

/* Tile instructions flush denormals whatever MXCSR says. */
static inline float soft_flush(float x)
{
    uint32_t u = mt_bits_of_f32(x);
    if ((u & 0x7f800000u) == 0) u &= 0x80000000u;
    return mt_f32_of_bits(u);
}

static inline void soft_config(const struct tile_config *c)
{
    if (c->palette != 1) abort(); /* #GP */
    memset(&soft, 0, sizeof soft);
    soft.config = *c;
}
static inline void soft_release(void)
{
    memset(&soft, 0, sizeof soft);
}
static inline void soft_zero(int t)
{
    if (soft.config.palette != 1) abort(); /* #UD */
    memset(soft.tile[t], 0, sizeof soft.tile[t]);
}
static inline void soft_load(int t, const void *p, int64_t stride)
{
    soft_zero(t);
    for (int r = 0; r < soft.config.rows[t]; r++)
        memcpy(soft.tile[t][r], (const char *)p + r * stride, soft.config.row_bytes[t]);
}
static inline void soft_store(int t, void *p, int64_t stride)
{
    if (soft.config.palette != 1) abort();
    for (int r = 0; r < soft.config.rows[t]; r++)
        memcpy((char *)p + r * stride, soft.tile[t][r], soft.config.row_bytes[t]);
}

static inline float soft_operand(const uint8_t *row, int i)
{
    mt_bf16 h;
    memcpy(&h, row + 2 * i, 2);
    return soft_flush(mt_f32_of(h));
}
static inline float soft_fma(float a, float b, float c)
{
    return soft_flush(fmaf(a, b, c));
}
/* tdpbf16ps: the even and the odd products of 32 values of k run in two chains of fused multiply-adds from
 * +0; their sum is added to C. Every step rounds to nearest even and flushes denormals. */
static inline void soft_dot(int c, int a, int b)
{
    const struct tile_config *f = &soft.config;
    int pairs = f->row_bytes[a] / 4, cols = f->row_bytes[c] / 4;
    if (f->rows[c] != f->rows[a] || f->rows[b] != pairs || f->row_bytes[b] != f->row_bytes[c])
        abort(); /* #UD */
    for (int m = 0; m < f->rows[c]; m++)
        for (int n = 0; n < cols; n++) {
            float even = 0, odd = 0, acc;
            for (int k = 0; k < pairs; k++) {
                even = soft_fma(soft_operand(soft.tile[a][m], 2 * k), soft_operand(soft.tile[b][k], 2 * n),
                                even);
                odd = soft_fma(soft_operand(soft.tile[a][m], 2 * k + 1),
                               soft_operand(soft.tile[b][k], 2 * n + 1), odd);
            }
            memcpy(&acc, soft.tile[c][m] + 4 * n, 4);
            acc = soft_flush(soft_flush(acc) + soft_flush(even + odd));
            memcpy(soft.tile[c][m] + 4 * n, &acc, 4);
        }
}
#endif
