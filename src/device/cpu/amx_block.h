/* amx_block.h: a block of C in tiles 0-3, two by two; the second pair is absent where its pointer is NULL. */
#ifndef MT_DEVICE_CPU_AMX_BLOCK_H
#define MT_DEVICE_CPU_AMX_BLOCK_H
#include "device/cpu/amx_tile.h"
#include "device/cpu/gemm.h"

#include <stddef.h>

enum {
    STEP = 32,        /* values of k of one tile product */
    STEP_BYTES = 2048 /* of a panel of B */
};

/* The weight gradient of gemm_tn_amx.c, or of its twin over the stand-in. */
#ifdef MT_AMX_SOFT
#define AMX_MUL_TN mt_gemm_tn_amx_soft
#else
#define AMX_MUL_TN mt_gemm_tn_amx
#endif
void AMX_MUL_TN(const struct mt_gemm_tn *g, int part, int parts, void *scratch);

static inline int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Lines to fetch at every step so that `bytes` are fetched in `steps`, every other line: its neighbour comes
 * by itself. */
static inline int64_t lines_per_step(int64_t bytes, int64_t steps)
{
    return steps ? (bytes / 128 + steps - 1) / steps : 0;
}

static inline void amx_zero(void)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}
static inline void amx_load(const float *c0, const float *c1, int64_t ld)
{
    TILE_LOAD(0, c0, 4 * ld);
    TILE_LOAD(1, c0 + 16, 4 * ld);
    if (c1) {
        TILE_LOAD(2, c1, 4 * ld);
        TILE_LOAD(3, c1 + 16, 4 * ld);
    }
}
static inline void amx_store(float *c0, float *c1, int64_t ld)
{
    TILE_STORE(0, c0, 4 * ld);
    TILE_STORE(1, c0 + 16, 4 * ld);
    if (c1) {
        TILE_STORE(2, c1, 4 * ld);
        TILE_STORE(3, c1 + 16, 4 * ld);
    }
}
/* One step of k: rows at a0 and a1, `row` bytes apart, times a step of a panel. */
static inline __attribute__((always_inline)) void amx_step(const char *a0, const char *a1, int64_t row,
                                                           const char *b)
{
    TILE_LOAD_ONCE(6, b, 128);
    TILE_LOAD(4, a0, row);
    TILE_DOT(0, 4, 6);
    TILE_LOAD_ONCE(7, b + 64, 128);
    TILE_DOT(1, 4, 7);
    if (a1) {
        TILE_LOAD(5, a1, row);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
}
#endif
