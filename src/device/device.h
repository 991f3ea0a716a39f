/* device.h: a rank's streams on an abstract device.
 *
 * A step enqueues operations on named streams; what happens then is the device's business: `cpu` queues them for its
 * executor, `sim` counts and records. Host code reads device values only through mt_host_read, and nothing else of a step
 * depends on data. Events are values: a position in a stream. */
#ifndef MT_DEVICE_DEVICE_H
#define MT_DEVICE_DEVICE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "device/ledger.h"
#include "device/op.h"
#include "device/trace.h"

/* What MT_HOST's operations do, the host's cores do in its own memory, whatever the device is: kernels there touch only rows of
 * the host arena, those of every other stream only rows of the device's, and copies alone cross. mt_fresh and mt_keep, which
 * touch nothing, may be anywhere. */
enum mt_stream_id { MT_COMPUTE, MT_GATHER, MT_REDUCE, MT_D2H, MT_H2D, MT_HOST, MT_N_STREAMS };
const char *mt_stream_name(int stream); /* "compute" */
enum mt_read_kind { MT_READ_COUNTS, MT_READ_NORM, MT_READ_LOSS, MT_READ_STATE, MT_N_READ_KINDS };

typedef struct mt_event {
    int32_t stream;
    int64_t seq; /* 0: nothing to wait for */
} mt_event;

struct mt_recording;
struct mt_times;
struct mt_ctx;
struct mt_group;
struct mt_poison;
struct mt_traffic;

struct mt_stream {
    struct mt_ctx *ctx;
    int32_t id;
    int64_t seq;                 /* of the last operation enqueued since mt_streams_restart */
    int64_t known[MT_N_STREAMS]; /* of each stream, the latest event that this one has waited for */
};

struct mt_device_ops {
    const char *name;
    /* c is complete but for the pointers; the device resolves them from the views. Both are copied. */
    void (*enqueue)(struct mt_stream *s, struct mt_call *c, const mt_view *v);
    void (*wait)(struct mt_stream *s, mt_event ev);
    /* Copies src to dst (host memory of the caller, src.bytes) when everything enqueued on s is done; returns then. */
    void (*host_read)(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src, void *dst);
    /* Copies bytes between the host's own memory and an arena, in either direction, while nothing runs. NULL: the host's loads
     * and stores reach all arenas. */
    mt_status (*copy)(const struct mt_ctx *ctx, void *to, const void *from, int64_t bytes, mt_err *e);
};

enum { MT_MAX_GROUPS = 12 };

/* How a buffer is cut among the n members of a group: piece k is bytes [at[k], at[k + 1]), member i has piece of[i]. */
struct mt_cut {
    int64_t n;
    int64_t *at;       /* n + 1 */
    const int32_t *of; /* n; NULL: piece i. Borrowed */
    int64_t *
        content; /* n + 1: the same without the padding of the format, for the byte ledger; NULL: there is none */
    uint64_t hash; /* of at and of, for members to compare */
};
static inline int64_t mt_cut_piece(const struct mt_cut *c, int64_t member)
{
    return c->of ? c->of[member] : member;
}
static inline int64_t mt_cut_from(const struct mt_cut *c, int64_t member)
{
    return c->at[mt_cut_piece(c, member)];
}
static inline int64_t mt_cut_to(const struct mt_cut *c, int64_t member)
{
    return c->at[mt_cut_piece(c, member) + 1];
}

/* One rank's view of its device. A plain struct: 384 of them live in one process. */
struct mt_ctx {
    int rank, world;
    const struct mt_device_ops *dev;
    struct mt_stream stream[MT_N_STREAMS];
    const struct mt_ledger *ledger;
    char *arena[MT_N_ARENAS];              /* borrowed; NULL on sim */
    struct mt_group *group[MT_MAX_GROUPS]; /* rendezvous of the communicators (device/group.h); borrowed */
    const struct mt_cut *cut;              /* tables that gather_cut and its like name; borrowed */
    struct mt_recording *recording;        /* NULL: not recording; borrowed */
    struct mt_times *times;                /* device/timeline.h: when they ran; NULL: not noted; borrowed */
    void *exec;                            /* the cpu executor's part of this rank */
    mt_err err;                            /* sticky: the first operation that failed */
    int round;                             /* dispatch round being enqueued, for the record */
    struct mt_trace trace;                 /* the last collectives */
    struct mt_traffic *traffic; /* device/traffic.h: what they moved; NULL: not counted; borrowed */
    /* Tests. skip_wait: leave out the n-th wait of a step (-1: none). no_throttles: leave out all of those. tape: answers to host
     * reads of a kind, returned without waiting, one src.bytes block an index; NULL: read. */
    int64_t n_waits, skip_wait;
    bool no_throttles;
    const char *tape[MT_N_READ_KINDS];
    const struct mt_poison
        *poison; /* device/poison.h: what is filled with NaN when it is dead; NULL: nothing; borrowed */
    /* sim: answers a host read; NULL: zeros. */
    void (*answer)(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst);
    void *answer_arg;
};
void mt_ctx_init(struct mt_ctx *c, int rank, int world, const struct mt_device_ops *dev,
                 const struct mt_ledger *g);

/* Positions count from 1 again: called when every stream is empty, at the start of a step. */
void mt_streams_restart(struct mt_ctx *c);
/* Every stream waits for what all others have been given: in a record of several runs, the end of one, when every stream is empty. */
void mt_streams_meet(struct mt_ctx *c);
static inline mt_event mt_event_record(const struct mt_stream *s)
{
    return (mt_event){s->id, s->seq};
}
/* What s enqueues from now on runs after ev. Nothing is enqueued if that is so already: s has waited for a later event of the
 * stream, or it is its own. */
void mt_stream_wait(struct mt_stream *s, mt_event ev);
/* The same where nothing would go wrong without it but the need of memory: until ev, the bytes are somebody else's. */
void mt_stream_throttle(struct mt_stream *s, mt_event ev);
/* index distinguishes reads of one kind within a step, in the order of the program. */
void mt_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src, void *dst);
/* Address of a view, for set-up and tests; not while operations run. One in the device arena is the device's: mt_copy_now. */
void *mt_address(const struct mt_ctx *c, mt_view v);
/* Copies bytes between the host's own memory and an arena, by any thread, also while operations run that do not write them, nor
 * read those it writes; c NULL: one that the host reaches. DEVICE. */
MT_MUST_USE mt_status mt_copy_now(const struct mt_ctx *c, void *to, const void *from, int64_t bytes,
                                  mt_err *e);

/* A buffer that one stream fills and another uses: its two waits stay together. The filler calls mt_lease_fill before
 * writing (waits until the last use is over) and mt_lease_filled after; the user mt_lease_use and mt_lease_done. */
struct mt_lease {
    mt_view view;
    mt_event ready, used;
};
static inline void mt_lease_fill(struct mt_stream *s, const struct mt_lease *l)
{
    mt_stream_wait(s, l->used);
}
static inline void mt_lease_filled(const struct mt_stream *s, struct mt_lease *l)
{
    l->ready = mt_event_record(s);
}
static inline void mt_lease_use(struct mt_stream *s, const struct mt_lease *l)
{
    mt_stream_wait(s, l->ready);
}
static inline void mt_lease_done(const struct mt_stream *s, struct mt_lease *l)
{
    l->used = mt_event_record(s);
}

/* Piece i of n: runs of `unit` bytes, `units` of them, cut evenly. */
static inline int64_t mt_piece(int64_t units, int64_t unit, int64_t n, int64_t i)
{
    return units * i / n * unit;
}

extern const struct mt_device_ops mt_device_cpu, mt_device_sim;
#endif
