/* lifetimes.h: from where to where the contents of a row matter. */
#ifndef MT_DEVICE_LIFETIMES_H
#define MT_DEVICE_LIFETIMES_H
#include "device/order.h"

/* One lifetime: from a record that defines the whole row to the last access before the next such record. */
struct mt_life {
    int32_t row, next;   /* the row's next lifetime, -1: none */
    int64_t def, last;   /* records */
    struct mt_clock end; /* last access by each stream */
};
struct mt_lifetimes {
    struct mt_life *life; /* owned, in order of def */
    int32_t n;
    int32_t *first; /* by row: its first lifetime, -1: never used; owned */
};
/* INTERNAL: a row that is not persistent is read, or written in part, before it is written whole. */
MT_MUST_USE mt_status mt_lifetimes_find(struct mt_lifetimes *f, const struct mt_ledger *g,
                                        const struct mt_recording *q, mt_err *e);
void mt_lifetimes_release(struct mt_lifetimes *f);

/* Whether two rows may not share bytes. The record must be free of races in the unshared layout: then
 * whatever follows a lifetime's first write follows everything of the lifetime before. */
bool mt_lifetimes_clash(const struct mt_lifetimes *f, const struct mt_ledger *g, const struct mt_recording *q,
                        const struct mt_order *o, int32_t a, int32_t b);
#endif
