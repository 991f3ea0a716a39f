/* exec_core.h: what the executor's files share.
 *
 * exec.c: opening, workers, a run. exec_ready.c: the list of ready work. exec_queue.c: rings, streams,
 * collectives. exec_agree.c: whether they fit. exec_host.c: host code. exec_wire.c: collectives between
 * processes. exec_watch.c: what ThreadSanitizer builds do on top. exec_trial.c: what tests do. exec_hang.c:
 * where ranks stand. cpu.c: the device's functions.
 *
 * One lock guards ready list and queues; it is held for a few instructions per operation, never while one
 * runs. A node belongs to its rank's host code until published, then to the lock, and to the workers that run
 * it. */
#ifndef MT_DEVICE_CPU_EXEC_CORE_H
#define MT_DEVICE_CPU_EXEC_CORE_H
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "device/cpu/exec.h"
#include "device/cpu/exec_stand.h"
#include "device/cpu/fiber.h"
#include "device/group.h"
#include "device/traffic.h"

struct mt_node {
    struct mt_call call;
    uint8_t stream;
    bool wait, done;
    int32_t next;            /* of its stream's queue, as a ring index; -1: last */
    int32_t parts, left;     /* not finished */
    int64_t seq;             /* in its stream, since opening */
    int64_t rec;             /* where its times go (exec_times.h); -1: nowhere */
    mt_event ev;             /* wait: the same */
    struct mt_meeting *meet; /* a collective inside this process */
    struct mt_wire *wire;    /* one between processes, and its moves */
    struct mt_move *move;
    struct mt_greeting *greeting; /* to, then from all members, before the moves; NULL: none */
    bool greeted;
    int32_t member, members;
    void *src; /* collective: what this member contributes */
    struct mt_collective what;
};

struct mt_queue {
    int32_t first, last; /* ring indices, -1: empty */
    bool busy;           /* the first one is running or parked in a collective */
    int64_t done;        /* position reached */
};

enum mt_host_state { MT_HOST_RUN, MT_HOST_READ, MT_HOST_SPACE, MT_HOST_ENDED };

/* A ready piece of work: host code of a rank, or the parts of a node that nobody has taken. */
struct mt_item {
    struct mt_exec_rank *rank;
    struct mt_node *node; /* NULL: host code */
    int32_t part;         /* next one */
};

/* A collective that was started on a wire. */
struct mt_flight {
    struct mt_exec_rank *rank;
    struct mt_node *node;
    bool over;
};

struct mt_exec_rank {
    struct mt_exec *exec;
    struct mt_ctx *ctx;
    void *arg;
    struct mt_node *ring;
    uint32_t mask, head, published, tail, limit; /* retired, published, written, may be written up to */
    struct mt_queue queue[MT_N_STREAMS];
    int64_t base[MT_N_STREAMS],
        last[MT_N_STREAMS]; /* host code: positions before the last restart, last one seen */
    int64_t stood,
        stands; /* of the compute stream, ns: it stood still so long; since when it does now, 0: it does not */
    enum mt_host_state host, park; /* under the lock; what host code asked for */
    mt_event want;
    struct mt_fiber fiber;
    struct mt_watch *watch; /* ThreadSanitizer builds */
    int64_t busy_ns;        /* mt_exec_busy_ns */
    /* Collectives begun: see mt_stand. */
    int64_t entered[MT_TRACE_GROUPS][MT_TRACE_STREAMS], n_entered;
    struct mt_collective last_entered[MT_STAND_LAST];
};

struct mt_exec {
    struct mt_exec_options o;
    const struct mt_cpu_dev *dev;
    int n;
    struct mt_exec_rank *rank;
    pthread_mutex_t mu;
    pthread_cond_t work, idle;
    struct mt_worker *worker;
    int n_workers; /* started */
    struct mt_item *items;
    int64_t n_items, ops, live, picks, runs;
    int ended, running, sleeping, spinning;
    bool stop, stuck, spin, disagree;
    struct mt_flight *flight;
    int n_flights, quiet; /* quiet: looks at them in a row that found none over */
    bool looking;         /* a worker is at it */
    int64_t looked;       /* when it was, ns */
    atomic_bool ready;    /* there was work when the lock was last released */
    void (*host)(struct mt_ctx *, void *);
};

struct mt_worker {
    struct mt_exec *exec;
    pthread_t thread;
    int index;
    void *scratch;
};

/* exec_ready.c, under the lock */
void mt_ready_push(struct mt_exec *e, struct mt_exec_rank *r, struct mt_node *n);
struct mt_item mt_ready_take(struct mt_exec *e);

/* exec_queue.c, under the lock */
void mt_queue_publish(struct mt_exec_rank *r);
void mt_queue_part_done(struct mt_exec_rank *r, struct mt_node *n);

/* exec_agree.c, under the lock. All members of n's meeting have arrived. If they do not fit together: false, and the rank
 * that differs has the error. Between processes, by greetings: each that sees it has the error. */
bool mt_members_agree(struct mt_exec *e, const struct mt_node *n);
bool mt_greetings_agree(struct mt_exec_rank *r, const struct mt_node *n);
void mt_greetings_write(struct mt_node *n); /* and the moves that send them; not under the lock */

/* exec_wire.c, under the lock */
void mt_wire_started(struct mt_exec_rank *r, struct mt_node *n);
bool mt_wire_due(const struct mt_exec *e); /* time for a look */
void mt_wire_look(struct mt_exec *e);      /* leaves the lock meanwhile */
void mt_wire_wait(struct mt_exec *e);      /* before the next look, for want of other work: leaves the lock */

/* exec_hang.c, under the lock */
void mt_stand_entered(struct mt_exec_rank *r, const struct mt_node *n); /* a collective begins */
mt_status mt_hang_describe(struct mt_exec_rank *r); /* why r goes no further, as its error */

/* exec_trial.c */
void mt_trial_delay(const struct mt_exec *e, int64_t pick); /* not under the lock */
bool mt_trial_holds(const struct mt_exec_rank *r, const struct mt_node *n);
bool mt_trial_let_go(struct mt_exec *e); /* whether anything was held; leaves the lock for a moment */

/* exec_host.c */
mt_status mt_host_open(struct mt_exec_rank *r, mt_err *e);
void mt_host_park(struct mt_exec_rank *r,
                  enum mt_host_state why);            /* from host code; returns when it may go on */
void mt_host_wake(struct mt_exec_rank *r);            /* under the lock */
void mt_host_left(struct mt_exec_rank *r);            /* under the lock, when a worker is back from it */
struct mt_node *mt_host_node(struct mt_exec_rank *r); /* a free node, to be filled and pushed */
void mt_host_push(struct mt_exec_rank *r, struct mt_node *n); /* the node just got */

/* exec.c */
void mt_exec_lock(struct mt_exec *e);
void mt_exec_unlock(struct mt_exec *e); /* and calls workers if there is work */
static inline bool mt_exec_busy(const struct mt_exec *e)
{
    return e->n_items || e->running || e->n_flights;
}
void mt_exec_part(const struct mt_exec *e, struct mt_node *n, int part, void *scratch);
#endif
