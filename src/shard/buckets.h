/* buckets.h: parts of mt_store_layout: which matrices lie in one bucket, who owns those that are owned, and where these are. */
#ifndef MT_SHARD_BUCKETS_H
#define MT_SHARD_BUCKETS_H
#include "shard/store.h"

/* Forms every unit's buckets and puts its matrices into them: first those with a working copy. Then the matrices that are
 * owned whole are dealt out. Both are pure functions of what all ranks have alike. */
void mt_store_form_buckets(struct mt_store *s);

struct mt_state_row {
    const char *name;
    enum mt_row_class row_class;
};
extern const struct mt_state_row mt_state_rows[MT_N_STATES];

/* The rows of masters, gradients, moments and weights of all buckets with uneven pieces, once these are cut, and each one's place
 * in them: dense ones in rows of theirs, experts in theirs. A rank has something of few of these buckets, or more of one than of
 * the next: rows of their own, sized for the largest piece, would be partly empty. */
void mt_store_shared_rows(struct mt_store *s, struct mt_ledger *g, bool inference);
/* Each one's place anew, where the rank has changed. */
void mt_store_shared_places(struct mt_store *s);
#endif
