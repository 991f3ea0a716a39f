/* rows.h: rows of multi-head latent attention in Hugging Face folders, where they lie in another order, or beside another tensor's.
 *
 *   q, q_b           a head is [own | rotated], the rotated part in pairs (0, 1), (2, 3); ours is [rotated | own], in halves
 *   kv_a, k_rope     one tensor, one behind the other; the rotated part in pairs
 *   k_b, v_b         one tensor, a head is [key | value] */
#ifndef MT_HF_ROWS_H
#define MT_HF_ROWS_H
#include "model/param.h"

/* Rows of their tensor, of which ours has `rows`. */
int64_t mt_hf_their_rows(const struct mt_shape *s, int kind, int64_t rows);
/* Where row `row` of ours lies in theirs; *n: so many from it on follow each other in both, at least 1, perhaps past ours. */
int64_t mt_hf_their_row(const struct mt_shape *s, int kind, int64_t row, int64_t *n);
/* Whether rows of the kind lie as ours do, one tensor in one. */
bool mt_hf_rows_alike(const struct mt_shape *s, int kind);
#endif
