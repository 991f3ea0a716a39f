/* rounds.h: how routed rows are cut into rounds that bounded buffers can take, on every rank of an expert group.
 *
 * Each member's experts have one order of rows: by expert, then source rank, then token. A round covers a range of it, at
 * most `cap` rows, ended at an expert's end or at a multiple of MT_ROUND_ROWS of its rows, so that weight gradients have the
 * same bits for any number of rounds. All members know all counts, so they cut alike. */
#ifndef MT_MODEL_ROUNDS_H
#define MT_MODEL_ROUNDS_H
#include <stdbool.h>
#include <stdint.h>

#include "device/op.h"

/* Of one expert group: who sends how many rows to whom. */
struct mt_routing {
    const int32_t *counts; /* [ep, experts]: rows that a source has for an expert */
    int64_t experts;       /* of all members; each member has experts / ep of them, in order */
    int ep, me;
    int64_t cap;  /* rows of a bounded buffer */
    int64_t sent; /* rows that every source sends in all: the capacity of a full buffer */
};
struct mt_round {
    int index;                                                       /* from 1; 0: none yet */
    int64_t first, rows;                                             /* of this member's order */
    int64_t n[MT_MAX_EP];                                            /* rows of every member */
    int64_t begin[MT_MAX_EP][MT_MAX_EP], part[MT_MAX_EP][MT_MAX_EP]; /* [member][source]: of the rows that the
        source sends, which ones; begin is 0 where there are none */
    /* Where every member's next round goes on: behind `at` rows, in an expert that `before` of them precede, of which source
     * s sends those from sent[s] on. */
    int64_t at[MT_MAX_EP], left[MT_MAX_EP], expert[MT_MAX_EP], before[MT_MAX_EP];
    int64_t sent[MT_MAX_EP][MT_MAX_EP]; /* [member][source] */
};
/* Advances n to the next round; false when every member's rows are covered. There is always one, perhaps empty. */
bool mt_round_next(struct mt_round *n, const struct mt_routing *r);
/* The same for a recording: `rounds` rounds, full ones while rows of a balanced load remain. */
bool mt_round_forced(struct mt_round *n, const struct mt_routing *r, int rounds);
/* What the exchange of a round moves: [ep] peers. Rows of a peer are contiguous on both sides. */
void mt_round_peers(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer);
/* The way back: what was received goes to where it was sent from. */
void mt_round_home(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer);
#endif
