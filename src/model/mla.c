/* mla.c: queries, keys and values of multi-head latent attention, forward and backward (DeepSeek-V2, arXiv 2405.04434, equations 9
 * to 19; DeepSeek-V3 norms both compressed states).
 *
 *   cq = norm(n1 q_a^T)     q = rope(cq q_b^T)                                    without compression q = rope(n1 q^T)
 *   ckv = norm(n1 kv_a^T)   k = [rope(n1 k_rope^T) | ckv k_b^T]   v = ckv v_b^T
 *
 * All heads share the rotated part of the keys. */
#include "model/model.h"

/* Of the norms of compressed states, whatever the model's: what DeepSeek-V3 has. */
static const double compressed_eps = 1e-6;

static mt_view heads(mt_view v, int64_t n)
{
    return mt_view_as(v, v.dim[0], n, v.dim[1] / n);
}

void mt_mla_forward(struct mt_rank *r, int l, enum mt_pass pass)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const union mt_weights *w = &m->layer[l].w[pass];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view pos = mt_model_batch(m, r->mb).pos;

    if (d->Cq) {
        mt_linear_fwd(s, b->cq, b->n1, w->q_a, MT_NONE, MT_NONE);
        mt_rmsnorm_fwd(s, b->cqn, b->rstdcq, b->cq, w->q_a_norm, compressed_eps);
        mt_linear_fwd(s, b->q, b->cqn, w->q_b, MT_NONE, MT_NONE);
    } else {
        mt_linear_fwd(s, b->q, b->n1, w->q, MT_NONE, MT_NONE);
    }
    mt_rope(s, heads(b->q, d->H), pos, m->rope, 1);
    mt_linear_fwd(s, b->ckv, b->n1, w->kv_a, MT_NONE, MT_NONE);
    mt_rmsnorm_fwd(s, b->ckvn, b->rstdckv, b->ckv, w->kv_a_norm, compressed_eps);
    mt_linear_fwd(s, b->kr, b->n1, w->k_rope, MT_NONE, MT_NONE);
    mt_rope(s, heads(b->kr, 1), pos, m->rope, 1);
    mt_linear_fwd(s, b->kc, b->ckvn, w->k_b, MT_NONE, MT_NONE);
    mt_key_join(s, heads(b->k, d->H), b->kr, heads(b->kc, d->H));
    mt_linear_fwd(s, b->v, b->ckvn, w->v_b, MT_NONE, MT_NONE);
}

/* dq and dn1b, what came through keys and values -> dn1. */
static void queries_backward(struct mt_rank *r, int l)
{
    const struct mt_layer *y = &r->m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (r->m->shape.Cq) {
        mt_linear_bwdw(s, y->g.q_b, b->dq, b->cqn);
        mt_linear_bwdx(s, b->dcqn, b->dq, y->t.q_b, MT_NONE);
        mt_rmsnorm_bwd(s, b->dcq, b->gaincq, b->dcqn, b->cq, b->rstdcq, y->w[MT_BACKWARD].q_a_norm, MT_NONE);
        mt_sum_rows(s, y->g.q_a_norm, b->gaincq);
        mt_linear_bwdw(s, y->g.q_a, b->dcq, b->n1);
        mt_linear_bwdx(s, b->dn1, b->dcq, y->t.q_a, b->dn1b);
    } else {
        mt_linear_bwdw(s, y->g.q, b->dq, b->n1);
        mt_linear_bwdx(s, b->dn1, b->dq, y->t.q, b->dn1b);
    }
}

void mt_mla_backward(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    const struct mt_layer *y = &m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view pos = mt_model_batch(m, r->mb).pos;

    mt_linear_bwdw(s, y->g.v_b, b->dv, b->ckvn);
    mt_linear_bwdx(s, b->dckvn, b->dv, y->t.v_b, MT_NONE);
    mt_key_split(s, b->dkr, heads(b->dkc, d->H), heads(b->dk, d->H));
    mt_linear_bwdw(s, y->g.k_b, b->dkc, b->ckvn);
    mt_linear_bwdx(s, b->dckvnb, b->dkc, y->t.k_b, b->dckvn);
    mt_rope(s, heads(b->dkr, 1), pos, m->rope, -1);
    mt_linear_bwdw(s, y->g.k_rope, b->dkr, b->n1);
    mt_linear_bwdx(s, b->dn1, b->dkr, y->t.k_rope, MT_NONE);
    mt_rmsnorm_bwd(s, b->dckv, b->gainckv, b->dckvnb, b->ckv, b->rstdckv, y->w[MT_BACKWARD].kv_a_norm,
                   MT_NONE);
    mt_sum_rows(s, y->g.kv_a_norm, b->gainckv);
    mt_linear_bwdw(s, y->g.kv_a, b->dckv, b->n1);
    mt_linear_bwdx(s, b->dn1b, b->dckv, y->t.kv_a, b->dn1);
    mt_rope(s, heads(b->dq, d->H), pos, m->rope, -1);
    queries_backward(r, l);
}
