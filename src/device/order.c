#include "device/order.h"

#include <stdlib.h>

const char *mt_rec_name(const struct mt_rec *r)
{
    return r->op == MT_OP_wait ? "wait" : mt_op_info[r->op].name;
}

static void learn(struct mt_clock *a, const struct mt_clock *b)
{
    for (int s = 0; s < MT_N_STREAMS; s++)
        if (b->at[s] > a->at[s]) a->at[s] = b->at[s];
}

void mt_order_init(struct mt_order *o, const struct mt_recording *q, int64_t skip_wait, bool host_orders)
{
    struct mt_clock now[MT_N_STREAMS] = {0}, host = {0};
    size_t n = (size_t)q->n + 1;
    int64_t *index = malloc(MT_N_STREAMS * n * sizeof *index); /* record at a position of a stream */
    *o = (struct mt_order){.n = q->n, .before = malloc(n * sizeof *o->before)};
    MT_ASSERT(index && o->before);
    for (int64_t i = 0; i < q->n; i++) {
        const struct mt_rec *r = &q->rec[i];
        struct mt_clock *c = &now[r->stream];
        learn(c, &host);
        if (r->op == MT_OP_wait && i != skip_wait && r->ev.seq > 0) {
            MT_ASSERT(r->ev.seq <= now[r->ev.stream].at[r->ev.stream]); /* of an event already recorded */
            struct mt_clock event = o->before[index[(size_t)r->ev.stream * n + (size_t)r->ev.seq]];
            event.at[r->ev.stream] = r->ev.seq;
            learn(c, &event);
        }
        o->before[i] = *c;
        index[(size_t)r->stream * n + (size_t)r->seq] = i;
        c->at[r->stream] = r->seq;
        if (r->op == MT_OP_read_back && host_orders) learn(&host, c);
    }
    free(index);
}

void mt_order_release(struct mt_order *o)
{
    free(o->before);
    *o = (struct mt_order){0};
}
