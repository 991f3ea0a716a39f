/* simclock_core.h: programs, between the files of the clock. */
#ifndef MT_DEVICE_SIMCLOCK_CORE_H
#define MT_DEVICE_SIMCLOCK_CORE_H
#include "device/simclock.h"

enum mt_simclock_kind {
    MT_SIM_NOTHING,
    MT_SIM_KERNEL,
    MT_SIM_ATTENTION,
    MT_SIM_READ,
    MT_SIM_COPY,
    MT_SIM_WAIT,
    MT_SIM_MOVE
};

struct mt_simclock_op {
    int32_t index;   /* in the order of the program: of a recording */
    int32_t what;    /* index in works, or in transfers; of a wait, the slot that it waits for */
    int32_t slot;    /* where its end is kept for waits of other streams; 0: nowhere */
    int32_t mb;      /* of attention, its micro-batch; of a wait, the stream that it waits for */
    int32_t segment; /* reads that the host has waited for before it enqueued this */
    uint8_t kind, cause, zero[2];
};

/* One rank's step: the operations of each stream, in order. */
struct mt_program {
    struct mt_simclock_op *op[MT_N_STREAMS]; /* owned */
    int32_t n[MT_N_STREAMS], cap[MT_N_STREAMS];
    int32_t *first; /* owned: by segment, the index of its first operation */
    int32_t n_segments, cap_segments, n_slots, total;
    uint64_t hash;
};

/* A table of equal things kept once. */
struct mt_intern {
    char *item;
    int32_t *hash; /* open addressing: index + 1 */
    int32_t n, cap, slots;
    size_t size;
};

struct mt_simclock {
    struct mt_simclock_options o;
    struct mt_intern works, transfers;
    struct mt_program *program;
    int32_t n_programs, cap_programs;
    int32_t *program_of; /* [world], -1: none yet */
    /* Groups: by rank and group id, an index; by that, the members. */
    int32_t *group_of; /* [world][n_groups] */
    float *away; /* likewise: of a rank's traffic between nodes, the share that leaves its group of nodes */
    int32_t n_all, cap_all;
    int32_t *first_member, *n_members; /* [n_all] */
    int32_t *member;
    int64_t n_member, cap_member;
    /* The rank being recorded. */
    struct mt_program now;
    struct mt_traffic traffic, seen;
    int32_t *scratch; /* [world] */
};
static inline const struct mt_work *mt_simclock_work(const struct mt_simclock *k, int32_t i)
{
    return (const struct mt_work *)(const void *)(k->works.item + (size_t)i * k->works.size);
}
static inline const struct mt_transfer *mt_simclock_transfer(const struct mt_simclock *k, int32_t i)
{
    return (const struct mt_transfer *)(const void *)(k->transfers.item + (size_t)i * k->transfers.size);
}
#endif
