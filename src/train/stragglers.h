/* stragglers.h: ranks that need longer than most for their own work.
 *
 * A step ends for all ranks together, so that its time tells nothing of who was late. What does is the time in which a rank's own
 * operations and host code ran, and in which it waited for its data; waiting for other ranks is no part of it. */
#ifndef MT_TRAIN_STRAGGLERS_H
#define MT_TRAIN_STRAGGLERS_H
#include "train/nodes.h"
#include "train/session.h"

struct mt_stragglers {
    int64_t *ns,
        *data_ns; /* [world] since the last look: of the ranks here, then of all; owned, one block; NULL: no others */
    int64_t *before; /* [ranks here], in the same block: their work until then */
    int64_t *sorted; /* [world], likewise */
    int64_t steps;   /* since then */
};
enum { MT_STRAGGLERS_TEXT = 400 };

/* IO: no memory. */
MT_MUST_USE mt_status mt_stragglers_open(struct mt_stragglers *x, const struct mt_session *s, mt_err *e);
void mt_stragglers_close(struct mt_stragglers *x);
/* The i-th rank here has waited for its batch. */
void mt_stragglers_data(struct mt_stragglers *x, const struct mt_session *s, int i, double seconds);
/* A step is over. `look`: all processes compare. fields: for a line of metrics.jsonl, each after a comma, "" without a look:
 *   , "rank_s": [MEDIAN, LONGEST], "stragglers": [[RANK, NODE, TIMES THE MEDIAN], ...]
 * seconds a step, and those whose time is guard.straggler_factor times the median or more, the worst first, as far as there is
 * room. The first process tells the terminal of the worst. */
void mt_stragglers_step(struct mt_stragglers *x, const struct mt_session *s, const struct mt_nodes *nodes,
                        int64_t step, bool look, char fields[MT_STRAGGLERS_TEXT]);
#endif
