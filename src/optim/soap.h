/* soap.h: SOAP over a rank's masters: Adam in the eigenbasis of Shampoo's preconditioner.
 *
 * N. Vyas et al., 2024, arXiv 2409.11321, algorithm 3, for a matrix of R rows and C columns with gradient G, its mean M, the means L
 * of G G^T and R of G^T G, and bases QL, QR of them: Adam with second moments V runs on QL^T G QR and QL^T M QR, and its update is
 * turned back. Every soap.frequency steps a basis goes through one step of orthogonal iteration, Q = qr(L Q) (algorithm 4). As in
 * the authors' program, the first step only makes L, R and their eigenvectors, and changes no weight; a side of more than
 * soap.max_dim is not turned; vectors are AdamW's.
 *
 * Whole matrices only, so nothing travels between ranks: experts, dense matrices placed `owned`, a group of one. M and V are states
 * like any others; L, R, QL and QR are factors (shard/factors.h), and stay on the device. Arithmetic is f32, of bases f64. */
#ifndef MT_OPTIM_SOAP_H
#define MT_OPTIM_SOAP_H
#include "model/model.h"
#include "optim/piece.h"

/* Matrices of a piece: the gradient, the update, the turned gradient, and what is between two turns. */
enum { MT_SOAP_GRAD, MT_SOAP_UPDATE, MT_SOAP_TURNED, MT_SOAP_BETWEEN, MT_SOAP_BUFFERS };
struct mt_soap {
    const struct mt_model *m;
    struct mt_piece *piece; /* owned */
    int n_pieces;
    int32_t row[MT_SOAP_BUFFERS], ws_row;
    int64_t bytes, ws_bytes; /* of a buffer, of the workspace */
};
/* m->store laid out; adds rows to g that are the same on all ranks. */
mt_status mt_soap_init(struct mt_soap *u, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                       mt_err *e);
void mt_soap_release(struct mt_soap *u);
uint64_t mt_soap_hash(const struct mt_soap *u, uint64_t h);
/* Enqueues the update on the compute stream. scale: the factor on gradients; step: from 0; factor: on every learning rate. */
void mt_soap_update(const struct mt_soap *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                    int64_t step, double factor);
#endif
