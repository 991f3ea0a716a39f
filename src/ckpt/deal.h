/* deal.h: who reads which bytes of a checkpoint, and who gets them from whom.
 *
 * A piece of a tensor is read by one process of the job, as a whole, so that it can compare the checksum: by the one that needs
 * most of its rows, of several alike by the one that has least to read. Rows that others need too are passed on, in waves: what a
 * process has read for others in one wave is kept in its staging buffer until they have it. All processes make the same deal from
 * the same lists, and keep what concerns them. */
#ifndef MT_CKPT_DEAL_H
#define MT_CKPT_DEAL_H
#include "ckpt/items.h"

/* Bytes that a process reads in one wave, unless one row has more: for others, which takes a buffer of as many; for itself
 * alone, after which all hear whether some process has failed. */
struct mt_deal_budget {
    int64_t staged, alone;
};
static inline struct mt_deal_budget mt_deal_usual(void)
{
    return (struct mt_deal_budget){INT64_C(64) << 20, INT64_C(4) << 30};
}

/* Rows [row0, row0 + rows) of an item, where the checkpoint has them. */
struct mt_deal_piece {
    int64_t item, row0, rows;
    int64_t file, at;
    uint64_t xxh3;
};
/* Rows of an item that some rank holds; of other processes without an address. */
struct mt_deal_need {
    int64_t item, row0, rows;
    float *to;
    int32_t process;
};
/* Rows of a piece that this process reads in one wave. */
struct mt_deal_span {
    int64_t piece, row0, rows;
    int64_t staged; /* their place in the staging buffer; -1: nobody else needs them */
    int64_t copy, n_copies;
    int32_t wave;
};
/* Rows of a span that a rank of this process needs. */
struct mt_deal_copy {
    float *to;
    int64_t row0, rows;
};
/* Bytes from one process to another: their place in the staging buffer where they are sent, an address where they arrive. The
 * message of a wave from one to another is all of them, one behind the other. */
struct mt_deal_move {
    int32_t wave, process;
    int64_t order, bytes, staged;
    void *to;
};
struct mt_deal_moves {
    struct mt_deal_move *x; /* owned: n of them, by wave, process, order */
    int64_t n, room;
};
struct mt_deal {
    struct mt_deal_piece *piece; /* owned, by item and row */
    int64_t n_pieces;
    struct mt_deal_span *span; /* owned, by wave, file and place */
    int64_t n_spans, span_room;
    struct mt_deal_copy *copy; /* owned */
    int64_t n_copies, copy_room;
    struct mt_deal_moves send, arrive;
    int32_t waves; /* of the process that has most */
    int64_t staging,
        message;          /* bytes: of the staging buffer, of the largest message from or to this process */
    int64_t read, passed; /* bytes of this process */
};

/* Which processes can read which files, where not all can read all. */
struct mt_deal_holders {
    const int64_t *has; /* [file][processes], 0: not; NULL: all can */
};
/* Takes the pieces, which cover each item that is needed, over; needs: of all processes, sorted here. Every file that has
 * a piece has a holder. IO: no memory. A failure
 * leaves what mt_deal_close releases. */
MT_MUST_USE mt_status mt_deal_make(struct mt_deal *d, const struct mt_ckpt_items *items,
                                   const struct mt_job *job, struct mt_deal_piece *piece, int64_t n_pieces,
                                   struct mt_deal_need *need, int64_t n_needs, struct mt_deal_budget budget,
                                   struct mt_deal_holders holders, mt_err *e);
void mt_deal_close(struct mt_deal *d);
#endif
