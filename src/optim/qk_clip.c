#include "optim/qk_clip.h"

#include <float.h>

#include "model/param.h"
#include "model/touch.h"

/* Which rows of a kind of parameter belong to which heads, as the operation has it; width 0: it is neither of q nor of k. */
struct rows {
    int64_t width, whole, per, of;
};
static struct rows rows_of(const struct mt_shape *d, int kind)
{
    const int64_t share = d->H / d->G;
    switch (kind) {
    case MT_P_q:
    case MT_P_q_b: return d->Ck ? (struct rows){d->A, d->R, 1, 1} : (struct rows){d->A, 0, share, share};
    case MT_P_k_b: return (struct rows){d->A - d->R, 0, 1, 1};
    case MT_P_q_bias: return (struct rows){d->A, 0, share, share};
    case MT_P_k:
    case MT_P_k_bias: return (struct rows){d->A, 0, 1, share};
    default: return (struct rows){0};
    }
}

void mt_qk_clip_scores(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    const int64_t n = m->shape.L * m->shape.H;
    if (!m->opt.tops) return;
    mt_gather(s, m->top_all, m->top, MT_GROUP_WORLD, r->ctx->world, 4 * n);
    mt_max_parts(s, mt_view_as(m->top_most, n, 0, 0), m->top_all);
    mt_fill_f32(s, m->top_one, -FLT_MAX);
    mt_max_rows(s, m->top_one, mt_view_as(m->top_most, 1, n, 0));
}

struct run {
    struct mt_rank *r;
    double tau;
    int tensor;
    struct rows rows;
    mt_view top; /* [H] of the layer, by the arena of the arithmetic */
};
/* v: rows of the tensor from row `first` on. */
static void clip(const struct run *x, struct mt_stream *s, mt_view v, int64_t first, int64_t rows)
{
    const struct rows *p = &x->rows;
    const int64_t cols = mt_view_count(v) / rows;
    mt_qk_clip(s, mt_view_as(v, rows, cols, 0), x->top, x->tau, first, p->width, p->whole, p->per, p->of);
}
static void in_place(const struct run *x)
{
    const struct mt_store *st = &x->r->m->store;
    const struct mt_local here = mt_store_local(st, x->tensor);
    if (!here.parts || !here.rows) return;
    clip(x, &x->r->ctx->stream[MT_COMPUTE], mt_store_local_state(st, x->tensor, MT_STATE_MASTER), here.row0,
         here.rows);
}
/* Masters that the optimizer has sent home come over once more. */
static void by_strips(const struct run *x, enum mt_arena side)
{
    const struct mt_store *st = &x->r->m->store;
    const struct mt_slots *slots = &x->r->slots;
    const enum mt_stream_id in = side == MT_DEVICE_ARENA ? MT_H2D : MT_D2H;
    if (st->bucket[st->matrix[st->tensor[x->tensor].matrix].bucket].host[MT_STATE_MASTER] ==
        (side == MT_DEVICE_ARENA))
        mt_stream_wait(&x->r->ctx->stream[in], slots->use[x->tensor].changed);
    for (int64_t i = 0; i < mt_strip_count(st, x->tensor); i++) {
        struct mt_strip p = mt_strip_at(st, x->tensor, i);
        struct mt_slot slot = mt_slot_load(&x->r->slots, &p, side, MT_HAS_MASTER, MT_HAS_MASTER);
        if (p.rows)
            clip(x, mt_slots_run(slots, side), slot.state[MT_STATE_MASTER],
                 p.own0 - st->tensor[x->tensor].row0, p.own);
        mt_strip_end(x->r, &p, &slot, MT_HAS_MASTER);
    }
}

/* Where the host's arithmetic needs them. */
static void scores_to_host(struct mt_rank *r)
{
    struct mt_stream *out = &r->ctx->stream[MT_D2H];
    if (!mt_view_given(r->m->top_host)) return;
    mt_copy_d2h(out, r->m->top_host, r->m->top_most);
    mt_stream_wait(&r->ctx->stream[MT_HOST], mt_event_record(out));
}

void mt_qk_clip_update(struct mt_rank *r, double tau)
{
    const struct mt_model *m = r->m;
    const struct mt_store *st = &m->store;
    if (!m->opt.tops) return;
    scores_to_host(r);
    for (int t = 0; t < st->n_tensors; t++) {
        const struct mt_tensor *p = &st->tensor[t];
        const enum mt_arena side = mt_strip_side(st, t);
        const bool strips = mt_bucket_offloads(st, st->matrix[p->matrix].bucket);
        struct run x = {r, tau, t, rows_of(&m->shape, p->kind), MT_NONE};
        if (!x.rows.width || p->optimizer == MT_FROZEN) continue;
        x.top = mt_view_part(strips && side == MT_HOST_ARENA ? m->top_host : m->top_most, p->layer, 1);
        x.top = mt_view_as(x.top, m->shape.H, 0, 0);
        mt_touch(r, mt_touch_state(t, MT_STATE_MASTER));
        if (strips)
            by_strips(&x, side);
        else
            in_place(&x);
    }
}
