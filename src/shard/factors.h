/* factors.h: state of whole matrices that is no part of their rows: for each part of a tensor, and for each of its sides that is to
 * have them, a mean of products and a basis, both square, f32.
 *
 * Such a tensor is whole where it is: experts, dense matrices that are owned, and everything in a group of one. A rank's factors
 * lie one behind the other in one row on the device, in the order of tensors; the row is as large as the fullest rank's. */
#ifndef MT_SHARD_FACTORS_H
#define MT_SHARD_FACTORS_H
#include "shard/store.h"

/* Means and bases, of rows (left) and of columns (right). */
enum mt_factor { MT_FACTOR_LEFT, MT_FACTOR_RIGHT, MT_FACTOR_LEFT_BASIS, MT_FACTOR_RIGHT_BASIS, MT_N_FACTORS };

/* Edge of a factor of the tensor; 0: it has none. */
int64_t mt_factor_edge(const struct mt_tensor *t, enum mt_factor f);
/* This rank's, [parts, edge, edge]; MT_NONE: it has none of the tensor. */
mt_view mt_store_factor(const struct mt_store *s, int tensor, enum mt_factor f);
/* All of this rank's, [elements]; MT_NONE: no rank has any. */
mt_view mt_store_factors(const struct mt_store *s);

/* At the end of mt_store_layout; and each tensor's place anew, where the rank has changed. */
void mt_factors_layout(struct mt_store *s, struct mt_ledger *g);
void mt_factors_places(struct mt_store *s);
#endif
