/* permute.h: a keyed bijection of [0, n), the shuffle of samples.
 *
 * A Feistel network over the smallest power of two that holds n, walked along its cycle until it lands below
 * n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). No state: the sample at any position
 * of any epoch costs the same, so resuming needs one integer. */
#ifndef MT_DATA_PERMUTE_H
#define MT_DATA_PERMUTE_H
#include <stdint.h>

/* The image of i, 0 <= i < n, under the permutation number `epoch` of `seed`. Fewer than 2 walks on
 * average. */
int64_t mt_permute(uint64_t seed, uint64_t epoch, int64_t i, int64_t n);
#endif
