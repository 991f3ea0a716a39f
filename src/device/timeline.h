/* timeline.h: when each operation of a recorded step ran: as an executor measured it, or as the simulation computed it. What
 * follows from that is told in two forms: as a trace that a browser shows (timeline_json.c), and as a sum of where the step's
 * time went (timeline_sum.c). docs/trace.md explains both to those who use them. */
#ifndef MT_DEVICE_TIMELINE_H
#define MT_DEVICE_TIMELINE_H
#include <stdio.h>

#include "base/clock.h"
#include "device/record.h"

/* A stretch in which a rank's host code ran, and why it ended. */
enum mt_host_left { MT_LEFT_READ, MT_LEFT_FULL, MT_LEFT_END };
struct mt_host_span {
    int64_t begin, end;
    uint8_t left; /* READ: waits for a value; FULL: its queue has no room; END: it returned */
    uint8_t kind; /* READ: mt_read_kind, */
    int32_t index;
};

/* One rank's step. begin, end: nanoseconds since the step began, by record of q; of a wait, from when its stream had come to it
 * until its event was over; of a collective, until the rank's own pieces had moved. */
struct mt_timeline {
    int rank;
    const struct mt_recording *q;   /* borrowed */
    const struct mt_ledger *ledger; /* borrowed: names of rows */
    const int64_t *begin, *end;     /* borrowed: q->n each */
    /* What a simulation may leave out. ready: NULL, or by record: of a kernel, when nothing was missing but somebody to run it
     * (at begin or before); of a collective, when it began to move (at begin, when this rank had come to it, or after). */
    const int64_t *ready;            /* borrowed */
    const struct mt_host_span *host; /* borrowed: n_host of them, in order */
    int64_t n_host;
    int64_t length; /* of the step; 0: until the last operation was over */
};
int64_t mt_timeline_length(const struct mt_timeline *t);

/* ---- measuring ---- */
/* Where a device notes when the operations of ctx->recording ran (ctx->times). Everything is allocated when it is opened:
 * what does not fit is left out, and counted by the recording. */
struct mt_times {
    struct mt_recording q;
    int64_t *begin, *end, *ready; /* by record; 0: not yet */
    struct mt_host_span *host;
    int64_t n_host, cap_host, host_lost;
    int64_t origin, length; /* clock when the step began; what it took */
    int64_t host_since;     /* host code: when it last began to run, */
    int32_t read_index;     /* and what it reads */
    uint8_t read_kind;
};
/* Room for so many records with so many arguments in all. IO: no memory. mt_times_close is due whatever became of it. */
MT_MUST_USE mt_status mt_times_open(struct mt_times *t, int64_t records, int64_t args, mt_err *e);
void mt_times_close(struct mt_times *t);
/* Forgets what it has; mt_times_begin does it where it was not done, which takes a while if there is much room. */
void mt_times_clear(struct mt_times *t);
/* Around a run, when no operation is queued: c records into t; c records no longer, and t is final. */
void mt_times_begin(struct mt_times *t, struct mt_ctx *c, int64_t origin);
void mt_times_end(struct mt_times *t, struct mt_ctx *c, int64_t now);
/* Host code leaves off, and why: READ, which of them. A span of it is noted, from host_since on. */
void mt_times_host_left(struct mt_times *t, enum mt_host_left why, enum mt_read_kind kind, int64_t index);
struct mt_timeline mt_times_timeline(const struct mt_times *t, int rank, const struct mt_ledger *ledger);
/* Where the times of what is being enqueued go; -1: nowhere. */
static inline int64_t mt_times_place(const struct mt_ctx *c)
{
    return c->times && !c->times->q.lost ? c->times->q.n - 1 : -1;
}

/* ---- places ---- */
/* The records of each stream in order. */
struct mt_places {
    int64_t *of[MT_N_STREAMS]; /* owned together: of[s][i] is the record with seq i + 1; -1: there is none */
    int64_t n[MT_N_STREAMS];
};
/* IO: no memory. */
MT_MUST_USE mt_status mt_places_init(struct mt_places *p, const struct mt_recording *q, mt_err *e);
void mt_places_release(struct mt_places *p);
/* The record at an event; -1: none. */
static inline int64_t mt_places_find(const struct mt_places *p, mt_event ev)
{
    return ev.seq > 0 && ev.seq <= p->n[ev.stream] ? p->of[ev.stream][ev.seq - 1] : -1;
}
/* By the op table; an exchange's bytes are those that its peers say were received, if they are known: on sim they are not. */
double mt_record_flops(const struct mt_recording *q, int64_t i);
double mt_record_bytes(const struct mt_recording *q, int64_t i);

/* ---- the trace ---- */
/* Chrome trace events of n ranks: a process a rank, a row a stream, host code last; what an operation waited for as arrows.
 * groups: names of the communicators' groups; NULL: their numbers. title: what they are of, for people. The caller looks for
 * errors of f. IO: no memory. */
MT_MUST_USE mt_status mt_timeline_write(const struct mt_timeline *t, int n, const char *const *groups,
                                        const char *title, FILE *f, mt_err *e);

/* ---- the sum ---- */
/* What a stretch of the compute stream's time went into. EXPOSED causes: it stood still for an operation of another stream, or
 * ran a collective itself. */
#define MT_CAUSES(X)                                                                                         \
    X(COMPUTE, "compute", false)              /* kernels up to the gradient's norm */                        \
    X(OPTIMIZER, "optimizer", false)          /* kernels from there on */                                    \
    X(GATHER, "gather", true)                 /* weights on their way to use */                              \
    X(REDUCE, "reduce", true)                 /* gradients, losses, norms on their way to sums */            \
    X(EXCHANGE, "expert exchange", true)      /* routed rows and their counts */                             \
    X(OFFLOAD, "offload", true)               /* copies between device and host */                           \
    X(OPTIM_MOVE, "optimizer exchange", true) /* matrices to their owners and back; host arithmetic */       \
    X(HOST_READ, "host read", false)          /* empty behind a value that the host reads */                 \
    X(WORKER, "no free worker",                                                                              \
      false)               /* a kernel, or the first host code, was ready, and all workers had other work */ \
    X(IDLE, "idle", false) /* all else: nothing was enqueued */
enum mt_cause {
#define X(name, text, exposed) MT_CAUSE_##name,
    MT_CAUSES(X)
#undef X
        MT_N_CAUSES
};
const char *mt_cause_text(enum mt_cause c);
bool mt_cause_exposed(enum mt_cause c);

struct mt_timeline_sum {
    int64_t length;             /* ns, and so below */
    int64_t spent[MT_N_CAUSES]; /* of the compute stream; together they are length, exactly */
    int64_t still
        [MT_N_CAUSES]; /* of an exposed cause's spent time, that in which nothing moved yet: the operation waited for
                                 * other members, for a worker, or for its turn */
    int64_t busy[MT_N_CAUSES]; /* of the cause's operations, on all streams, hidden or not, once they moved */
    int64_t stream
        [MT_N_STREAMS]; /* of each stream's operations, waits left out, collectives from when they moved */
};
/* IO: no memory. */
MT_MUST_USE mt_status mt_timeline_summarize(const struct mt_timeline *t, struct mt_timeline_sum *sum,
                                            mt_err *e);
/* The share of an exposed cause's busy time in which compute went on; 1 if there was none. */
double mt_timeline_hidden(const struct mt_timeline_sum *sum, enum mt_cause c);
/* What operations of one kind took, for a profile by operation: adds a timeline's to op[MT_N_OPS]. */
struct mt_op_sum {
    int64_t calls, time; /* ns, collectives from when they moved */
    double flops, bytes;
};
void mt_timeline_ops(const struct mt_timeline *t, struct mt_op_sum *op);
/* From when an operation was really at work: its begin, or, of a collective, its ready. */
static inline int64_t mt_timeline_moved(const struct mt_timeline *t, int64_t i)
{
    uint16_t op = t->q->rec[i].op;
    bool comm = op < MT_N_OPS && mt_op_info[op].kind == MT_COMM && t->ready && t->ready[i] > t->begin[i];
    return !comm ? t->begin[i] : t->ready[i] < t->end[i] ? t->ready[i] : t->end[i];
}
#endif
