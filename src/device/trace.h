/* trace.h: the collectives that a rank has enqueued last.
 *
 * All members of a group call the same collectives in the same order. What they must have alike is compared where they
 * meet; the last few of each rank are kept, so that a run that ends badly can tell how far every rank had come. */
#ifndef MT_DEVICE_TRACE_H
#define MT_DEVICE_TRACE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "device/op.h"

struct mt_cut;

enum { MT_COMM_FIRST = MT_OP_gather, MT_N_COMM_OPS = MT_OP_exchange_home - MT_OP_gather + 1 };
enum { MT_TRACE_GROUPS = 12, MT_TRACE_STREAMS = 6, MT_TRACE_LAST = 64, MT_NO_DTYPE = 255 };

struct mt_collective {
    int64_t seq;     /* on its group and stream since the streams' last restart, from 1 */
    int64_t bytes;   /* of the whole that is cut; of one unit of an exchange */
    uint64_t pieces; /* hash of how the whole is cut, and of the root */
    uint16_t op;
    uint8_t group, stream, dtype; /* dtype: MT_NO_DTYPE if all that this member has of it is empty */
};
struct mt_trace {
    int64_t n; /* enqueued in all; the last is last[(n - 1) % MT_TRACE_LAST] */
    int64_t seq[MT_TRACE_GROUPS][MT_TRACE_STREAMS];
    struct mt_collective last[MT_TRACE_LAST];
    FILE *log; /* NULL: none. Gets a line a collective; borrowed */
};

/* c: of kind COMM, as the front end has it: its group and its cut are indices. */
void mt_trace_add(struct mt_trace *t, int stream, const struct mt_call *c, const mt_view *v,
                  const struct mt_cut *cuts);
static inline const struct mt_collective *mt_trace_last(const struct mt_trace *t)
{
    return &t->last[(t->n - 1) % MT_TRACE_LAST];
}
void mt_trace_restart(struct mt_trace *t);
/* The last collectives, oldest first, a line each. */
void mt_trace_dump(const struct mt_trace *t, FILE *out);

bool mt_collective_same(const struct mt_collective *a, const struct mt_collective *b);
enum { MT_COLLECTIVE_TEXT = 160 };
/* "gather_cut on group 1, stream gather, number 3: 4096 bytes of u8 in pieces 1f00c3d2" */
void mt_collective_text(const struct mt_collective *c, char out[MT_COLLECTIVE_TEXT]);
#endif
