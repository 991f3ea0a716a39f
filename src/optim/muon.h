/* muon.h: Muon over a rank's masters.
 *
 * Muon (K. Jordan et al., 2024): the momentum of each matrix is orthogonalised by Newton-Schulz iterations; each expert is a
 * matrix of its own. Matrices of one shape are batched over parameters and layers.
 *
 * Experts are owned whole, so they need no communication; nor do dense matrices that are placed so, nor what a group
 * of one has. A dense matrix that is cut over
 * the ranks of a replica has one owner among them: the rows of its momentum go there, and those of the result come back, in
 * the dtype of the iterations. These matrices are dealt with in windows, two in flight: momentum and collection of one and
 * results of another move on the reduce stream while the compute stream iterates on experts or on a third. In `gather` mode,
 * which is there to compare, every rank gathers all of a window and iterates on it: the same bits.
 *
 * Under muon.per_head a projection of the attention is a stack of matrices, a head each: the rows of a head in q, k and v, its
 * columns in o. It is owned, moved and kept whole, as otherwise; iterations and the factor on the update go by the head. */
#ifndef MT_OPTIM_MUON_H
#define MT_OPTIM_MUON_H
#include <stdio.h>

#include "model/model.h"
#include "optim/piece.h"
#include "shard/owners.h"

struct mt_muon_batch {
    int64_t rows, cols, n; /* n matrices in all, on the busiest rank */
    struct mt_heads heads;
    int first_piece, n_pieces;
};
/* A dense matrix cut over the group. */
struct mt_muon_dense {
    int tensor, cut, owner; /* cut: of its rows in the muon dtype, in mt_store; owner -1: everyone */
    int64_t index;          /* among its owner's of the window */
    int64_t rows_at;        /* of this rank's rows, bytes in the window's row buffer */
};
struct mt_muon_window {
    int64_t rows, cols, most, mine; /* matrices of one shape: those of the busiest owner, and of this rank */
    struct mt_heads heads;
    int first, n; /* in `dense` */
};
enum { MT_MUON_SLOTS = 2 };

struct mt_muon {
    const struct mt_model *m;
    struct mt_piece *piece; /* arrays owned */
    struct mt_muon_batch *batch;
    struct mt_muon_dense *dense;
    struct mt_muon_window *window;
    struct mt_load *load; /* by rank of the replica: iterations of a step, and bytes in the muon dtype */
    int n_pieces, n_batches, n_dense, n_windows;
    int members, me; /* of the group that dense matrices are cut over */
    bool exchange;
    mt_dtype dtype;
    /* What several matrices of a batch, or of a window on one rank, may take together. */
    int64_t batch_bytes;
    enum mt_arena
        side; /* where batches are iterated on: the host's under optim.compute: host. Windows: always the device */
    /* Rows: the largest batch; iteration workspace, by side; by slot, a window's rows of this rank and its matrices owned here. */
    int32_t u_row, ws_row[MT_N_ARENAS], rows_row[MT_MUON_SLOTS], whole_row[MT_MUON_SLOTS];
    int64_t u_bytes, ws_bytes[MT_N_ARENAS], rows_bytes, whole_bytes;
};
/* m->store laid out; adds cuts to it, and rows to g that are the same on all ranks. */
mt_status mt_muon_init(struct mt_muon *u, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                       mt_err *e);
void mt_muon_release(struct mt_muon *u);
/* After mt_model_turn: the plan of the rank that the model is now of. */
void mt_muon_turn(struct mt_muon *u);
/* The whole plan that ranks must have alike, the store's included. */
uint64_t mt_muon_hash(const struct mt_muon *u);
/* Table of ranks (what they iterate on) and of dense matrices (owners). */
void mt_muon_print(const struct mt_muon *u, FILE *out);

/* Enqueues the update; scale: the factor on gradients, f32, as either side finds it; factor: on every learning rate. */
void mt_muon_update(const struct mt_muon *u, struct mt_rank *r, const mt_config *c,
                    const mt_view scale[MT_N_ARENAS], double factor);
#endif
