/* exec_trial.c: what tests put in the executor's way: random delays, and a collective that is kept from beginning. */
#include <time.h>

#include "device/cpu/exec_core.h"

/* One piece of work in so many is late. */
enum { LATE_ONE_IN = 16 };

void mt_trial_delay(const struct mt_exec *e, int64_t pick)
{
    uint64_t x = ((uint64_t)e->o.delay_seed << 40 ^ (uint64_t)pick) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 29;
    if (x % LATE_ONE_IN) return;
    int64_t ns = (int64_t)(x >> 8) % ((int64_t)e->o.delay_us * 1000 + 1);
    if (x >> 7 & 1) {
        nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
        return;
    }
    for (int64_t end = mt_now_ns() + ns; mt_now_ns() < end;) continue;
}

static void note_done(const struct mt_exec_rank *r, int64_t done[MT_N_STREAMS])
{
    for (int s = 0; s < MT_N_STREAMS; s++) done[s] = r->queue[s].done - r->base[s];
}
bool mt_trial_holds(const struct mt_exec_rank *r, const struct mt_node *n)
{
    struct mt_exec_hold *h = r->exec->o.hold;
    if (!h || h->let_go || h->rank != r->ctx->rank || h->stream != n->stream ||
        h->seq != n->seq - r->base[n->stream])
        return false;
    if (!h->held) note_done(r, h->before);
    h->held = true;
    return true;
}
/* Nothing else can run: now it may. */
bool mt_trial_let_go(struct mt_exec *e)
{
    struct mt_exec_hold *h = e->o.hold;
    if (!h || !h->held || h->let_go) return false;
    h->let_go = true;
    for (int i = 0; i < e->n; i++) {
        if (e->rank[i].ctx->rank != h->rank) continue;
        note_done(&e->rank[i], h->after);
        mt_queue_publish(&e->rank[i]);
    }
    mt_exec_unlock(e); /* calls workers */
    mt_exec_lock(e);
    return true;
}
