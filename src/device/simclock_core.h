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

/* All of an operation but its sizes: ranks whose pieces differ have it alike. */
struct mt_simclock_op {
    int32_t segment; /* reads that the host has waited for before it enqueued this, */
    int32_t nth;     /* and its number in the order of the program since then, from 1 */
    int32_t slot;    /* where its end is kept for waits of other streams; 0: nowhere */
    int32_t of;      /* of attention, its micro-batch; of a wait, the slot that it waits for */
    uint8_t kind, cause, stream, zero[1]; /* stream: that a wait waits for */
};

/* One rank's step. Equal parts of programs are kept once, in the blobs: equal programs are equal as bytes. */
struct mt_program {
    const struct mt_simclock_op *op[MT_N_STREAMS]; /* of each stream, in order */
    const int32_t *what[MT_N_STREAMS]; /* by operation: index in works, or in transfers; 0: nothing */
    const int32_t *first;              /* by segment, the place of its first operation in a recording */
    int32_t n[MT_N_STREAMS], n_segments, n_slots, total, zero;
};

/* A table of equal things kept once. */
struct mt_intern {
    char *item;
    int32_t *hash; /* open addressing: index + 1; slots: a power of two */
    int32_t n, cap, slots;
    size_t size;
};
/* Arrays kept once. */
struct mt_blob {
    void *at; /* owned */
    size_t bytes;
    uint64_t hash;
};
struct mt_blobs {
    struct mt_blob *item;
    int32_t *hash; /* as above */
    int32_t n, cap, slots;
};

/* The rank being recorded. */
struct mt_tape {
    struct mt_simclock_op *op[MT_N_STREAMS]; /* owned, and so are the others */
    int32_t *what[MT_N_STREAMS];
    int32_t n[MT_N_STREAMS], cap[MT_N_STREAMS];
    int32_t *first;
    int32_t n_segments, cap_segments, n_slots, total;
};

struct mt_simclock {
    struct mt_simclock_options o;
    struct mt_intern works, transfers, programs;
    struct mt_blobs blobs;
    int32_t *program_of; /* [world], -1: none yet */
    /* Groups: by rank and group id, an index; by that, the members. */
    int32_t *group_of; /* [world][n_groups] */
    float *away; /* likewise: of a rank's traffic between nodes, the share that leaves its group of nodes */
    int32_t n_all, cap_all;
    int32_t *first_member, *n_members; /* [n_all] */
    int32_t *member;
    int64_t n_member, cap_member;
    struct mt_tape now;
    struct mt_traffic traffic, seen;
    int32_t *scratch; /* [world] */
};
static inline const void *mt_intern_at(const struct mt_intern *t, int32_t i)
{
    return t->item + (size_t)i * t->size;
}
static inline const struct mt_work *mt_simclock_work(const struct mt_simclock *k, int32_t i)
{
    return mt_intern_at(&k->works, i);
}
static inline const struct mt_transfer *mt_simclock_transfer(const struct mt_simclock *k, int32_t i)
{
    return mt_intern_at(&k->transfers, i);
}
static inline const struct mt_program *mt_simclock_program(const struct mt_simclock *k, int rank)
{
    return mt_intern_at(&k->programs, k->program_of[rank]);
}

/* Room for one more of p's n things. */
void *mt_simclock_grown(void *p, int64_t n, int32_t *cap, size_t size);
/* Index of an item like this one, which is added if there was none. Its size is a multiple of eight. */
int32_t mt_intern_add(struct mt_intern *t, const void *item);
void mt_intern_release(struct mt_intern *t);
void mt_blobs_release(struct mt_blobs *b);
void mt_tape_release(struct mt_tape *t);
/* Index of the program that the tape is. */
int32_t mt_simclock_keep(struct mt_simclock *k, const struct mt_tape *t);
#endif
