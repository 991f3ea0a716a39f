/* gemm_kernels.h: what the kernel files share: their tables, packing, and the cutting of work into parts. */
#ifndef MT_DEVICE_CPU_GEMM_KERNELS_H
#define MT_DEVICE_CPU_GEMM_KERNELS_H
#include "device/cpu/gemm.h"

extern const struct mt_gemm mt_gemm_scalar_f32, mt_gemm_scalar_bf16;
extern const struct mt_gemm mt_gemm_avx2_f32, mt_gemm_avx2_bf16;
extern const struct mt_gemm mt_gemm_avx512_f32, mt_gemm_avx512_bf16, mt_gemm_avx512bf16_bf16;
extern const struct mt_gemm mt_gemm_amx_bf16;
extern const struct mt_gemm mt_gemm_neon_f32, mt_gemm_neon_bf16;

/* Bytes of scratch; the kernel files assert that their layouts fit. */
enum { MT_GEMM_SCRATCH = 2 << 20 };

/* Members pack_nt, pack_nn and unpack_nt of the tables: f32, bf16 with k in pairs, bf16 with k in groups of
 * 32. */
#define MT_GEMM_DECLARE_PACK(form)                                                                      \
    void mt_gemm_pack_nt_##form(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o,     \
                                int64_t i, int part, int parts);                                        \
    void mt_gemm_pack_nn_##form(void *out, const void *nt, int64_t o, int64_t i, int part, int parts);  \
    void mt_gemm_unpack_nt_##form(void *w, const void *nt, int64_t ldw, int64_t o, int64_t i, int part, \
                                  int parts);
MT_GEMM_DECLARE_PACK(f32)
MT_GEMM_DECLARE_PACK(bf16_pairs)
MT_GEMM_DECLARE_PACK(bf16_tiles)
/* The same bytes by AVX-512 (gemm_pack_avx512.c). */
MT_GEMM_DECLARE_PACK(f32_wide)
MT_GEMM_DECLARE_PACK(bf16_pairs_wide)
MT_GEMM_DECLARE_PACK(bf16_tiles_wide)
#undef MT_GEMM_DECLARE_PACK

/* The output of a product as a grid of cells: per group, `unit` rows by one panel of 32 columns. */
struct mt_gemm_grid {
    int64_t groups;
    const int64_t *offset; /* rows of the groups; NULL: one group of m rows */
    int64_t m;
    int64_t rows;    /* output rows of every group, or -1: as many as the group has (mul) */
    int64_t cols;    /* output columns */
    int64_t unit;    /* rows of a cell at most */
    int64_t block;   /* cells whose rows are worked on together while all panels pass */
    bool skip_empty; /* groups without rows need nothing */
    bool merge;      /* several whole blocks may come as one rectangle */
};
struct mt_gemm_grid mt_gemm_grid_mul(const struct mt_gemm_mul *g, int64_t unit, int64_t block);
struct mt_gemm_grid mt_gemm_grid_tn(const struct mt_gemm_tn *g, int64_t unit, int64_t block);

/* Rows [row, row + rows) of a group's output by panels [panel, panel + panels). */
struct mt_gemm_rect {
    int64_t group, row, rows, panel, panels;
    int64_t first, extent; /* rows offset[group] .. + extent of the operands belong to the group */
};
struct mt_gemm_cut {
    struct mt_gemm_grid grid;
    int64_t lo, hi;          /* this part's share of the total work */
    int64_t group, base, at; /* the next cell, and the work before its group */
};
/* Rectangles of part `part`: all parts get the same work up to one cell, counted over all groups. */
void mt_gemm_cut_init(struct mt_gemm_cut *cut, const struct mt_gemm_grid *grid, int part, int parts);
bool mt_gemm_cut_next(struct mt_gemm_cut *cut, struct mt_gemm_rect *rect);
#endif
