/* record.h: the recorded step, and what is derived from it: happens-before, lifetimes, the layout, its check.
 *
 * A step is recorded once at start-up by running the step function on `sim`, with two dispatch rounds everywhere: a plan
 * made from one is silently wrong for two (where the first round has buffers of its own, for what is kept of it, with three). The
 * planner then lets rows share bytes where streams and events order their lifetimes, and the check proves the result, with every
 * number of rounds up to one more. Host reads never count as order. */
#ifndef MT_DEVICE_RECORD_H
#define MT_DEVICE_RECORD_H
#include <stdint.h>

#include "base/status.h"
#include "device/device.h"
#include "device/ledger.h"
#include "device/op.h"

struct mt_rec_arg {
    int32_t row;
    uint8_t dir;
    bool whole;    /* covers all bytes of its row */
    uint8_t place; /* among the op's arguments, of which some may be left out */
    int64_t off, bytes;
};
struct mt_rec {
    uint16_t op; /* MT_OP_wait: ev is what it waits for */
    uint8_t stream, n_args, dtype;
    bool throttle; /* a wait that only memory needs */
    uint32_t arg;  /* first of n_args in the recording's args */
    int32_t round;
    int64_t seq;
    mt_event ev;
    int64_t dim[MT_LETTERS];
    union mt_scalar scalar[MT_MAX_SCALARS];
};
struct mt_recording {
    struct mt_rec *rec; /* owned */
    struct mt_rec_arg *arg;
    int64_t n, n_args, cap, cap_args;
    bool fixed;   /* it does not grow: what is enqueued after it was full is lost, */
    int64_t lost; /* which is counted */
};
/* An empty recording with room for so many, fixed; false: no memory, and q is to be released all the same. */
bool mt_recording_reserve(struct mt_recording *q, int64_t records, int64_t args);
void mt_recording_release(struct mt_recording *q);
/* For the front end (mt_enqueue, mt_stream_wait): appends what is being enqueued. */
void mt_record_op(struct mt_recording *q, const struct mt_stream *s, const struct mt_call *c,
                  const mt_view *v, const struct mt_ledger *g);
void mt_record_wait(struct mt_recording *q, const struct mt_stream *s, mt_event ev, bool throttle);
/* Ops, shapes, streams, waits, rows and ranges; scalars are left out (a learning rate is not a schedule). */
uint64_t mt_recording_hash(const struct mt_recording *q);

struct mt_race {
    int64_t first, second; /* records */
    int32_t row;
    bool lost; /* not a race: what `second` reads through the row was last written through another */
};
/* Up to max races of the record in the ledger's present layout; returns how many were found. skip_wait: a record
 * index whose wait is ignored (-1: none). host_orders: count host reads as order (only to compare). */
int mt_races_find(const struct mt_recording *q, const struct mt_ledger *g, int64_t skip_wait,
                  bool host_orders, struct mt_race *out, int max);

struct mt_plan_info {
    int64_t peak[MT_N_ARENAS]; /* bytes of the layout */
    int64_t unshared[MT_N_ARENAS];
    bool bytes_only;              /* in: looks for no races; of a layout that nothing will run in */
    bool want_bound;              /* in: find `bound`, too, which takes the cube of the rows: for tests */
    int64_t bound[MT_N_ARENAS];   /* a lower bound: the largest clique of rows that may not share */
    int64_t live[MT_N_ARENAS];    /* bytes live at the fullest moment of the record, */
    int64_t fullest[MT_N_ARENAS]; /* which is this record, the first such */
};
/* Lays the ledger out; info is written but for bytes_only and want_bound. Errors (INTERNAL): a row read before it is written, named with its op; a race in any layout. */
mt_status mt_plan(struct mt_ledger *g, const struct mt_recording *q, struct mt_plan_info *info, mt_err *e);
/* Checks the laid-out ledger against a recording: no race, no lost contents. */
mt_status mt_plan_check(const struct mt_ledger *g, const struct mt_recording *q, mt_err *e);
#endif
