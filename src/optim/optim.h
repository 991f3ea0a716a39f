/* optim.h: one step of AdamW and Muon over a rank's masters.
 *
 * Muon (K. Jordan et al., 2024): the momentum of each matrix is orthogonalised by Newton-Schulz iterations. Matrices of one
 * shape are batched over parameters and layers; each expert is a matrix of its own. Experts are owned whole, so their iterations
 * need no communication; a dense matrix that is cut over ranks has its momentum gathered, and every rank iterates on it. */
#ifndef MT_OPTIM_OPTIM_H
#define MT_OPTIM_OPTIM_H
#include "model/model.h"

struct mt_optim_piece {
    int tensor;
    int64_t first, n; /* parts of the tensor: experts of this rank's, as many as the busiest rank has */
    int cut;          /* a dense matrix cut over ranks: the cut of its momentum in mt_store; -1: whole here */
};
struct mt_optim_batch {
    int64_t rows, cols, n; /* n matrices in all */
    int first_piece, n_pieces;
};
struct mt_optim {
    const struct mt_model *m;
    struct mt_optim_piece *piece;  /* owned */
    struct mt_optim_batch *batch;
    int n_pieces, n_batches;
    mt_dtype muon_dtype;
    int32_t u_row, ws_row, own_row; /* largest batch; iteration workspace; this rank's rows of a cut matrix */
    int64_t u_bytes, ws_bytes, own_bytes;
    mt_view sumsq, sumsq_all, sumsq_sum; /* exact words: this rank's, every rank's, the total */
    mt_view scale, norm;           /* f32 factor of clipping, f64 norm before it */
};
/* Muon matrices in flight at a time take at most this many bytes, or one matrix. */
enum { MT_MUON_BATCH_BYTES = 64 << 20 };

/* Adds cuts to the model's store. */
mt_status mt_optim_init(struct mt_optim *o, struct mt_model *m, const mt_config *c, struct mt_ledger *g, mt_err *e);
void mt_optim_release(struct mt_optim *o);

/* Gradients -> norm over all parameters and ranks, and the factor that clips it. */
void mt_optim_norm(const struct mt_optim *o, struct mt_rank *r, double max_norm);
/* step counts from 0; factor multiplies every learning rate. */
void mt_optim_update(const struct mt_optim *o, struct mt_rank *r, const mt_config *c, int64_t step, double factor);
#endif
