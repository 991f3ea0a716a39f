/* replicas.h: whether the replicas of a model still hold the same weights, to the bit.
 *
 * They begin alike and all of them do the same arithmetic on the same sums, so that a difference is a fault of some memory,
 * processor or adapter that nothing has reported. Every process hashes its masters, unit by unit; the hashes are compared
 * between the ranks that hold the same shard in different replicas. */
#ifndef MT_TRAIN_REPLICAS_H
#define MT_TRAIN_REPLICAS_H
#include "train/nodes.h"
#include "train/session.h"

struct mt_replicas {
    int64_t good; /* step after which they were last found alike; -1: not yet */
    int64_t *most,
        *least; /* [ranks of a replica][units]; owned, one block; NULL: one replica, or it is never looked at */
    int64_t *here; /* [replicas], in the same block */
    int64_t *own;  /* [ranks here][units], likewise */
    void *copy;    /* of a tensor in memory that the host does not reach; owned */
    int64_t copy_bytes;
};
/* IO: no memory. */
MT_MUST_USE mt_status mt_replicas_open(struct mt_replicas *x, const struct mt_session *s, mt_err *e);
void mt_replicas_close(struct mt_replicas *x);
/* All processes, between two steps. IO, DEVICE: the weights cannot be read. CORRUPT names the ranks, their nodes and a unit: every process has the same message. */
MT_MUST_USE mt_status mt_replicas_check(struct mt_replicas *x, const struct mt_session *s,
                                        const struct mt_nodes *nodes, int64_t step, mt_err *e);
#endif
