/* items.h: what a checkpoint consists of: named f32 tensors, in pieces in the arenas of the ranks that hold them. */
#ifndef MT_CKPT_ITEMS_H
#define MT_CKPT_ITEMS_H
#include "comm/job.h"
#include "model/model.h"

struct mt_ckpt_piece {
    float *data;        /* in an arena */
    int64_t row0, rows; /* of the tensor */
    int rank;           /* whose it is */
    bool copy;          /* another rank's piece has these rows too (a replica): read, not written */
};
struct mt_ckpt_item {
    char name[112];
    int64_t rows, cols; /* of the whole tensor; cols 0: a vector */
    bool moment;
    int touch; /* what of a rank's state it is: a number below mt_touches (model/touch.h) */
    int64_t first,
        n; /* its pieces in mt_ckpt_items.piece; those that are no copies ascend and cover its rows */
};
struct mt_ckpt_items {
    const struct mt_ctx *
        reach; /* by whose mt_copy_now the pieces are reached; NULL: by the host's loads and stores; borrowed */
    struct mt_ckpt_item *item; /* owned */
    struct mt_ckpt_piece *piece;
    int64_t n, n_pieces;
};
/* A rank of this process. */
struct mt_ckpt_rank {
    const struct mt_model *m;
    const struct mt_ctx *ctx;
};
/* Masters, moments (unless the models are for inference) and router biases, in the order of the parameter table: the same for
 * any number of ranks. rank: all ranks of this process, ascending, n of them. */
MT_MUST_USE mt_status mt_ckpt_items_open(struct mt_ckpt_items *x, const struct mt_ckpt_rank *rank, int n,
                                         mt_err *e);
void mt_ckpt_items_close(struct mt_ckpt_items *x);
/* Brings the pieces of item i into the order of their rows, which that of the ranks need not be. */
void mt_ckpt_item_sort(struct mt_ckpt_items *x, int64_t i);
static inline int64_t mt_ckpt_row_bytes(const struct mt_ckpt_item *i)
{
    return 4 * (i->cols ? i->cols : 1);
}
static inline int64_t mt_ckpt_item_bytes(const struct mt_ckpt_item *i)
{
    return i->rows * mt_ckpt_row_bytes(i);
}
#endif
