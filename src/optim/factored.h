/* factored.h: what the optimizers of whole matrices with factors share, SOAP and Shampoo: which matrices a rank updates together,
 * the buffers for that, and passes over state that may live in host memory.
 *
 * Whole matrices only, so nothing travels between ranks: experts, dense matrices placed `owned`, a group of one. M and V are states
 * like any others; factors (shard/factors.h) stay on the device. Arithmetic is f32, of factors f64. */
#ifndef MT_OPTIM_FACTORED_H
#define MT_OPTIM_FACTORED_H
#include "model/model.h"
#include "optim/piece.h"
#include "shard/factors.h"

/* Matrices of a piece: the gradient, the update, what has been turned, and what is between two turns. */
enum { MT_FACTORED_GRAD, MT_FACTORED_UPDATE, MT_FACTORED_TURNED, MT_FACTORED_BETWEEN, MT_FACTORED_BUFFERS };
struct mt_factored {
    const struct mt_model *m;
    struct mt_piece *piece; /* owned */
    int n_pieces;
    int32_t row[MT_FACTORED_BUFFERS], ws_row;
    int64_t bytes, ws_bytes; /* of a buffer, of the workspace */
};
/* Those of an optimizer, by whose name its rows are called; at most batch_bytes together, or one matrix. m->store laid out; adds rows
 * to g that are the same on all ranks. */
mt_status mt_factored_init(struct mt_factored *u, struct mt_model *m, enum mt_optimizer optimizer,
                           const char *name, int64_t batch_bytes, struct mt_ledger *g, mt_err *e);
void mt_factored_release(struct mt_factored *u);
uint64_t mt_factored_hash(const struct mt_factored *u, uint64_t h);

/* An update: scale: the factor on gradients; step: from 0; factor: on every learning rate. */
struct mt_factored_run {
    const struct mt_factored *u;
    struct mt_rank *r;
    const mt_config *c;
    mt_view scale;
    int64_t step;
    double factor;
};
struct mt_stream *mt_factored_stream(const struct mt_factored_run *x);
/* Buffers of a piece begin and end. */
void mt_factored_open(const struct mt_factored_run *x);
void mt_factored_close(const struct mt_factored_run *x);
/* A buffer of n matrices of the tensor; the workspace. */
mt_view mt_factored_buffer(const struct mt_factored_run *x, int tensor, int which, int64_t n);
mt_view mt_factored_ws(const struct mt_factored_run *x);
/* Factors of the piece on this rank; MT_NONE: there are none. */
mt_view mt_factored_factor(const struct mt_factored_run *x, const struct mt_piece *p, enum mt_factor f);

/* Where a visit finds rows of a tensor: states, and the piece's buffers. */
struct mt_factored_place {
    int tensor;
    mt_view state[MT_N_STATES], buffer[MT_FACTORED_BUFFERS];
};
typedef void mt_factored_visit(const struct mt_factored_run *x, const struct mt_factored_place *p);
/* All rows of the piece, in place or strip by strip. uses: bits of the states. */
void mt_factored_each(const struct mt_factored_run *x, const struct mt_piece *p, unsigned uses,
                      mt_factored_visit *f);
/* Buffer `to` = QL from QR, each transposed or not, with the factors that there are. Two products go by the buffer between. */
struct mt_factored_turn {
    bool left, right;
};
void mt_factored_product(const struct mt_factored_run *x, const struct mt_piece *p, int to, int from,
                         struct mt_factored_turn turned);
#endif
