#include "shard/slots.h"

#include <stdlib.h>
#include <string.h>

mt_status mt_slots_init(struct mt_slots *x, struct mt_ctx *ctx, const struct mt_store *store, mt_err *e)
{
    *x = (struct mt_slots){.ctx = ctx, .store = store};
    x->use = calloc((size_t)store->n_tensors + 1, sizeof *x->use);
    MT_REQUIRE(x->use, e, MT_IO, "cannot allocate the host state of %d tensors", store->n_tensors);
    return MT_OK;
}
void mt_slots_release(struct mt_slots *x)
{
    free(x->use);
    *x = (struct mt_slots){0};
}

void mt_slots_restart(struct mt_slots *x)
{
    memset(x->lease, 0, sizeof x->lease);
    memset(x->n, 0, sizeof x->n);
    memset(x->use, 0, (size_t)x->store->n_tensors * sizeof *x->use);
}

static struct mt_stream *stream(const struct mt_slots *x, enum mt_stream_id id)
{
    return &x->ctx->stream[id];
}
struct mt_stream *mt_slots_run(const struct mt_slots *x, enum mt_arena side)
{
    return stream(x, side == MT_DEVICE_ARENA ? MT_COMPUTE : MT_HOST);
}
/* To a side, and away from it. */
static struct mt_stream *inward(const struct mt_slots *x, enum mt_arena side)
{
    return stream(x, side == MT_DEVICE_ARENA ? MT_H2D : MT_D2H);
}
static struct mt_stream *outward(const struct mt_slots *x, enum mt_arena side)
{
    return stream(x, side == MT_DEVICE_ARENA ? MT_D2H : MT_H2D);
}
static void copy(struct mt_stream *s, mt_view dst, mt_view src)
{
    if (s->id == MT_H2D)
        mt_copy_h2d(s, dst, src);
    else
        mt_copy_d2h(s, dst, src);
}

static bool has_lane(const struct mt_slot *slot, int lane)
{
    return slot->lanes >> lane & 1;
}
static mt_view lane_whole(const struct mt_slots *x, const struct mt_slot *slot, int lane)
{
    const struct mt_store *s = x->store;
    return mt_view_of(s->lane_row[slot->side][slot->k][lane], MT_U8, 0, s->lane_bytes[slot->side][lane], 0,
                      0);
}

/* The next slot, when its last use is over. */
static void take(struct mt_slots *x, struct mt_slot *slot)
{
    struct mt_stream *in = inward(x, slot->side);
    slot->k = (int)(x->n[slot->side]++ % x->store->offload.slots);
    mt_lease_fill(in, &x->lease[slot->side][slot->k]);
    for (int i = 0; i < MT_N_LANES; i++)
        if (has_lane(slot, i)) mt_fresh(in, lane_whole(x, slot, i));
}
static void hand_over(struct mt_slots *x, const struct mt_slot *slot)
{
    struct mt_lease *l = &x->lease[slot->side][slot->k];
    mt_lease_filled(inward(x, slot->side), l);
    mt_lease_use(mt_slots_run(x, slot->side), l);
}

/* Which of the states have to come over; with the device's master, a lane for its fp8 form or what that is made from. */
static unsigned lanes_of(const struct mt_bucket *b, enum mt_arena side, unsigned uses)
{
    unsigned lanes = 0;
    for (int w = 0; w < MT_N_STATES; w++)
        if (uses >> w & 1 && b->host[w] == (side == MT_DEVICE_ARENA)) lanes |= MT_HAS(w);
    if (side == MT_DEVICE_ARENA && lanes & MT_HAS_MASTER && b->fp8) lanes |= MT_HAS(MT_LANE_FORM);
    return lanes;
}

/* Rows that strips share with a neighbour: before a strip is loaded to be packed, what has changed the neighbour's is over; before
 * the host changes its own, the neighbour's loading is. Where a neighbour comes later in the step, there is nothing to wait for. */
static void meet_neighbours(struct mt_slots *x, const struct mt_strip *p, enum mt_arena side)
{
    struct mt_stream *s = stream(x, side == MT_DEVICE_ARENA ? MT_H2D : MT_HOST);
    for (int by = -1; by <= 1; by += 2)
        if (mt_strip_shares(x->store, p, by)) {
            const struct mt_master_use *u = &x->use[p->tensor + by];
            mt_stream_wait(s, side == MT_DEVICE_ARENA ? u->changed : u->read);
        }
}

/* Where the strip's rows of a lane lie: on the device, all rows of the master. */
static mt_view lane_view(const struct mt_slots *x, const struct mt_slot *slot, int lane, mt_view home)
{
    return mt_view_of(x->store->lane_row[slot->side][slot->k][lane], MT_F32, 0, home.dim[0], home.dim[1], 0);
}

struct mt_slot mt_slot_load(struct mt_slots *x, const struct mt_strip *p, enum mt_arena side, unsigned uses,
                            unsigned in)
{
    const struct mt_store *s = x->store;
    const struct mt_bucket *b = &s->bucket[s->matrix[s->tensor[p->tensor].matrix].bucket];
    struct mt_slot slot = {
        .side = side, .k = -1, .lanes = lanes_of(b, side, uses), .master = MT_NONE, .form = -1};
    if (uses & MT_HAS_MASTER && b->host[MT_STATE_MASTER]) meet_neighbours(x, p, side);
    if (slot.lanes) take(x, &slot);
    for (int w = 0; w < MT_N_STATES; w++) {
        bool whole = w == MT_STATE_MASTER && side == MT_DEVICE_ARENA;
        mt_view v = uses >> w & 1 ? mt_strip_home(s, p, (enum mt_state)w, !whole) : MT_NONE;
        if (has_lane(&slot, w) && p->rows) {
            mt_view lane = lane_view(x, &slot, w, v);
            if (in >> w & 1) copy(inward(x, side), lane, v);
            v = lane;
        }
        if (whole) slot.master = v;
        slot.state[w] = whole && mt_view_given(v) ? mt_view_part(v, p->own0 - p->row0, p->own) : v;
    }
    if (has_lane(&slot, MT_LANE_FORM)) slot.form = s->lane_row[side][slot.k][MT_LANE_FORM];
    if (slot.lanes) hand_over(x, &slot);
    if (has_lane(&slot, MT_STATE_MASTER) && side == MT_DEVICE_ARENA)
        x->use[p->tensor].read = mt_event_record(inward(x, side));
    return slot;
}

void mt_slot_done(struct mt_slots *x, const struct mt_strip *p, const struct mt_slot *slot, unsigned out)
{
    struct mt_stream *run = mt_slots_run(x, slot->side), *last = run;
    if (!slot->lanes) {
        if (out & MT_HAS_MASTER) x->use[p->tensor].changed = mt_event_record(run);
        return;
    }
    if (slot->lanes & out) {
        last = outward(x, slot->side);
        mt_stream_wait(last, mt_event_record(run));
    }
    for (int w = 0; w < MT_N_STATES; w++)
        if (has_lane(slot, w) && out >> w & 1 && p->rows)
            copy(last, mt_strip_home(x->store, p, (enum mt_state)w, true), slot->state[w]);
    for (int i = 0; i < MT_N_LANES; i++)
        if (has_lane(slot, i)) mt_keep(last, lane_whole(x, slot, i));
    mt_lease_done(last, &x->lease[slot->side][slot->k]);
    if (out & MT_HAS_MASTER) x->use[p->tensor].changed = mt_event_record(last);
}

/* Strips that come to the device to be packed wait for the host, and that for what is before it; others begin here. Accumulators
 * that have left for host memory are the last that the compute stream has done; else its bytes become the lanes' here. */
static void open_device(struct mt_slots *x)
{
    const struct mt_store *s = x->store;
    const int64_t *lane = s->lane_bytes[MT_DEVICE_ARENA];
    bool comes = lane[MT_STATE_GRAD] || lane[MT_STATE_M] ||
                 (lane[MT_STATE_MASTER] && !s->offload.host_compute);
    if (!comes) return;
    if (s->offload.host[MT_STATE_GRAD])
        mt_stream_wait(stream(x, MT_H2D), mt_event_record(stream(x, MT_D2H)));
    else
        mt_stream_throttle(stream(x, MT_H2D), mt_event_record(stream(x, MT_COMPUTE)));
}

void mt_slots_open(struct mt_slots *x)
{
    struct mt_stream *d2h = stream(x, MT_D2H);
    open_device(x);
    if (!x->store->offload.host_compute) return;
    mt_stream_wait(d2h, mt_event_record(stream(x, MT_COMPUTE)));
    mt_stream_wait(stream(x, MT_HOST), mt_event_record(d2h));
}

void mt_slots_close(struct mt_slots *x)
{
    const struct mt_offload *o = &x->store->offload;
    if (o->host_compute && !o->host[MT_STATE_MASTER])
        mt_stream_wait(stream(x, MT_COMPUTE), mt_event_record(stream(x, MT_H2D)));
}
