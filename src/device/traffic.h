/* traffic.h: the byte ledger: what a rank's collectives put on the wire.
 *
 * Counted twice. Where a collective is enqueued, from its cut, its units or its peers: bytes sent and received, and how many
 * of them are padding of the working format rather than parameters. And where it runs, from the copies themselves
 * (`moved`): the two agree, or something moves that nobody asked for. A member's own piece does not count.
 *
 * Since the streams' last restart, that is, of one step. Nothing here allocates. */
#ifndef MT_DEVICE_TRAFFIC_H
#define MT_DEVICE_TRAFFIC_H
#include <stdatomic.h>

#include "device/device.h"
#include "device/trace.h"

enum mt_link { MT_LINK_NODE, MT_LINK_NET, MT_N_LINKS }; /* inside a node, between nodes */

struct mt_flow {
    int64_t sent, received;         /* bytes */
    int64_t sent_pad, received_pad; /* of these, padding */
};
/* Members [lo, hi) of a group of n are on this member's node. */
struct mt_near {
    int n, me, lo, hi;
};
struct mt_lane {
    int64_t calls;
    struct mt_flow flow[MT_N_LINKS];
    atomic_llong moved[MT_N_LINKS]; /* received, as counted by what copied it */
};
struct mt_traffic {
    struct mt_near near[MT_MAX_GROUPS];
    struct mt_lane lane[MT_MAX_GROUPS][MT_N_STREAMS][MT_N_COMM_OPS];
};

/* c's groups are known; rank r is on node r / ranks_per_node. Enters t in c. */
void mt_traffic_init(struct mt_traffic *t, struct mt_ctx *c, int ranks_per_node);
void mt_traffic_restart(struct mt_traffic *t);
/* Neighbours of the rank in a group of n ascending ranks, of which it is one. */
struct mt_near mt_near_of(const int *ranks, int n, int rank, int ranks_per_node);
/* c: of kind COMM, as the front end has it. */
void mt_traffic_add(struct mt_traffic *t, int stream, const struct mt_call *c, const struct mt_cut *cuts);

static inline enum mt_link mt_link_to(const struct mt_near *g, int64_t member)
{
    return member >= g->lo && member < g->hi ? MT_LINK_NODE : MT_LINK_NET;
}
static inline struct mt_lane *mt_traffic_lane(struct mt_traffic *t, int group, int stream, int op)
{
    return &t->lane[group][stream][op - MT_COMM_FIRST];
}
/* For what moves the pieces of one call: counts what it receives, and enters that at the end. A call on the executor has its
 * lane and its neighbours in arguments that no collective has. */
enum { MT_ARG_LANE = MT_MAX_ARGS - 2, MT_ARG_NEAR = MT_MAX_ARGS - 1 };
struct mt_moved {
    struct mt_lane *lane; /* NULL: not counted */
    const struct mt_near *near;
    int64_t bytes[MT_N_LINKS];
};
static inline void mt_moved_init(struct mt_moved *m, const struct mt_call *c)
{
    *m = (struct mt_moved){.lane = c->arg[MT_ARG_LANE], .near = c->arg[MT_ARG_NEAR]};
}
static inline void mt_moved_add(struct mt_moved *m, int64_t member, int64_t bytes)
{
    if (m->lane && member != m->near->me) m->bytes[mt_link_to(m->near, member)] += bytes;
}
static inline void mt_moved_end(const struct mt_moved *m)
{
    for (int i = 0; i < MT_N_LINKS && m->lane; i++)
        atomic_fetch_add_explicit(&m->lane->moved[i], m->bytes[i], memory_order_relaxed);
}

/* Adds b's bytes, calls and all, to a. */
void mt_lane_sum(struct mt_lane *a, const struct mt_lane *b);
#endif
