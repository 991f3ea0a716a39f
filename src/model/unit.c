/* unit.c: a unit's weights on their way to the operations, and its gradients on their way back to the shards. */
#include <string.h>

#include "model/model.h"

static int buckets_of(const struct mt_store *s, int unit, int out[MT_UNIT_BUCKETS])
{
    for (int i = 0; i < s->unit[unit].n_buckets; i++) out[i] = s->unit[unit].bucket + i;
    return s->unit[unit].n_buckets;
}
static bool gathers(const struct mt_store *s, int unit)
{
    return s->bucket[s->unit[unit].bucket].members > 1;
}
static bool turns(const struct mt_store *s, int unit)
{
    for (int i = 0; i < s->n_matrices; i++)
        if (s->matrix[i].unit == unit && s->matrix[i].turned_row >= 0) return true;
    return false;
}
/* Whether the unit is gathered for the pass: a kept one has been, when backward comes. */
static bool gathered(const struct mt_store *s, int unit, enum mt_pass pass)
{
    return gathers(s, unit) && !(pass == MT_BACKWARD && s->unit[unit].kept);
}
static bool moves(const struct mt_store *s, int unit, enum mt_pass pass)
{
    return gathered(s, unit, pass) || (pass == MT_BACKWARD && turns(s, unit));
}

/* What arrives as fp8 is put into the working form here. */
static void gather_fp8(struct mt_stream *s, const struct mt_store *st, int i, enum mt_pass pass)
{
    const struct mt_bucket *b = &st->bucket[i];
    mt_gather_cut(s, mt_store_wire_full(st, i), mt_store_wire_piece(st, i), b->group, b->wire_cut);
    mt_fresh(s, mt_store_full(st, i, pass));
    for (int k = 0; k < st->n_matrices; k++)
        if (st->matrix[k].bucket == i) mt_fp8_unpack(s, mt_store_work(st, k, pass), mt_store_wire(st, k));
}

static void gather_bucket(struct mt_stream *s, const struct mt_store *st, int i, enum mt_pass pass)
{
    const struct mt_bucket *b = &st->bucket[i];
    bool work = b->work_bytes > 0;
    if (b->fp8) {
        gather_fp8(s, st, i, pass);
        return;
    }
    mt_gather_cut(s, mt_store_full(st, i, pass),
                  work ? mt_store_work_piece(st, i) : mt_store_piece_bytes(st, i, MT_STATE_MASTER), b->group,
                  work ? b->work_cut : b->master_cut);
}

void mt_unit_gather(struct mt_rank *r, int unit, enum mt_pass pass, mt_event after)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_GATHER];
    int b[MT_UNIT_BUCKETS], n = gathered(st, unit, pass) ? buckets_of(st, unit, b) : 0;
    if (!moves(st, unit, pass)) return;
    mt_stream_throttle(s, after);
    mt_lease_fill(s, &r->weights[pass][unit]);
    for (int i = 0; i < n; i++) gather_bucket(s, st, b[i], pass);
    for (int i = 0; i < st->n_matrices && pass == MT_BACKWARD; i++)
        if (st->matrix[i].unit == unit && st->matrix[i].turned_row >= 0)
            mt_weight_turn(s, mt_store_turned(st, i), mt_store_work(st, i, pass));
    mt_lease_filled(s, &r->weights[pass][unit]);
}

void mt_unit_use(struct mt_rank *r, int unit, enum mt_pass pass)
{
    if (moves(&r->m->store, unit, pass)) mt_lease_use(&r->ctx->stream[MT_COMPUTE], &r->weights[pass][unit]);
}
void mt_unit_done(struct mt_rank *r, int unit, enum mt_pass pass)
{
    if (moves(&r->m->store, unit, pass)) mt_lease_done(&r->ctx->stream[MT_COMPUTE], &r->weights[pass][unit]);
}

void mt_grads_open(struct mt_rank *r, int unit, mt_event after)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    int b[MT_UNIT_BUCKETS], n = buckets_of(st, unit, b);
    if (mt_grads_open_home(r, unit, after)) return;
    if (!n) return;
    mt_stream_throttle(s, after);
    mt_lease_fill(s, &r->grads[unit]);
    for (int i = 0; i < n; i++) mt_fill0(s, mt_store_full_grad(st, b[i]));
}

/* Reduce-scatter: the pieces are moved, in the type of the wire, then summed in the order of the members, in f32. */
void mt_grads_reduce(struct mt_rank *r, int unit)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_REDUCE];
    struct mt_stream *out = s;
    int b[MT_UNIT_BUCKETS], n = buckets_of(st, unit, b);
    if (mt_grads_close_home(r, unit)) return;
    if (!n) return;
    mt_lease_filled(&r->ctx->stream[MT_COMPUTE], &r->grads[unit]);
    mt_lease_use(s, &r->grads[unit]);
    for (int i = 0; i < n; i++) {
        const struct mt_bucket *k = &st->bucket[b[i]];
        mt_view grad = mt_store_full_grad(st, b[i]);
        if (k->grad_wire != MT_F32) {
            mt_grad_cast(s, mt_store_grad_wire(st, b[i]), grad);
            grad = mt_store_grad_wire(st, b[i]);
        }
        mt_scatter_cut(s, mt_store_staging_bytes(st, b[i]), grad, k->group, k->grad_cut,
                       mt_dtype_bytes(k->grad_wire) * k->piece);
        mt_view mine = mt_accumulator_in(r, s, b[i], !r->sums[unit], r->grads[unit].ready);
        if (mt_view_given(mine)) mt_sum_pieces(s, mine, mt_store_staging(st, b[i]));
        mt_accumulator_norm(r, s, b[i], mine, mt_accumulator_is_last(r, unit));
        if (k->host[MT_STATE_GRAD]) out = &r->ctx->stream[MT_D2H];
    }
    if (out != s) mt_stream_wait(out, mt_event_record(s));
    for (int i = 0; i < n; i++) mt_accumulator_out(r, b[i]);
    mt_lease_done(out, &r->grads[unit]);
    r->sums[unit]++;
}

void mt_grads_sum_replicas(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    const struct mt_store *st = &m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_stream *out = &r->ctx->stream[MT_D2H];
    int64_t n = m->opt.mesh.replicas;
    mt_stream_wait(s, mt_event_record(&r->ctx->stream[MT_REDUCE]));
    /* Of accumulators in host memory two buckets are here at a time. */
    mt_event after = mt_event_record(out), before = after;
    for (int i = 0; i < st->n_buckets && n > 1; i++) {
        bool home = st->bucket[i].host[MT_STATE_GRAD];
        mt_view mine = mt_accumulator_in(r, s, i, false, before);
        /* Where this rank has no piece, no other replica's rank of this group has one. */
        if (mt_view_given(mine)) {
            mt_view all = mt_view_of(m->replica_row, MT_F32, 0, n, mine.dim[0], 0);
            mt_fresh(s, mt_view_of(m->replica_row, MT_U8, 0, m->replica_bytes, 0, 0));
            mt_gather(s, all, mine, MT_GROUP_REPLICA, n, mine.bytes);
            mt_fill0(s, mine);
            mt_sum_pieces(s, mine, all);
        }
        if (!home) continue;
        mt_accumulator_norm(r, s, i, mine, true);
        mt_stream_wait(out, mt_event_record(s));
        mt_accumulator_out(r, i);
        before = after;
        after = mt_event_record(out);
    }
}

void mt_units_restart(struct mt_rank *r)
{
    size_t n = (size_t)r->m->store.n_units;
    for (int pass = 0; pass < MT_N_PASSES; pass++) memset(r->weights[pass], 0, n * sizeof *r->weights[pass]);
    memset(r->grads, 0, n * sizeof *r->grads);
    memset(r->sums, 0, n * sizeof *r->sums);
    mt_slots_restart(&r->slots);
    memset(r->saved, 0, (size_t)r->m->shape.L * sizeof *r->saved);
    memset(r->kept, 0, (size_t)r->m->shape.L * sizeof *r->kept);
}
