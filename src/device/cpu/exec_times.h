/* exec_times.h: the executor's notes of when operations ran, for ranks that have ctx->times. All but mt_time_started and
 * mt_time_host_reads are called under the lock. */
#ifndef MT_DEVICE_CPU_EXEC_TIMES_H
#define MT_DEVICE_CPU_EXEC_TIMES_H
#include "device/cpu/exec_core.h"
#include "device/timeline.h"

static inline bool mt_time_collective(const struct mt_node *n)
{
    return n->meet || n->wire;
}
/* The node is the first of its stream. A wait may be looked at more than once. */
static inline void mt_time_reached(const struct mt_exec_rank *r, const struct mt_node *n)
{
    if (n->rec < 0) return;
    const struct mt_times *t = r->ctx->times;
    int64_t *at = n->wait || mt_time_collective(n) ? &t->begin[n->rec] : &t->ready[n->rec];
    if (!*at) *at = mt_now_ns();
}
/* All members of its collective have come. */
static inline void mt_time_met(const struct mt_exec_rank *r, const struct mt_node *n)
{
    if (n->rec >= 0) r->ctx->times->ready[n->rec] = mt_now_ns();
}
/* A worker is about to run the item. A wire does not tell when other members come: it moves from when it was asked to. */
static inline void mt_time_started(const struct mt_item *i)
{
    struct mt_times *t = i->rank->ctx->times;
    const struct mt_node *n = i->node;
    if (!t || (n && (n->rec < 0 || i->part > 0 || n->meet))) return;
    int64_t now = mt_now_ns();
    if (!n)
        t->host_since = now;
    else if (!n->wire)
        t->begin[n->rec] = now;
    else if (!n->greeting || n->greeted)
        t->ready[n->rec] = now;
}
static inline void mt_time_over(const struct mt_exec_rank *r, const struct mt_node *n)
{
    if (n->rec >= 0) r->ctx->times->end[n->rec] = mt_now_ns();
}

/* ---- host code ---- */
static inline void mt_time_host_reads(const struct mt_exec_rank *r, enum mt_read_kind kind, int64_t index)
{
    struct mt_times *t = r->ctx->times;
    if (!t) return;
    t->read_kind = (uint8_t)kind;
    t->read_index = (int32_t)index;
}
static inline void mt_time_host_left(const struct mt_exec_rank *r)
{
    struct mt_times *t = r->ctx->times;
    if (!t) return;
    mt_times_host_left(t,
                       r->host == MT_HOST_READ    ? MT_LEFT_READ
                       : r->host == MT_HOST_SPACE ? MT_LEFT_FULL
                                                  : MT_LEFT_END,
                       (enum mt_read_kind)t->read_kind, t->read_index);
}
#endif
