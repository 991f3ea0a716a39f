/* world.h: what is ordered when the streams of several ranks run their steps: happens-before over all recordings, in which a
 * collective begins when all of its members are there, and ends for all at once. */
#ifndef MT_TESTS_WORLD_H
#define MT_TESTS_WORLD_H
#include "ranks.h"

#include "device/group.h"
#include "device/order.h"

enum { WORLD_RANKS = 4, WORLD_STREAMS = WORLD_RANKS * MT_N_STREAMS };

struct world_clock {
    int64_t at[WORLD_STREAMS]; /* by rank and stream: the position up to which it is known to be done */
};
struct world_order {
    int ranks;
    const struct mt_recording *q;               /* by rank; borrowed */
    struct mt_group *const *group[WORLD_RANKS]; /* by rank and group; borrowed */
    int64_t skip[WORLD_RANKS];                  /* by rank: the record whose wait is ignored; -1 */
    struct world_clock *before[WORLD_RANKS];    /* by record: what is done when it starts; owned */
    int64_t *index[WORLD_RANKS][MT_N_STREAMS];  /* record at a position; owned */
    int64_t last[WORLD_RANKS][MT_N_STREAMS];    /* positions that there are */
    int64_t done[WORLD_RANKS][MT_N_STREAMS];    /* positions that have been run */
    struct world_clock now[WORLD_RANKS][MT_N_STREAMS];
};

static inline void world_learn(struct world_clock *a, const struct world_clock *b)
{
    for (int i = 0; i < WORLD_STREAMS; i++)
        if (b->at[i] > a->at[i]) a->at[i] = b->at[i];
}
static inline const struct mt_rec *world_next(const struct world_order *o, int r, int s)
{
    return o->done[r][s] < o->last[r][s] ? &o->q[r].rec[o->index[r][s][o->done[r][s] + 1]] : NULL;
}
static inline void world_start(struct world_order *o, int r, int s, const struct world_clock *known)
{
    world_learn(&o->now[r][s], known);
    o->before[r][o->index[r][s][++o->done[r][s]]] = o->now[r][s];
}
static inline void world_end(struct world_order *o, int r, int s, const struct mt_group *g)
{
    for (int k = 0; k < (g ? g->n : 1); k++) {
        int other = g ? g->rank[k] : r;
        o->now[r][s].at[other * MT_N_STREAMS + s] = o->done[other][s];
    }
}
/* All members' next operation on the stream is the group's collective. */
static inline bool world_collective(struct world_order *o, int s, const struct mt_group *g, int64_t id)
{
    struct world_clock known = {0};
    for (int k = 0; k < g->n; k++) {
        const struct mt_rec *p = world_next(o, g->rank[k], s);
        if (!p || p->op == MT_OP_wait || mt_op_info[p->op].kind != MT_COMM || p->scalar[0].i != id)
            return false;
        world_learn(&known, &o->now[g->rank[k]][s]);
    }
    for (int k = 0; k < g->n; k++) world_start(o, g->rank[k], s, &known);
    for (int k = 0; k < g->n; k++) world_end(o, g->rank[k], s, g);
    return true;
}
/* Runs the next operation of a stream if it can start. */
static inline bool world_advance(struct world_order *o, int r, int s)
{
    struct world_clock known = {0};
    const struct mt_rec *p = world_next(o, r, s);
    if (!p) return false;
    if (p->op != MT_OP_wait && mt_op_info[p->op].kind == MT_COMM)
        return world_collective(o, s, o->group[r][p->scalar[0].i], p->scalar[0].i);
    if (p->op == MT_OP_wait && p - o->q[r].rec != o->skip[r] && p->ev.seq > 0) {
        if (o->done[r][p->ev.stream] < p->ev.seq) return false;
        known = o->before[r][o->index[r][p->ev.stream][p->ev.seq]];
        known.at[r * MT_N_STREAMS + p->ev.stream] = p->ev.seq;
    }
    world_start(o, r, s, &known);
    world_end(o, r, s, NULL);
    return true;
}

static inline void world_release(struct world_order *o)
{
    for (int r = 0; r < o->ranks; r++) {
        free(o->before[r]);
        for (int s = 0; s < MT_N_STREAMS; s++) free(o->index[r][s]);
    }
}
/* group, skip, q and ranks are set; the caller releases o. */
static inline bool world_find(struct world_order *o)
{
    int64_t left = 0;
    for (int r = 0; r < o->ranks; r++) {
        o->before[r] = calloc((size_t)o->q[r].n + 1, sizeof *o->before[r]);
        MT_ASSERT(o->before[r]);
        for (int s = 0; s < MT_N_STREAMS; s++) {
            o->index[r][s] = calloc((size_t)o->q[r].n + 1, sizeof *o->index[r][s]);
            MT_ASSERT(o->index[r][s]);
        }
        for (int64_t i = 0; i < o->q[r].n; i++) {
            const struct mt_rec *p = &o->q[r].rec[i];
            o->index[r][p->stream][p->seq] = i;
            o->last[r][p->stream] = p->seq;
        }
        left += o->q[r].n;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < o->ranks; r++)
            for (int s = 0; s < MT_N_STREAMS; s++)
                while (world_advance(o, r, s)) moved = true;
    }
    for (int r = 0; r < o->ranks; r++)
        for (int s = 0; s < MT_N_STREAMS; s++) left -= o->done[r][s];
    return CHECK_INT(left, 0); /* else they stand still: a wait for what comes later */
}
/* Whether record `first` of a rank is over before its record `second` starts, whatever the streams do. */
static inline bool world_ordered(const struct world_order *o, int r, int64_t first, int64_t second)
{
    const struct mt_rec *p = &o->q[r].rec[first];
    return o->before[r][second].at[r * MT_N_STREAMS + p->stream] >= p->seq;
}
#endif
