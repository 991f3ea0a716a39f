/* attention.h: what the attention kernels share. One kv head at a time; its queries are gathered to rows
 * (token, query head of the group), the keys are taken in blocks, and all products are packed products.
 *
 * Key blocks begin at multiples of ATT_KEYS whatever the cut into parts, and a row's sums run over them in
 * ascending order, so parts never change a bit. Blocks that no row of a tile sees are not touched: the cost
 * is by document. */
#ifndef MT_DEVICE_CPU_ATTENTION_H
#define MT_DEVICE_CPU_ATTENTION_H
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

enum { ATT_KEYS = 64 };

struct mt_att {
    const struct mt_gemm *gemm;
    mt_dtype dtype;
    int64_t tokens, heads, groups, per; /* per: query heads of one kv head */
    int64_t a, b;                       /* key and value width */
    int64_t size;                       /* bytes of an element of T */
    float scale;
    const int32_t *begin;
    void *scratch; /* of the products */
    char *free, *end;
    int64_t tile; /* tokens of a query tile */
};

/* From the call: dims, dtype, device; `begin` and scale are the caller's to give. */
void mt_att_init(struct mt_att *t, const struct mt_call *c, void *scratch, const void *dev);
/* bytes of the kernel's scratch, aligned to 64 */
void *mt_att_take(struct mt_att *t, int64_t bytes);
/* Sets the tile so that its rows, of row_bytes in all buffers together, fit what is left of the scratch.
 * There is room for widths to 512 with 128 query heads a kv head; more is a bug of the caller. */
void mt_att_set_tile(struct mt_att *t, int64_t row_bytes);
/* Elements between rows of a gathered tile: multiples of 512 bytes share few cache sets. */
int64_t mt_att_ld(const struct mt_att *t, int64_t width);

/* A rectangle of work: tokens [lo, hi) against keys [ks, ke). */
struct mt_att_range {
    int64_t lo, hi, ks, ke;
};
/* The tokens of [t0, t1) that see a key of the block at ks. */
struct mt_att_range mt_att_seen(const struct mt_att *t, int64_t t0, int64_t t1, int64_t ks);
/* First key of the block that holds key j. */
static inline int64_t mt_att_block(int64_t j)
{
    return j / ATT_KEYS * ATT_KEYS;
}
/* All ones for the columns of the block at ks that token i sees, zero for the others: as bits, since what is
 * masked out may be NaN. */
MT_VEC_INLINE void mt_att_mask(const struct mt_att *t, int64_t i, int64_t ks, uint32_t mask[ATT_KEYS])
{
    int64_t from = t->begin[i] - ks, to = i + 1 - ks;
    int32_t c0 = (int32_t)(from > 0 ? from : 0), c1 = (int32_t)(to < ATT_KEYS ? to : ATT_KEYS);
    for (int32_t j = 0; j < ATT_KEYS; j++) mask[j] = 0u - (uint32_t)((j >= c0) & (j < c1));
}
/* Token i sees all of the block at ks. */
static inline bool mt_att_whole(const struct mt_att *t, int64_t i, int64_t ks)
{
    return t->begin[i] <= ks && i + 1 >= ks + ATT_KEYS;
}
MT_VEC_INLINE float mt_att_masked(float x, uint32_t mask)
{
    return mt_f32_of_bits(mt_bits_of_f32(x) & mask);
}
MT_VEC_INLINE void mt_att_put_row(const struct mt_att *t, void *to, int64_t row, const float x[ATT_KEYS])
{
    if (t->dtype == MT_F32)
        memcpy((float *)to + row * ATT_KEYS, x, ATT_KEYS * sizeof *x);
    else
        for (int j = 0; j < ATT_KEYS; j++) ((mt_bf16 *)to)[row * ATT_KEYS + j] = mt_bf16_of(x[j]);
}

/* An argument [N, heads, width]: where it is, bytes between tokens and between heads. */
struct mt_att_arg {
    char *at;
    int64_t token, head, width;
};
struct mt_att_arg mt_att_arg(const struct mt_call *c, int i, int64_t width);

/* A call of attention, forward: most NULL, or the largest score of each row; and backward. */
struct mt_att_fwd {
    struct mt_att t;
    struct mt_att_arg out, q, k, v;
    float *lse, *most;
};
struct mt_att_bwd {
    struct mt_att t;
    struct mt_att_arg dq, dk, dv, dout, o, q, k, v;
    const float *lse;
};
/* Kernels of their own for the bf16 of an instruction set, of heads that are no wider than their scratch has room for. */
struct mt_att_kernels {
    int64_t widest;
    void (*fwd)(struct mt_att_fwd *f, int part, int parts);
    void (*bwd)(struct mt_att_bwd *f, int part, int parts);
};
static inline const struct mt_att_kernels *mt_att_own(const struct mt_att *t)
{
    const struct mt_att_kernels *own = t->gemm->attention;
    return own && t->a <= own->widest && t->b <= own->widest ? own : NULL;
}

/* Rows (token, head) of tokens [lo, hi) of x, `per` heads from head g * per on, to rows of mt_att_ld
 * elements; and back, from dense rows of f32 times factor[row] (or 1). */
void mt_att_gather(const struct mt_att *t, void *rows, const struct mt_att_arg *x, int64_t g, int64_t lo,
                   int64_t hi);
void mt_att_spread(const struct mt_att *t, const struct mt_att_arg *x, const float *rows, const float *factor,
                   int64_t per, int64_t g, int64_t lo, int64_t hi);

/* Keys [ks, ke) of x, kv head g, packed: for products with rows of that width (nt), or with rows of keys (nn,
 * from nt). Bytes of either, for a whole block. */
int64_t mt_att_nt_bytes(const struct mt_att *t, int64_t width);
int64_t mt_att_nn_bytes(const struct mt_att *t, int64_t width);
void mt_att_pack(const struct mt_att *t, void *nt, const struct mt_att_arg *x, int64_t g,
                 const struct mt_att_range *r);
void mt_att_turn(const struct mt_att *t, void *nn, const void *nt, const struct mt_att_range *r,
                 int64_t width);

/* out[rows][ATT_KEYS] = x[rows][width] keys^T */
void mt_att_scores(const struct mt_att *t, float *out, const void *x, const void *nt, int64_t rows,
                   const struct mt_att_range *r, int64_t width);
/* acc[rows][width] = acc fade[rows] (or acc, if NULL) + p[rows][ATT_KEYS] keys. work: mt_att_mix_bytes. */
int64_t mt_att_mix_bytes(int64_t width);
void mt_att_mix(const struct mt_att *t, float *acc, const float *fade, const void *p, const void *nn,
                int64_t rows, const struct mt_att_range *r, int64_t width, float *work);
#endif
