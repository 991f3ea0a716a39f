/* soap.h: SOAP over a rank's masters: Adam in the eigenbasis of Shampoo's preconditioner.
 *
 * N. Vyas et al., 2024, arXiv 2409.11321, algorithm 3, for a matrix of R rows and C columns with gradient G, its mean M, the means L
 * of G G^T and R of G^T G, and bases QL, QR of them: Adam with second moments V runs on QL^T G QR and QL^T M QR, and its update is
 * turned back. Every soap.frequency steps a basis goes through one step of orthogonal iteration, Q = qr(L Q) (algorithm 4). As in
 * the authors' program, the first step only makes L, R and their eigenvectors, and changes no weight; a side of more than
 * soap.max_dim is not turned; vectors are AdamW's.
 *
 * Factors are L, R, QL and QR; which matrices it takes, and where they are worked on: optim/factored.h. */
#ifndef MT_OPTIM_SOAP_H
#define MT_OPTIM_SOAP_H
#include "optim/factored.h"

/* u: those of MT_SOAP. Enqueues the update on the compute stream. */
void mt_soap_update(const struct mt_factored *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                    int64_t step, double factor);
#endif
