/* head.c: embedding, final norm, head and loss. */
#include "data/sample.h"
#include "model/model.h"

struct mt_batch mt_model_batch(const struct mt_model *m, int64_t mb)
{
    int64_t n = m->shape.N;
    const struct mt_batch *d = &m->device;
    return (struct mt_batch){mt_view_part(d->tokens, mb * n, n), mt_view_part(d->labels, mb * n, n),
                             mt_view_part(d->begin, mb * n, n), mt_view_part(d->pos, mb * n, n),
                             mt_view_given(d->near) ? mt_view_part(d->near, mb * n, n) : MT_NONE};
}

void mt_model_windows(struct mt_rank *r, int64_t micro)
{
    const struct mt_batch *d = &r->m->device;
    int64_t N = r->m->shape.N;
    if (!mt_view_given(d->near)) return;
    mt_window_begin(&r->ctx->stream[MT_COMPUTE], mt_view_as(mt_view_part(d->near, 0, micro * N), micro, N, 0),
                    mt_view_as(mt_view_part(d->begin, 0, micro * N), micro, N, 0), r->m->shape.W);
}

int64_t mt_model_pairs(const struct mt_shape *s, int64_t l)
{
    return s->N / s->S * mt_pairs(s->S, mt_is_near(s, l) ? s->W : 0);
}

void mt_embed_forward(struct mt_rank *r, mt_view x)
{
    mt_embed_fwd(&r->ctx->stream[MT_COMPUTE], x, mt_model_batch(r->m, r->mb).tokens,
                 r->m->w[MT_FORWARD].embed);
}

/* The head's weights for forward; tied: the embedding's rows, packed. */
static mt_view head_weights(struct mt_rank *r, enum mt_pass pass)
{
    const struct mt_model *m = r->m;
    if (!m->shape.tied) return m->w[pass].head;
    mt_weight_form(&r->ctx->stream[MT_COMPUTE], m->head_nt, m->w[MT_FORWARD].embed);
    return m->head_nt;
}
static mt_view head_turned(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    if (!m->shape.tied) return m->t.head;
    mt_weight_turn(&r->ctx->stream[MT_COMPUTE], m->head_nn, m->head_nt);
    return m->head_nn;
}

/* A depth's output and what the head sees of it, which the last depth has not kept. */
struct seen {
    mt_view x, hn, rstd;
};
static struct seen seen(struct mt_rank *r, int depth)
{
    const struct mt_model *m = r->m;
    const struct mt_depth *d = &m->depth[depth];
    struct seen v = {mt_model_span_part(m, d->x, r->mb), m->hn, m->rstdf};
    if (mt_view_given(d->h))
        v.hn = mt_model_span_part(m, d->h, r->mb), v.rstd = mt_model_span_part(m, d->rstd, r->mb);
    else
        mt_rmsnorm_fwd(&r->ctx->stream[MT_COMPUTE], v.hn, v.rstd, v.x, mt_mtp_gain(m, depth, MT_BACKWARD),
                       m->opt.eps);
    return v;
}

void mt_head_forward_backward(struct mt_rank *r, int depth, mt_view dx)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view labels = mt_mtp_labels(r, depth), w = head_weights(r, MT_BACKWARD), t = head_turned(r);
    mt_view g = m->shape.tied ? m->g.embed : m->g.head, next = MT_NONE;
    mt_view sum = mt_view_part(m->loss, depth, 1), valid = mt_view_part(m->valid_sum, depth, 1);
    double weight = depth ? m->opt.mtp_weight / (double)m->shape.mtp : 1;
    struct seen v = seen(r, depth);

    if (depth < m->shape.mtp) next = mt_model_span_part(m, m->mtp.dh, r->mb);
    mt_fresh(s, m->dhn);
    for (int64_t at = 0, n; at < m->shape.N; at += n) {
        n = m->shape.N - at < m->shape.Nc ? m->shape.N - at : m->shape.Nc;
        mt_view lg = mt_view_part(m->chunk_logits, 0, n), dlg = mt_view_part(m->chunk_dlogits, 0, n);
        mt_view loss = mt_view_part(m->chunk_loss, 0, n), hn = mt_view_part(v.hn, at, n);
        mt_logits_fwd(s, lg, hn, w);
        mt_xent(s, dlg, loss, lg, mt_view_part(labels, at, n), valid, weight);
        mt_sum_loss(s, sum, loss);
        mt_linear_bwdw(s, g, dlg, hn);
        mt_linear_bwdx(s, mt_view_part(m->dhn, at, n), dlg, t,
                       mt_view_given(next) ? mt_view_part(next, at, n) : MT_NONE);
    }
    mt_rmsnorm_bwd(s, dx, m->b.gain, m->dhn, v.x, v.rstd, mt_mtp_gain(m, depth, MT_BACKWARD), MT_NONE);
    mt_sum_rows(s, mt_mtp_gain_grad(m, depth), m->b.gain);
}

void mt_head_eval(struct mt_rank *r, mt_view x)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view labels = mt_model_batch(m, r->mb).labels, w = head_weights(r, MT_FORWARD);
    mt_rmsnorm_fwd(s, m->hn, m->rstdf, x, m->w[MT_FORWARD].norm, m->opt.eps);
    for (int64_t at = 0, n; at < m->shape.N; at += n) {
        n = m->shape.N - at < m->shape.Nc ? m->shape.N - at : m->shape.Nc;
        mt_view lg = mt_view_part(m->chunk_logits, 0, n), loss = mt_view_part(m->chunk_loss, 0, n);
        mt_logits_fwd(s, lg, mt_view_part(m->hn, at, n), w);
        mt_xent_eval(s, loss, lg, mt_view_part(labels, at, n));
        mt_sum_loss(s, mt_view_part(m->loss, 0, 1), loss);
    }
}

void mt_head_logits(struct mt_rank *r, mt_view x, int64_t token)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_rmsnorm_fwd(s, m->hn, m->rstdf, x, m->w[MT_FORWARD].norm, m->opt.eps);
    mt_fresh(s, m->chunk_logits); /* one row of it is written */
    mt_logits_fwd(s, mt_view_part(m->chunk_logits, 0, 1), mt_view_part(m->hn, token, 1),
                  head_weights(r, MT_FORWARD));
}
