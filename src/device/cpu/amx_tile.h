/* amx_tile.h: the tile instructions the bf16 kernels use, in two versions.
 *
 *   default       inline assembly. The compiler's own intrinsics are avoided: gcc 12's tile load has no memory
 *                 clobber (an earlier store may move past it), and its configuration load declares 8 of the 64
 *                 bytes it reads.
 *   MT_AMX_SOFT   plain C on a tile file in memory, for tests on any machine: the bits of the hardware, and an
 *                 abort where it would fault. Only the object of a test is built this way.
 *
 * Tile numbers are literals: 0-3 hold C, 4-5 A, 6-7 B. */
#ifndef MT_DEVICE_CPU_AMX_TILE_H
#define MT_DEVICE_CPU_AMX_TILE_H
#include "base/dtype.h"

/* Memory format of LDTILECFG. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* `rows` rows of C and A (1 to 16); rows are 64 bytes wide; B has 16 rows, the pairs of 32 values of k. */
static inline struct tile_config tile_config_of(int rows)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = (uint8_t)(i < 6 ? rows : 16);
    }
    return c;
}

#ifndef MT_AMX_SOFT
#define TILE_CONFIG(c) __asm__ volatile("ldtilecfg %0" ::"m"(*(c)) : "memory")
/* Back to the initial state: the kernel need not save 8 KiB at a context switch. */
#define TILE_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, p, s) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(s)) : "memory")
/* With a streaming hint: the lines do not push out what is in L1. */
#define TILE_LOAD_ONCE(t, p, s) \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(s)) : "memory")
#define TILE_STORE(t, p, s) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(s)) : "memory")
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#else
#include "device/cpu/amx_soft.h"
#define TILE_CONFIG(c) soft_config(c)
#define TILE_RELEASE() soft_release()
#define TILE_ZERO(t) soft_zero(t)
#define TILE_LOAD(t, p, s) soft_load(t, p, s)
#define TILE_LOAD_ONCE(t, p, s) soft_load(t, p, s)
#define TILE_STORE(t, p, s) soft_store(t, p, s)
#define TILE_DOT(c, a, b) soft_dot(c, a, b)
#endif
#endif
