/* exec_ready.c: the list of ready work. Last in, first out: what was just made ready is warm. */
#include "device/cpu/exec_core.h"

void mt_ready_push(struct mt_exec *e, struct mt_exec_rank *r, struct mt_node *n)
{
    e->items[e->n_items++] = (struct mt_item){.rank = r, .node = n};
}

static uint32_t scramble(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9u;
    return (uint32_t)(x >> 33);
}

/* Adversarial orders. Seeds 1..6: stream seed-1 runs only when nothing else can; 7..12: it always runs first;
 * above: random priorities of (rank, stream), redrawn now and then. Host code comes first (operations as
 * early as they may be), with every third seed at random. -1 and below: one rank's stream, number -seed-1 of all, runs
 * only when nothing else can. */
static uint32_t priority(const struct mt_exec *e, const struct mt_item *i)
{
    int seed = e->o.order_seed, s = i->node ? i->node->stream : MT_N_STREAMS;
    if (seed < 0) return s == MT_N_STREAMS ? 2 : i->rank->ctx->rank * MT_N_STREAMS + s != -seed - 1;
    if (s == MT_N_STREAMS && seed % 3) return UINT32_MAX;
    if (seed <= MT_N_STREAMS && s == seed - 1) return 0;
    if (seed > MT_N_STREAMS && seed <= 2 * MT_N_STREAMS && s == seed - MT_N_STREAMS - 1)
        return UINT32_MAX - 1;
    uint64_t draw = (uint64_t)e->picks >> (3 + seed % 5);
    return scramble((uint64_t)seed << 48 ^ draw << 20 ^ (uint64_t)(i->rank->ctx->rank * 8 + s)) >> 1;
}

struct mt_item mt_ready_take(struct mt_exec *e)
{
    int64_t best = e->n_items - 1;
    e->picks++;
    if (e->o.order_seed)
        for (int64_t k = 0; k < e->n_items; k++)
            if (priority(e, &e->items[k]) > priority(e, &e->items[best])) best = k;
    struct mt_item i = e->items[best];
    if (i.node && i.part + 1 < i.node->parts)
        e->items[best].part++;
    else
        e->items[best] = e->items[--e->n_items];
    return i;
}
