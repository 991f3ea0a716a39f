/* accumulate.c: gradient accumulators in host memory, in device memory while something is added to them. The first micro-batch of
 * a step begins them there, later ones copy them in; after each they are copied out. */
#include "model/model.h"

static mt_view whole(int32_t row, int64_t bytes)
{
    return mt_view_of(row, MT_U8, 0, bytes, 0, 0);
}

/* Until when a unit's accumulators stay away, so that those of shard.grads units are here: what a unit so far before it has sent off.
 * The head's come when forward is over, and those of the last blocks right behind them. */
static mt_event not_before(const struct mt_rank *r, int unit, mt_event after)
{
    const struct mt_model *m = r->m;
    int64_t before = m->opt.grads - 1;
    if (m->store.unit[unit].layer >= 0) return after;
    if (unit == m->head_unit || m->shape.tied) return mt_event_record(&r->ctx->stream[MT_COMPUTE]);
    if (before >= m->shape.L) return after;
    const struct mt_layer *y = &m->layer[before];
    return r->grads[y->experts >= 0 ? y->experts : y->unit].used;
}

/* Whether the unit's weights are whole on every rank; then all its buckets are of a group of one. */
static bool is_whole(const struct mt_store *st, int unit)
{
    return st->bucket[st->unit[unit].bucket].members == 1;
}
/* Those of its buckets whose accumulators are in host memory. */
static int away(const struct mt_store *st, int unit, int out[MT_UNIT_BUCKETS])
{
    const struct mt_unit *u = &st->unit[unit];
    int n = 0;
    for (int i = u->bucket; i < u->bucket + u->n_buckets; i++)
        if (st->bucket[i].host[MT_STATE_GRAD]) out[n++] = i;
    return n;
}

/* Whether the copies of a block's experts come right behind the unit's: what waits for them has waited for these. */
static bool more_come(const struct mt_rank *r, int unit)
{
    const struct mt_store *st = &r->m->store;
    int l = st->unit[unit].layer, experts = l < 0 ? -1 : r->m->layer[l].experts;
    return experts > unit && is_whole(st, experts);
}

/* A group of one adds its products to the accumulators themselves. */
static void open_whole(struct mt_rank *r, int unit, mt_event after)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE], *in = &r->ctx->stream[MT_H2D];
    int b[MT_UNIT_BUCKETS], n = away(st, unit, b);
    if (!n) return;
    if (!r->sums[unit]) {
        mt_stream_throttle(s, after);
        mt_lease_fill(s, &r->grads[unit]);
        for (int i = 0; i < n; i++) mt_fill0(s, mt_store_full_grad(st, b[i]));
        return;
    }
    mt_stream_throttle(in, not_before(r, unit, after));
    mt_lease_fill(in, &r->grads[unit]);
    for (int i = 0; i < n; i++)
        mt_copy_h2d(in, mt_store_full_grad(st, b[i]), mt_store_piece(st, b[i], MT_STATE_GRAD));
    if (!more_come(r, unit)) mt_stream_wait(s, mt_event_record(in));
}

bool mt_grads_open_home(struct mt_rank *r, int unit, mt_event after)
{
    if (!is_whole(&r->m->store, unit)) return false;
    open_whole(r, unit, after);
    return true;
}

bool mt_grads_close_home(struct mt_rank *r, int unit)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE], *out = &r->ctx->stream[MT_D2H];
    int b[MT_UNIT_BUCKETS], n = away(st, unit, b);
    if (!is_whole(st, unit)) return false;
    if (!n) return true;
    for (int i = 0; i < n; i++)
        mt_accumulator_norm(r, s, b[i], mt_store_full_grad(st, b[i]), mt_accumulator_is_last(r, unit));
    mt_lease_filled(s, &r->grads[unit]);
    mt_lease_use(out, &r->grads[unit]);
    for (int i = 0; i < n; i++)
        mt_copy_d2h(out, mt_store_piece(st, b[i], MT_STATE_GRAD), mt_store_full_grad(st, b[i]));
    mt_lease_done(out, &r->grads[unit]);
    r->sums[unit]++;
    return true;
}

mt_view mt_accumulator_in(struct mt_rank *r, struct mt_stream *s, int bucket, bool begin, mt_event after)
{
    const struct mt_store *st = &r->m->store;
    const struct mt_bucket *b = &st->bucket[bucket];
    mt_view home = mt_store_piece(st, bucket, MT_STATE_GRAD);
    if (!b->host[MT_STATE_GRAD]) return home;
    int32_t row = b->acc_row >= 0 ? b->acc_row : b->grad_row;
    mt_view acc = mt_view_given(home) ? mt_view_of(row, MT_F32, 0, home.dim[0], 0, 0) : MT_NONE;
    struct mt_stream *in = begin ? s : &r->ctx->stream[MT_H2D];
    if (!begin) mt_stream_wait(in, after);
    mt_fresh(in, whole(row, 4 * b->piece));
    if (mt_view_given(acc) && begin) mt_fill0(s, acc);
    if (mt_view_given(acc) && !begin) mt_copy_h2d(in, acc, home);
    if (!begin) mt_stream_wait(s, mt_event_record(in));
    return acc;
}

bool mt_accumulator_is_last(const struct mt_rank *r, int unit)
{
    const struct mt_model_options *o = &r->m->opt;
    return o->mesh.replicas == 1 && r->sums[unit] + 1 == o->micro_batches / o->span;
}

void mt_accumulator_norm(struct mt_rank *r, struct mt_stream *s, int bucket, mt_view acc, bool last)
{
    if (!last || !mt_view_given(acc) || !r->m->store.bucket[bucket].host[MT_STATE_GRAD]) return;
    mt_sumsq(s, mt_view_as(mt_view_part(r->m->sumsq, s->id == MT_REDUCE, 1), MT_SUMSQ_WORDS, 0, 0), acc);
}

void mt_accumulator_out(struct mt_rank *r, int bucket)
{
    const struct mt_store *st = &r->m->store;
    const struct mt_bucket *b = &st->bucket[bucket];
    struct mt_stream *out = &r->ctx->stream[MT_D2H];
    mt_view home = mt_store_piece(st, bucket, MT_STATE_GRAD);
    if (!b->host[MT_STATE_GRAD]) return;
    int32_t row = b->acc_row >= 0 ? b->acc_row : b->grad_row;
    if (mt_view_given(home)) mt_copy_d2h(out, home, mt_view_of(row, MT_F32, 0, home.dim[0], 0, 0));
    mt_keep(out, whole(row, 4 * b->piece));
}
