/* block.c: one transformer block, forward and backward. Backward is forward's list upside down: activation gradients
 * are written, parameter gradients added to. */
#include <math.h>

#include "model/model.h"

static mt_view heads(mt_view v, int64_t n, int64_t width)
{
    return mt_view_as(v, v.dim[0], n, width);
}
static mt_view rows_of_heads(mt_view v, int64_t n, int64_t width)
{
    return mt_view_as(v, v.dim[0] * n, width, 0);
}

/* First token that each token of the layer sees. */
static mt_view begin_of(const struct mt_shape *d, int l, const struct mt_batch *batch)
{
    return mt_is_near(d, l) ? batch->near : batch->begin;
}

static double scale_of(const struct mt_model *m)
{
    return m->opt.rope.scores / sqrt((double)m->shape.A);
}

/* n1 -> q, k, v, normed and rotated. */
static void qkv(struct mt_rank *r, int l, enum mt_pass pass)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const union mt_weights *w = &m->layer[l].w[pass];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view pos = mt_model_batch(m, r->mb).pos, q = b->q, k = b->k;

    mt_linear_fwd(s, b->q, b->n1, w->q, w->q_bias, MT_NONE);
    mt_linear_fwd(s, b->k, b->n1, w->k, w->k_bias, MT_NONE);
    mt_linear_fwd(s, b->v, b->n1, w->v, w->v_bias, MT_NONE);
    if (d->qk_norm) {
        q = b->qn, k = b->kn;
        mt_rmsnorm_fwd(s, rows_of_heads(q, d->H, d->A), b->rstdq, rows_of_heads(b->q, d->H, d->A), w->q_norm,
                       m->opt.eps);
        mt_rmsnorm_fwd(s, rows_of_heads(k, d->G, d->A), b->rstdk, rows_of_heads(b->k, d->G, d->A), w->k_norm,
                       m->opt.eps);
    }
    mt_rope(s, heads(q, d->H, d->A), pos, m->rope, 1);
    mt_rope(s, heads(k, d->G, d->A), pos, m->rope, 1);
}

/* q, k, v -> o; of a pass that backward will follow, with the largest score of each head. */
static void scores(struct mt_rank *r, int l, enum mt_pass pass, mt_view q, mt_view k)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    const struct mt_batch batch = mt_model_batch(m, r->mb);
    const mt_view o = heads(b->o, d->H, d->B), hq = heads(q, d->H, d->A), hk = heads(k, d->G, d->A),
                  hv = heads(b->v, d->G, d->B), begin = begin_of(d, l, &batch);
    if (!m->opt.tops || pass != MT_FORWARD || !r->train) {
        mt_attention_fwd(s, o, b->lse, hq, hk, hv, begin, scale_of(m), mt_model_pairs(d, l));
        return;
    }
    mt_attention_fwd_top(s, o, b->lse, hq, hk, hv, begin, b->tops, scale_of(m), mt_model_pairs(d, l));
    mt_max_rows(s, mt_view_as(mt_view_part(m->top, l, 1), d->H, 0, 0), b->tops);
}

/* x -> n1, q, k, v, o, h, n2: what both directions need; backward computes again what was not kept. */
static void attention(struct mt_rank *r, int l, enum mt_pass pass, mt_view x)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const union mt_weights *w = &m->layer[l].w[pass];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];

    if (mt_computes(r, l, pass, MT_KEEP_ATTN_NORM))
        mt_rmsnorm_fwd(s, b->n1, b->rstd1, x, w->attn_norm, m->opt.eps);
    if (mt_computes(r, l, pass, MT_KEEP_QKV)) (d->Ck ? mt_mla_forward : qkv)(r, l, pass);
    if (mt_computes(r, l, pass, MT_KEEP_ATTENTION))
        scores(r, l, pass, d->qk_norm ? b->qn : b->q, d->qk_norm ? b->kn : b->k);
    if (mt_computes(r, l, pass, MT_KEEP_ATTN_OUT)) mt_linear_fwd(s, b->h, b->o, w->o, MT_NONE, x);
    if (mt_computes(r, l, pass, MT_KEEP_FFN_NORM))
        mt_rmsnorm_fwd(s, b->n2, b->rstd2, b->h, w->ffn_norm, m->opt.eps);
}

/* dq, dk, dv -> dn1. */
static void qkv_backward(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const struct mt_layer *y = &m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view pos = mt_model_batch(m, r->mb).pos, dq = b->dq, dk = b->dk;

    mt_rope(s, heads(b->dq, d->H, d->A), pos, m->rope, -1);
    mt_rope(s, heads(b->dk, d->G, d->A), pos, m->rope, -1);
    if (d->qk_norm) {
        dq = b->dqn, dk = b->dkn;
        mt_rmsnorm_bwd(s, rows_of_heads(dq, d->H, d->A), b->gainq, rows_of_heads(b->dq, d->H, d->A),
                       rows_of_heads(b->q, d->H, d->A), b->rstdq, y->w[MT_BACKWARD].q_norm, MT_NONE);
        mt_sum_rows(s, y->g.q_norm, b->gainq);
        mt_rmsnorm_bwd(s, rows_of_heads(dk, d->G, d->A), b->gaink, rows_of_heads(b->dk, d->G, d->A),
                       rows_of_heads(b->k, d->G, d->A), b->rstdk, y->w[MT_BACKWARD].k_norm, MT_NONE);
        mt_sum_rows(s, y->g.k_norm, b->gaink);
    }
    if (d->attn_bias) {
        mt_bias_bwd(s, y->g.q_bias, dq);
        mt_bias_bwd(s, y->g.k_bias, dk);
        mt_bias_bwd(s, y->g.v_bias, b->dv);
    }
    mt_linear_bwdw(s, y->g.v, b->dv, b->n1);
    mt_linear_bwdx(s, b->dn1, b->dv, y->t.v, MT_NONE);
    mt_linear_bwdw(s, y->g.k, dk, b->n1);
    mt_linear_bwdx(s, b->dn1b, dk, y->t.k, b->dn1);
    mt_linear_bwdw(s, y->g.q, dq, b->n1);
    mt_linear_bwdx(s, b->dn1, dq, y->t.q, b->dn1b);
}

/* dh (gradient of h) -> dx = dh + the path through attention. */
static void attention_backward(struct mt_rank *r, int l, mt_view x, mt_view dx)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const struct mt_layer *y = &m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_batch batch = mt_model_batch(m, r->mb);
    mt_view q = d->qk_norm ? b->qn : b->q, k = d->qk_norm ? b->kn : b->k;

    mt_linear_bwdx(s, b->dout, b->dh, y->t.o, MT_NONE);
    mt_linear_bwdw(s, y->g.o, b->dh, b->o);
    mt_attention_bwd(s, heads(b->dq, d->H, d->A), heads(b->dk, d->G, d->A), heads(b->dv, d->G, d->B),
                     heads(b->dout, d->H, d->B), heads(b->o, d->H, d->B), b->lse, heads(q, d->H, d->A),
                     heads(k, d->G, d->A), heads(b->v, d->G, d->B), begin_of(d, l, &batch), b->delta,
                     scale_of(m), mt_model_pairs(d, l));
    (d->Ck ? mt_mla_backward : qkv_backward)(r, l);
    mt_rmsnorm_bwd(s, dx, b->gain, b->dn1, x, b->rstd1, y->w[MT_BACKWARD].attn_norm, b->dh);
    mt_sum_rows(s, y->g.attn_norm, b->gain);
}

static void mlp_in(struct mt_rank *r, int l, enum mt_pass pass)
{
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (mt_computes(r, l, pass, MT_KEEP_FFN_UP))
        mt_linear_fwd(s, b->u, b->n2, r->m->layer[l].w[pass].mlp_in, MT_NONE, MT_NONE);
    if (mt_computes(r, l, pass, MT_KEEP_FFN_ACT)) mt_swiglu_fwd(s, b->s, b->u);
}

static void mlp_forward(struct mt_rank *r, int l, mt_view y)
{
    const struct mt_buffers *b = &r->b;
    const union mt_weights *w = &r->m->layer[l].w[MT_FORWARD];
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mlp_in(r, l, MT_FORWARD);
    mt_linear_fwd(s, y, b->s, w->mlp_down, MT_NONE, b->h);
}

static void mlp_backward(struct mt_rank *r, int l, mt_view dy)
{
    const struct mt_buffers *b = &r->b;
    const struct mt_layer *y = &r->m->layer[l];
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mlp_in(r, l, MT_BACKWARD);
    mt_linear_bwdw(s, y->g.mlp_down, dy, b->s);
    mt_linear_bwdx(s, b->ds, dy, y->t.mlp_down, MT_NONE);
    mt_swiglu_bwd(s, b->du, b->ds, b->u);
    mt_linear_bwdw(s, y->g.mlp_in, b->du, b->n2);
    mt_linear_bwdx(s, b->dn2, b->du, y->t.mlp_in, MT_NONE);
}

void mt_block_forward(struct mt_rank *r, int l, mt_view x, mt_view y)
{
    mt_block_buffers(r, l, MT_FORWARD);
    attention(r, l, MT_FORWARD, x);
    if (mt_is_moe(&r->m->shape, l))
        mt_moe_forward(r, l, y);
    else
        mlp_forward(r, l, y);
}

void mt_block_backward(struct mt_rank *r, int l, mt_view x, mt_view dx, mt_view dy)
{
    const struct mt_layer *y = &r->m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_block_buffers(r, l, MT_BACKWARD);
    attention(r, l, MT_BACKWARD, x); /* what was not kept, again; the routing never */
    if (mt_is_moe(&r->m->shape, l))
        mt_moe_backward(r, l, dy);
    else
        mlp_backward(r, l, dy);
    mt_rmsnorm_bwd(s, b->dh, b->gain, b->dn2, b->h, b->rstd2, y->w[MT_BACKWARD].ffn_norm, dy);
    mt_sum_rows(s, y->g.ffn_norm, b->gain);
    attention_backward(r, l, x, dx);
}
