/* poison.h: a test facility: where each row's contents stop to matter, and filling it with NaN there.
 *
 * A row that is not persistent is dead from the last access of a lifetime to the next whole write. Filled as part of that
 * last access, before anything can be ordered behind it, it shows whoever relies on what is left of it. */
#ifndef MT_DEVICE_POISON_H
#define MT_DEVICE_POISON_H
#include "device/record.h"

struct mt_poison {
    int64_t n[MT_N_STREAMS];      /* positions of the record */
    int32_t *first[MT_N_STREAMS]; /* by position: the first of its rows in `row`; n + 2 of them; owned */
    int32_t *row;                 /* owned */
    int64_t lives, rows;          /* lifetimes of the record's rows that are not persistent; those filled */
    int64_t renewed,
        read;          /* not filled: the last access also begins the next lifetime, or is one by the host */
    int64_t unordered; /* not filled: last accesses of two streams, neither known to be the later one */
};
/* From a record and the ledger that it was planned with. early: this lifetime, counted from 0, is taken to end at the
 * access before its last one in the same stream, so that the last one goes wrong (-1: none); INTERNAL if there is no such access.
 * INTERNAL: a record whose lifetimes are not found. The caller releases p in any case. */
MT_MUST_USE mt_status mt_poison_find(struct mt_poison *p, const struct mt_ledger *g,
                                     const struct mt_recording *q, int64_t early, mt_err *e);
void mt_poison_release(struct mt_poison *p);
/* Fills what ends with the operation at a position. Executors call it between its work and its completion. */
void mt_poison_apply(const struct mt_poison *p, const struct mt_ctx *c, int stream, int64_t seq);
#endif
