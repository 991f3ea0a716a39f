/* simclock_replay.h: ranks and transfers of a replay, between its files. */
#ifndef MT_DEVICE_SIMCLOCK_REPLAY_H
#define MT_DEVICE_SIMCLOCK_REPLAY_H
#include "device/simclock_core.h"

enum { MT_SIM_PAST = 8 };

/* What begins and ends for several ranks together: a collective of a group on a stream, or a copy of one rank. */
struct mt_sim_move {
    const int32_t *member;
    int32_t n, arrived, alone; /* alone: of a copy, the one member */
    int32_t stream;
    bool active;
    uint32_t version; /* of its event in the heap: others are stale */
    double ready;     /* when its last member had come */
    double latency, longest;
    double left, slow,
        since; /* seconds alone still to do, how many times slower at present, and since when */
};
struct mt_sim_event {
    double t;
    uint64_t order;
    int32_t move;
    uint32_t version;
};

/* A stream of a rank. ask: seconds on a link of the present transfer; while it is under way, the share of the link that it would
 * take alone. past, waits: transfers, and waits that stood still; modulo MT_SIM_PAST, the next one's place in the history. */
struct mt_sim_lane {
    const struct mt_simclock_op *op;
    const int32_t *what;
    int32_t at, n;
    double free, arrive;
    double ask[MT_N_SIM_LINKS];
    uint8_t past, waits;
};
/* What a wait on a stream is told by: of the stream's last transfers, when this rank had come and when the last one had; of its
 * last waits that stood still, from when to when, and why. */
struct mt_sim_history {
    struct {
        double from, to;
    } late[MT_SIM_PAST], stood[MT_SIM_PAST];
    uint8_t why[MT_SIM_PAST];
};

/* live, moving: by stream, a bit: it has operations left and is in no transfer; its transfer is under way. blocked: what the
 * stream waits for: a time, negative until it is known; NULL: nothing. */
struct mt_sim_rank {
    struct mt_sim_lane lane[MT_N_STREAMS];
    uint32_t live, moving;
    const double *blocked[MT_N_STREAMS];
    struct mt_sim_move *on[MT_N_STREAMS];
    double load[MT_N_SIM_LINKS]; /* the sum of what its transfers under way ask for */
    double *begun;               /* by segment: when the host came to it, or -1 */
    double *slot;                /* by slot: when its operation ended, or -1 */
    double compute, net;
    double turn; /* launch.serial: when its one processor is free */
    struct mt_simclock_rank *out;
    const struct mt_program *p;
    struct mt_sim_history history[MT_N_STREAMS];
};

/* Of a work: seconds, its kind, and seconds with the last number of token pairs that was asked for. */
struct mt_sim_cost {
    double seconds, pairs, with_pairs;
    uint8_t kind;
    bool h2d;
};
struct mt_sim_price {
    struct mt_transfer_time alone;
    int32_t group;
};

struct mt_sim_replay {
    const struct mt_simclock *k;
    const struct mt_simclock_run *run;
    struct mt_sim_rank *rank;
    struct mt_sim_move *move; /* [n_all + world][MT_N_STREAMS]: groups, then ranks alone */
    struct mt_sim_event *heap;
    int64_t n_heap, cap_heap;
    uint64_t orders;
    struct mt_sim_cost *work;   /* by work */
    struct mt_sim_price *moves; /* by transfer */
    double *far;          /* [world][n_groups]: how many times longer for what leaves the group of nodes */
    double *room;         /* slots and segments of all ranks */
    double enqueue, read; /* seconds of the host */
    bool serial;
};

static inline struct mt_sim_rank *mt_sim_member(struct mt_sim_replay *x, const struct mt_sim_move *m, int i)
{
    return &x->rank[m->member[i]];
}

/* Tells of what will be at t with a transfer: it begins or ends. What was told before of the same one no longer counts. */
void mt_sim_push(struct mt_sim_replay *x, double t, struct mt_sim_move *m);
/* What comes next: the transfer and *t; NULL: nothing more. */
struct mt_sim_move *mt_sim_pop(struct mt_sim_replay *x, double *t);
/* A transfer loads its members' links from t on, */
void mt_sim_begin(struct mt_sim_replay *x, struct mt_sim_move *m, double t);
/* and no longer. */
void mt_sim_end(struct mt_sim_replay *x, struct mt_sim_move *m, double t);
#endif
