/* balance.h: which rank and micro-batch each sequence of a step goes to, by what it costs to compute.
 *
 * A sequence of T tokens costs T times the price of a token, as padding is computed too, and the price of a
 * pair for every pair of tokens of which one sees the other: T^2 / 2 of them in one long document, few in many
 * short ones. Ranks wait for each other at every block of every micro-batch, where its weights are gathered
 * and its experts exchange rows, so a step takes the sum over micro-batches of the costliest rank's; or, where
 * all micro-batches pass a block together, the costliest rank's sum.
 *
 * The sequences of a step are what they were, and each rank has as many: only their places change, so sums
 * over the step differ by their rounding. Place (m R + r) B + b is row b of micro-batch m on rank r. In the
 * order of the data, sequence i of a step has place i.
 *
 * Balanced: sequences are sorted by cost, and the R B costliest are the first micro-batch, and so on, so that
 * micro-batches are alike over ranks (of all partitions into micro-batches of one row, none waits for less).
 * Inside a micro-batch each rank gets a row a round, the costliest for the rank with the least so far; then
 * the costliest of these go to the ranks with the least in the micro-batches before. So two ranks' totals
 * differ by at most what two sequences of one round, R neighbours in the sorted order, do. Where none of it
 * saves time, the order of the data stays.
 *
 * The result depends on the costs only: every process comes to the same, without a word to the others. */
#ifndef MT_DATA_BALANCE_H
#define MT_DATA_BALANCE_H
#include "base/status.h"
#include "data/corpus.h"

#include <stdbool.h>
#include <stdint.h>

/* FLOPs of training, or anything in proportion, of a token and of a pair of tokens. {0, 1} counts pairs. */
typedef struct mt_balance_price {
    double token, pair;
    double near; /* of a pair inside the window, in all layers that have one */
    int64_t window;
} mt_balance_price;
/* Of a sequence of T tokens and so many pairs. */
static inline double mt_balance_cost(const mt_balance_price *p, int64_t T, double pairs, double near)
{
    return p->token * (double)T + p->pair * pairs + p->near * near;
}

typedef struct mt_balance_layout {
    int64_t n_ranks, n_micro, micro_batch; /* R, M, B; G = M R B sequences a step */
    bool together; /* all micro-batches pass a block together, and ranks wait for each other once a step */
} mt_balance_layout;

/* Cost of the costliest rank over the mean, as the step waits for it: 1 is perfect. */
typedef struct mt_imbalance {
    double data, placed; /* in the order of the data, and as placed */
} mt_imbalance;

typedef struct mt_balance_item {
    double key;
    int64_t id;
} mt_balance_item;

/* Owns its arrays. Only `cost` is for callers to write. */
typedef struct mt_balance {
    mt_balance_layout at;
    int64_t n;                             /* G */
    double *cost;                          /* [G] of sequence i of the step, at least 0 */
    int64_t *place;                        /* [G] the sequence at each place */
    mt_balance_item *sorted, *part, *rank; /* scratch: [G], [R], [R] */
    int64_t *rows;                         /* scratch: [R B] */
} mt_balance;

/* 6 FLOPs a matrix parameter that a token meets, and attention's two products, forward and backward, per
 * query head, `key` and `value` wide, in `full` layers and in `near` ones with a window. */
typedef struct mt_balance_model {
    double parameters;
    int64_t full, near, window, heads, key, value;
} mt_balance_model;
mt_balance_price mt_balance_price_of(const mt_balance_model *m);

/* Room for a layout; the order is that of the data. MT_IO without memory. */
MT_MUST_USE mt_status mt_balance_open(mt_balance *b, const mt_balance_layout *at, mt_err *e);
void mt_balance_close(mt_balance *b);

/* b->cost = costs of the sequences of optimizer step `step` (from 0) of a run over `corpus`. Reads lengths of
 * documents, no token: a document that only data.eod ends goes on. */
void mt_balance_read(mt_balance *b, mt_corpus *corpus, mt_balance_price price, int64_t step);
/* b->place from b->cost: balanced, or in the order of the data. */
mt_imbalance mt_balance_place(mt_balance *b);
mt_imbalance mt_balance_keep(mt_balance *b);
/* cost[M R]: cost of micro-batch m on rank r, as placed, at m R + r. */
void mt_balance_costs(const mt_balance *b, double *cost);
#endif
