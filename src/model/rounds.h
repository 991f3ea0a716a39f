/* rounds.h: how the order of routed rows is cut into rounds that a bounded buffer can take. */
#ifndef MT_MODEL_ROUNDS_H
#define MT_MODEL_ROUNDS_H
#include <stdbool.h>
#include <stdint.h>

struct mt_round {
    int64_t first, rows;
    int index; /* from 1; 0: none yet */
};
/* Advances n to the next round: at most cap rows, ended at an expert's end or at a multiple of MT_ROUND_ROWS of its rows.
 * counts: [experts], their sum is total. False when all rows have been covered; total 0 gives one empty round. */
bool mt_round_next(struct mt_round *n, const int32_t *counts, int64_t experts, int64_t cap, int64_t total);
/* The same for a recording: `rounds` rounds of cap rows, the last ones possibly empty. */
bool mt_round_forced(struct mt_round *n, int64_t cap, int64_t total, int rounds);
#endif
