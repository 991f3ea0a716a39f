/* piece.h: parts of tensors that are whole where they are, and their strips, as the optimizers of whole matrices go through them. */
#ifndef MT_OPTIM_PIECE_H
#define MT_OPTIM_PIECE_H
#include "shard/strip.h"

/* Parts of a tensor that are whole where they are: experts of a rank, as many as the busiest rank has; or a dense matrix,
 * which is its owner's. */
struct mt_piece {
    int tensor;
    int64_t first, n;
};
static inline const struct mt_bucket *mt_piece_bucket(const struct mt_store *s, int tensor)
{
    return &s->bucket[s->matrix[s->tensor[tensor].matrix].bucket];
}
/* Parts of the tensor on the rank that has most. */
static inline int64_t mt_piece_most(const struct mt_store *s, int tensor)
{
    const struct mt_bucket *b = mt_piece_bucket(s, tensor);
    return s->unit[b->unit].experts ? (b->n + b->members - 1) / b->members : 1;
}
/* Whether the tensor's state passes through slots. */
static inline bool mt_piece_strips(const struct mt_store *s, int tensor)
{
    return mt_bucket_offloads(s, s->matrix[s->tensor[tensor].matrix].bucket);
}
/* The parts of a piece that this rank has. */
static inline int64_t mt_piece_here(const struct mt_store *s, const struct mt_piece *p)
{
    int64_t have = mt_store_local(s, p->tensor).parts - p->first;
    return have < 0 ? 0 : have < p->n ? have : p->n;
}
/* A state of them; MT_NONE if there are none. */
static inline mt_view mt_piece_state(const struct mt_store *s, const struct mt_piece *p, enum mt_state what)
{
    int64_t n = mt_piece_here(s, p);
    return n ? mt_view_part(mt_store_local_state(s, p->tensor, what), p->first, n) : MT_NONE;
}

/* A row of the ledger as it is, or none of it. */
static inline mt_view mt_piece_row(int32_t row, int64_t bytes)
{
    return mt_view_of(row, MT_U8, 0, bytes, 0, 0);
}
/* As a stack of one matrix. */
static inline mt_view mt_piece_one(mt_view v)
{
    return mt_view_stack(v, 1, v.bytes);
}
/* The strip's rows of `whole`, [1, rows, cols], which holds the tensor's from row0 of its matrix on. */
static inline mt_view mt_piece_strip(mt_view whole, int64_t row0, const struct mt_strip *p)
{
    return mt_piece_one(
        mt_view_part(mt_view_as(whole, whole.dim[1], whole.dim[2], 0), p->own0 - row0, p->own));
}
#endif
