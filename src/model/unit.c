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
    return gathers(s, unit) && !(pass == MT_BACKWARD && s->unit[unit].kept == MT_KEPT_ALL);
}
static bool moves(const struct mt_store *s, int unit, enum mt_pass pass)
{
    return gathered(s, unit, pass) || (pass == MT_BACKWARD && turns(s, unit));
}

/* What arrives as fp8 is put into the working form here. */
static void unpack(struct mt_stream *s, const struct mt_store *st, int i, enum mt_pass pass)
{
    mt_fresh(s, mt_store_full(st, i, pass));
    for (int k = 0; k < st->n_matrices; k++)
        if (st->matrix[k].bucket == i) mt_fp8_unpack(s, mt_store_work(st, k, pass), mt_store_wire(st, k));
}

/* What this rank fetches from others, or from host memory. In two levels each node gets a piece from outside once: every rank
 * those of its rail, which its neighbours then have from it. */
static void fetch(struct mt_stream *s, const struct mt_bucket *b, const struct mt_gathering *g, bool host)
{
    if (b->near) mt_fresh(s, mt_view_given(g->apart) ? g->apart : g->whole);
    if (host)
        mt_copy_h2d(s, g->fetched, g->host);
    else if (b->near)
        mt_gather_cut(s, g->fetched, g->mine, mt_mesh_rail_part(b->group), g->cut.rail);
    else
        mt_gather_cut(s, g->whole, g->mine, b->group, g->cut.all);
}
/* What its neighbours fetched, and the working form of it all. */
static void complete(struct mt_stream *s, const struct mt_store *st, int i, enum mt_pass pass)
{
    const struct mt_bucket *b = &st->bucket[i];
    struct mt_gathering g = mt_store_gathering(st, i, pass);
    if (b->near && mt_view_given(g.apart))
        mt_gather_cut(s, g.whole, g.fetched, mt_mesh_node_part(b->group), g.cut.node);
    else if (b->near)
        mt_gather_rest(s, g.whole, g.fetched, mt_mesh_node_part(b->group), g.cut.node);
    if (b->fp8) unpack(s, st, i, pass);
}

/* Into host memory goes what was fetched, on a stream of its own. b: n buckets of the unit. */
static void save(struct mt_rank *r, int unit, const int *b, int n, enum mt_pass pass)
{
    struct mt_stream *s = &r->ctx->stream[MT_D2H];
    mt_stream_wait(s, mt_event_record(&r->ctx->stream[MT_GATHER]));
    for (int i = 0; i < n; i++) {
        struct mt_gathering g = mt_store_gathering(&r->m->store, b[i], pass);
        mt_fresh(s, g.host_row);
        mt_copy_d2h(s, g.host, g.fetched);
    }
    r->host[unit] = mt_event_record(s);
}

/* The unit's buffers of a pass may be written: `after` is past, and the last pass that read them; so are copies to the host of
 * units that have been used, whose bytes these may be. */
static void buffers_free(struct mt_rank *r, struct mt_stream *s, int unit, enum mt_pass pass, mt_event after)
{
    mt_stream_throttle(s, after);
    mt_stream_throttle(s, r->host_passed);
    mt_lease_fill(s, &r->weights[pass][unit]);
    if (pass == MT_FORWARD && r->m->store.unit[unit].kept == MT_KEPT_ALL)
        mt_lease_fill(s, &r->weights[MT_BACKWARD][unit]); /* one buffer */
}

/* Whether both passes fetch into one buffer, which the gather stream reads before it hands over what others read. */
static bool fetched_apart(const struct mt_store *st, const int *b, int n)
{
    bool apart = false;
    for (int i = 0; i < n; i++) apart = apart || st->bucket[b[i]].fp8 || st->bucket[b[i]].region_row >= 0;
    return apart;
}
/* From other ranks, or, on a stream of its own for which the gather stream waits, from host memory. */
static void fetch_unit(struct mt_rank *r, int unit, const int *b, int n, enum mt_pass pass, mt_event after)
{
    const struct mt_store *st = &r->m->store;
    bool host = r->host[unit].seq > 0;
    struct mt_stream *s = &r->ctx->stream[host ? MT_H2D : MT_GATHER];
    buffers_free(r, s, unit, pass, after);
    mt_stream_wait(s, r->host[unit]); /* most often met by then: of copies to the host, a later one is over */
    /* The last blocks are fetched for backward before forward uses them. */
    if (host && fetched_apart(st, b, n))
        mt_stream_wait(s, pass == MT_FORWARD ? r->weights[MT_BACKWARD][unit].used
                                             : r->weights[MT_FORWARD][unit].ready);
    for (int i = 0; i < n; i++) {
        struct mt_gathering g = mt_store_gathering(st, b[i], pass);
        fetch(s, &st->bucket[b[i]], &g, host);
    }
    if (host) mt_stream_wait(&r->ctx->stream[MT_GATHER], mt_event_record(s));
}

void mt_unit_gather(struct mt_rank *r, int unit, enum mt_pass pass, mt_event after)
{
    const struct mt_store *st = &r->m->store;
    const struct mt_unit *u = &st->unit[unit];
    struct mt_stream *s = &r->ctx->stream[MT_GATHER];
    int b[MT_UNIT_BUCKETS], n = gathered(st, unit, pass) ? buckets_of(st, unit, b) : 0;
    bool fetches = n && !(pass == MT_BACKWARD && u->kept == MT_KEPT_REGION);
    if (!moves(st, unit, pass)) return;
    if (fetches)
        fetch_unit(r, unit, b, n, pass, after);
    else
        buffers_free(r, s, unit, pass, after);
    for (int i = 0; i < n; i++) complete(s, st, b[i], pass);
    if (fetches && u->in_host && r->again && !r->host[unit].seq) save(r, unit, b, n, pass);
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
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (!moves(&r->m->store, unit, pass)) return;
    mt_lease_done(s, &r->weights[pass][unit]);
    if (r->host[unit].seq > r->host_passed.seq) r->host_passed = r->host[unit];
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

/* Inside the node: the members' gradients of this rank's region, in f32, summed in their order, back into its place, which
 * everyone has read by then. */
static mt_view reduce_in_node(struct mt_stream *s, const struct mt_store *st, int i)
{
    const struct mt_bucket *b = &st->bucket[i];
    mt_view region = mt_store_grad_region(st, i), staging = mt_store_node_staging_bytes(st, i);
    mt_scatter_cut(s, staging, mt_store_full_grad(st, i), mt_mesh_node_part(b->group), b->grad_cut.node,
                   4 * b->region);
    if (region.bytes) {
        mt_fill0(s, region);
        mt_sum_pieces(s, region, mt_store_node_staging(st, i));
    }
    mt_keep(s, staging);
    return region;
}

/* Reduce-scatter: the pieces are moved, in the type of the wire, then summed in the order of the members, in f32. In two levels
 * the sums of the nodes are what crosses the wire, and what its type rounds. */
static void reduce_bucket(struct mt_rank *r, struct mt_stream *s, int unit, int i)
{
    const struct mt_store *st = &r->m->store;
    const struct mt_bucket *b = &st->bucket[i];
    mt_view grad = b->near ? reduce_in_node(s, st, i) : mt_store_full_grad(st, i);
    if (b->grad_wire != MT_F32) {
        mt_view wire = mt_store_grad_wire(st, i);
        mt_fresh(s, mt_view_of(b->grad_wire_row, MT_U8, 0, mt_dtype_bytes(b->grad_wire) * b->region, 0, 0));
        if (grad.bytes) mt_grad_cast(s, wire, grad);
        grad = wire;
    }
    mt_scatter_cut(s, mt_store_staging_bytes(st, i), grad, b->near ? mt_mesh_rail_part(b->group) : b->group,
                   b->near ? b->grad_cut.rail : b->grad_cut.all, mt_dtype_bytes(b->grad_wire) * b->piece);
    mt_view mine = mt_accumulator_in(r, s, i, !r->sums[unit], r->grads[unit].ready);
    if (mt_view_given(mine)) mt_sum_pieces(s, mine, mt_store_staging(st, i));
    mt_accumulator_norm(r, s, i, mine, mt_accumulator_is_last(r, unit));
}

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
        reduce_bucket(r, s, unit, b[i]);
        if (st->bucket[b[i]].host[MT_STATE_GRAD]) out = &r->ctx->stream[MT_D2H];
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

void mt_units_restart(struct mt_rank *r, bool again)
{
    size_t n = (size_t)r->m->store.n_units;
    for (int pass = 0; pass < MT_N_PASSES; pass++) memset(r->weights[pass], 0, n * sizeof *r->weights[pass]);
    memset(r->grads, 0, n * sizeof *r->grads);
    memset(r->sums, 0, n * sizeof *r->sums);
    mt_slots_restart(&r->slots);
    memset(r->host, 0, n * sizeof *r->host);
    r->host_passed = (mt_event){0, 0};
    r->again = again;
    memset(r->saved, 0, (size_t)r->m->shape.L * sizeof *r->saved);
    memset(r->kept, 0, (size_t)r->m->shape.L * sizeof *r->kept);
}
