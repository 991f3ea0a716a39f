/* shampoo.h: Shampoo over a rank's masters: gradients preconditioned on both sides of a matrix by roots of means of products.
 *
 * V. Gupta et al., 2018, arXiv 1802.09568, algorithm 1, in the form of H.-J. M. Shi et al., 2023, arXiv 2309.06497, algorithm 2, with
 * means that decay, corrected for their beginning, and the norm of Adam's update. For a matrix of R rows and C columns with gradient
 * G in step t, from 1:
 *
 *   M = b1 M + (1 - b1) G                              V = b2 V + (1 - b2) G^2
 *   L = b2 L + (1 - b2) G G^T                          R = b2 R + (1 - b2) G^T G
 *   A = M / (1 - b1^t) / (sqrt(V / (1 - b2^t)) + graft_eps)
 *   U = (L / (1 - b2^t) + eps)^-1/4 M (R / (1 - b2^t) + eps)^-1/4
 *   W = W (1 - lr decay) - lr |A| U / |U|
 *
 * Roots are computed by eigenvalues at step shampoo.start and at every multiple of shampoo.frequency behind it; before it the update
 * is A. A side of more than shampoo.max_dim has no root, and the other one's is then -1/2. Factors are L, R and the two roots; which
 * matrices it takes, and where they are worked on: optim/factored.h. */
#ifndef MT_OPTIM_SHAMPOO_H
#define MT_OPTIM_SHAMPOO_H
#include "optim/factored.h"

/* u: those of MT_SHAMPOO. Enqueues the update on the compute stream. */
void mt_shampoo_update(const struct mt_factored *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                       int64_t step, double factor);
#endif
