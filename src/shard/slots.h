/* slots.h: strips of state on their way through slots.
 *
 * A slot has a lane for each state, sized for the largest strip that needs one. Slots are used in turn: while the arithmetic is on
 * strip i, strip i + 1 is copied in and what strip i - 1 changed is copied out, on the two copy streams. The device's slots
 * are filled over MT_H2D and emptied over MT_D2H, the host's the other way round. */
#ifndef MT_SHARD_SLOTS_H
#define MT_SHARD_SLOTS_H
#include "shard/strip.h"

/* When a tensor's master was last changed in host memory, and when rows of it were last read there as somebody's neighbours. */
struct mt_master_use {
    mt_event changed, read;
};
/* Of one rank, beside its context. */
struct mt_slots {
    struct mt_ctx *ctx;
    const struct mt_store *store;
    struct mt_lease lease[MT_N_ARENAS][MT_MAX_SLOTS];
    int64_t n[MT_N_ARENAS];    /* used so far */
    struct mt_master_use *use; /* a tensor each; owned */
};
mt_status mt_slots_init(struct mt_slots *x, struct mt_ctx *ctx, const struct mt_store *store, mt_err *e);
void mt_slots_release(struct mt_slots *x);
/* No lease of an earlier step holds. */
void mt_slots_restart(struct mt_slots *x);

/* Sets of states. */
#define MT_HAS(state) (1u << (state))
enum {
    MT_HAS_MASTER = MT_HAS(MT_STATE_MASTER),
    MT_HAS_GRAD = MT_HAS(MT_STATE_GRAD),
    MT_HAS_M = MT_HAS(MT_STATE_M),
    MT_HAS_V = MT_HAS(MT_STATE_V)
};

struct mt_slot {
    enum mt_arena side;
    int k;                      /* slot; -1: everything is in place already */
    unsigned lanes;             /* in use */
    mt_view state[MT_N_STATES]; /* where this side finds them, [rows, cols]: the strip's own rows */
    mt_view master;             /* on the device: all rows of the strip */
    int32_t form;               /* row of the lane for what packing only passes through */
};
/* Makes the states `uses` of a strip available to a side's stream (MT_COMPUTE or MT_HOST); of them, `in` are copied if they live
 * on the other side. The stream has waited for them. */
struct mt_slot mt_slot_load(struct mt_slots *x, const struct mt_strip *p, enum mt_arena side, unsigned uses,
                            unsigned in);
/* After the arithmetic: those of `out` that live elsewhere go home, and the slot may be used again. */
void mt_slot_done(struct mt_slots *x, const struct mt_strip *p, const struct mt_slot *slot, unsigned out);

/* The streams of a side. */
struct mt_stream *mt_slots_run(const struct mt_slots *x, enum mt_arena side);
/* Around passes over strips. open: the copy streams and the host's take up what the compute stream and they themselves have come to;
 * close: masters that the host has changed for the device are back. */
void mt_slots_open(struct mt_slots *x);
void mt_slots_close(struct mt_slots *x);
#endif
