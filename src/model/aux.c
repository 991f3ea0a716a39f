/* aux.c: what blocks of experts learn besides the loss of the tokens: that experts are chosen evenly, and that the router's
 * logits stay small. Each loss is a mean over the tokens of the step, summed over the blocks.
 *
 * The balance losses are E / (K T) sum_e c_e P_e: c_e of T tokens score expert e among their K best, and P_e is the mean of the scores
 * of the tokens at hand, made to sum to 1. So a token's share takes c alone, which is a constant to the gradient: of its sequence, or of
 * all tokens of the step's micro-batches so far, on all ranks. 1 is even. */
#include "model/model.h"

bool mt_aux_any(const struct mt_model *m)
{
    return m->opt.aux[MT_AUX_SEQUENCE] > 0 || m->opt.aux[MT_AUX_GLOBAL] > 0 || m->opt.aux[MT_AUX_Z] > 0;
}

/* Counts of all ranks are not needed before backward: they go round on the stream of reductions. */
static void count_all(struct mt_rank *r, int l, const struct mt_route *p)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_REDUCE];
    mt_stream_wait(s, mt_event_record(&r->ctx->stream[MT_COMPUTE]));
    mt_gather(s, m->chosen_all, p->local, MT_GROUP_WORLD, r->ctx->world, 8 * m->shape.E);
    mt_counts_total(s, m->layer[l].so_far, mt_view_as(p->total, m->shape.E, 0, 0), m->chosen_all);
    r->counted[l] = mt_event_record(s);
}

void mt_aux_forward(struct mt_rank *r, int l)
{
    struct mt_route p = mt_model_route(r->m, l, r->mb);
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (mt_view_given(p.chosen)) mt_router_counts(s, p.chosen, r->b.logits, r->m->shape.K);
    if (!mt_view_given(p.local)) return;
    mt_router_counts(s, p.local, r->b.logits, r->m->shape.K);
    count_all(r, l, &p);
}

/* counts: of so many tokens each row. */
static void balance(struct mt_rank *r, enum mt_aux which, mt_view counts, int64_t tokens)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    double all = (double)(d->N * r->ctx->world * m->opt.micro_batches);
    mt_router_balance(s, r->b.dlogits, r->b.aux, r->b.logits, counts, m->opt.score,
                      (double)d->E / ((double)d->K * (double)tokens), m->opt.aux[which] / all);
    mt_sum_loss(s, mt_view_part(m->aux, which, 1), r->b.aux);
}

void mt_aux_backward(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    const struct mt_shape *d = &m->shape;
    struct mt_route p = mt_model_route(m, l, r->mb);
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    double all = (double)(d->N * r->ctx->world * m->opt.micro_batches);
    if (mt_view_given(p.chosen)) balance(r, MT_AUX_SEQUENCE, p.chosen, d->S);
    if (mt_view_given(p.total)) {
        mt_stream_wait(s, r->counted[l]);
        balance(r, MT_AUX_GLOBAL, p.total, d->N * r->ctx->world * (r->mb + 1));
    }
    if (!(m->opt.aux[MT_AUX_Z] > 0)) return;
    mt_router_z(s, r->b.dlogits, r->b.aux, r->b.logits, m->opt.aux[MT_AUX_Z] / all);
    mt_sum_loss(s, mt_view_part(m->aux, MT_AUX_Z, 1), r->b.aux);
}

void mt_aux_sum(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (!mt_aux_any(m)) return;
    mt_gather(s, m->aux_all, m->aux, MT_GROUP_WORLD, r->ctx->world, 8 * MT_N_AUX);
    mt_sum_parts_f64(s, m->aux_sum, m->aux_all);
}
