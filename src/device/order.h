/* order.h: happens-before of a recording, by vector clocks over the streams. */
#ifndef MT_DEVICE_ORDER_H
#define MT_DEVICE_ORDER_H
#include "device/record.h"

struct mt_clock {
    int64_t at[MT_N_STREAMS]; /* position up to which a stream is known to be done */
};
struct mt_order {
    int64_t n;
    struct mt_clock *before; /* by record: what is done when it starts; owned */
};
/* A stream's records are ordered, and a wait learns what its event knew. A host read also orders, because
 * what the host enqueues later comes after it; but plans and checks do not count on that (host_orders false),
 * so that a read may be moved, batched or answered from a tape without a race. skip_wait: a record whose wait
 * is ignored; -1: none. */
void mt_order_init(struct mt_order *o, const struct mt_recording *q, int64_t skip_wait, bool host_orders);
void mt_order_release(struct mt_order *o);

/* Whether an argument's contents on entry matter: everything but OUT, SOME and WS, which begin a lifetime. */
static inline bool mt_dir_needs(enum mt_dir d)
{
    return d != MT_OUT && d != MT_SOME && d != MT_WS;
}
static inline bool mt_dir_writes(enum mt_dir d)
{
    return d != MT_IN && d != MT_OPT;
}
const char *mt_rec_name(const struct mt_rec *r);
#endif
