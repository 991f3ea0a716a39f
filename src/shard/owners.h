/* owners.h: which rank works on which matrix. */
#ifndef MT_SHARD_OWNERS_H
#define MT_SHARD_OWNERS_H
#include <stdint.h>

/* What a matrix costs its owner, or what a rank has in all. Whole numbers: their sums are exact. */
struct mt_load {
    double flops;
    int64_t bytes;
};

/* owner[i] in [0, ranks) for n items: the longest first, each to the rank that has least by then. Items of equal flops go
 * by bytes, then by index; so do ranks. Items without flops come last, each to the rank with fewest bytes. A pure function:
 * all ranks find the same owners. load[ranks] holds what each rank has to begin with, and comes back with what it has
 * been given besides. */
void mt_owners_assign(int *owner, struct mt_load *load, int ranks, const struct mt_load *item, int n);

/* The first of rank k's items where n items, one like the other, are spread over `ranks`; k may be `ranks`. Where they do not
 * divide there are pieces of two sizes: rank k has in each turn what rank k + 1 had in the one before, so over any number of
 * turns the ranks' sums differ by one at most. */
int64_t mt_owners_turn(int64_t n, int ranks, int64_t turn, int64_t k);

/* The busiest rank over the mean, in flops; 1 if nobody has anything. */
double mt_owners_imbalance(const struct mt_load *load, int ranks);
#endif
