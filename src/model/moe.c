/* moe.c: routing, dispatch and experts of a block.
 *
 *   y = h + shared(n2) + sum_k gate_k expert_{id_k}(n2)
 *
 * Routed rows have one order, by expert and token. A bounded buffer takes C of them, so a pass goes in rounds over that
 * order; the rounds' cuts lie where they do not change a bit (MT_ROUND_ROWS). */
#include "model/model.h"
#include "model/rounds.h"

static int64_t read_index(const struct mt_rank *r, int l) { return r->mb * r->m->shape.L + l; }
/* [ep, E]: rows that each rank of the group sends to each expert. */
static int32_t *counts_of(const struct mt_rank *r, int64_t mb, int l)
{
    const struct mt_model *m = r->m;
    return r->counts + (mb * m->shape.L + l) * m->shape.E * m->opt.mesh.ep;
}
const int32_t *mt_rank_counts(const struct mt_rank *r, int64_t mb, int l)
{
    return counts_of(r, mb, l) + mt_mesh_place(&r->m->opt.mesh, MT_GROUP_EP, r->ctx->rank).me * r->m->shape.E;
}

/* The next round, or false. While recording, `force_rounds` rounds whatever the counts. */
static bool next_round(struct mt_rank *r, int l, struct mt_round *n)
{
    const struct mt_shape *d = &r->m->shape;
    bool more = r->force_rounds ? mt_round_forced(n, d->C, d->N * d->K, r->force_rounds)
                                : mt_round_next(n, counts_of(r, r->mb, l), d->E, d->C, d->N * d->K);
    r->ctx->round = more ? n->index : 0;
    return more;
}

static void route(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    const struct mt_layer *y = &m->layer[l];
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_router_logits(s, m->b.logits, m->b.n2, y->w[MT_FORWARD].router);
    mt_router_topk(s, y->ids, y->gates, m->b.logits, y->bias, m->opt.score, m->opt.route_norm, m->opt.route_scale);
    mt_route_sort(s, y->order, y->slot, y->counts, y->ids);
    if (!m->opt.inference) mt_counts_add(s, y->load, y->counts);
}

void mt_moe_forward(struct mt_rank *r, int l, mt_view y)
{
    const struct mt_model *m = r->m;
    const struct mt_layer *a = &m->layer[l];
    const struct mt_buffers *b = &m->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view h = b->h;

    route(r, l);
    if (m->shape.Fs) {
        mt_linear_fwd(s, b->us, b->n2, a->w[MT_FORWARD].shared_in, MT_NONE, MT_NONE);
        mt_swiglu_fwd(s, b->ss, b->us);
        mt_linear_fwd(s, b->hs, b->ss, a->w[MT_FORWARD].shared_down, MT_NONE, b->h);
        h = b->hs;
    }
    mt_host_read(s, MT_READ_COUNTS, read_index(r, l), a->counts, counts_of(r, r->mb, l));
    mt_fresh(s, b->ret);
    for (struct mt_round n = {0}; next_round(r, l, &n);) {
        mt_gather_rows(s, b->xs, b->n2, a->order, m->shape.K, n.first, n.rows);
        mt_grouped_fwd(s, b->ux, b->xs, a->w[MT_FORWARD].expert_in, a->counts, n.first, n.rows);
        mt_expert_swiglu_fwd(s, b->sx, b->ux, n.rows);
        mt_grouped_fwd_into(s, b->ret, b->sx, a->w[MT_FORWARD].expert_down, a->counts, n.first, n.rows);
    }
    mt_combine_fwd(s, y, h, b->ret, a->gates, a->slot);
}

/* dy -> dn2; the gate enters behind the down matrix in forward, so its gradient is <dy W_down, s> and needs no output. */
void mt_moe_backward(struct mt_rank *r, int l, mt_view dy)
{
    const struct mt_model *m = r->m;
    const struct mt_layer *a = &m->layer[l];
    const struct mt_buffers *b = &m->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view shared = MT_NONE;

    if (m->shape.Fs) {
        mt_linear_fwd(s, b->us, b->n2, a->w[MT_BACKWARD].shared_in, MT_NONE, MT_NONE);
        mt_swiglu_fwd(s, b->ss, b->us);
        mt_linear_bwdw(s, a->g.shared_down, dy, b->ss);
        mt_linear_bwdx(s, b->dss, dy, a->t.shared_down, MT_NONE);
        mt_swiglu_bwd(s, b->dus, b->dss, b->us);
        mt_linear_bwdw(s, a->g.shared_in, b->dus, b->n2);
        mt_linear_bwdx(s, b->dn2s, b->dus, a->t.shared_in, MT_NONE);
        shared = b->dn2s;
    }
    mt_fresh(s, b->dret);
    mt_fresh(s, b->dgate);
    for (struct mt_round n = {0}; next_round(r, l, &n);) {
        mt_gather_rows(s, b->xs, b->n2, a->order, m->shape.K, n.first, n.rows);
        mt_grouped_fwd(s, b->ux, b->xs, a->w[MT_BACKWARD].expert_in, a->counts, n.first, n.rows);
        mt_expert_swiglu_fwd(s, b->sx, b->ux, n.rows);
        mt_gather_rows(s, b->dys, dy, a->order, m->shape.K, n.first, n.rows);
        mt_grouped_bwdx(s, b->dsx, b->dys, a->t.expert_down, a->counts, n.first, n.rows);
        mt_expert_swiglu_bwd(s, b->dux, b->sx, b->dgate, b->dsx, b->ux, a->gates, a->order, n.first, n.rows);
        mt_grouped_bwdw(s, a->g.expert_down, b->dys, b->sx, a->counts, n.first, n.rows);
        mt_grouped_bwdw(s, a->g.expert_in, b->dux, b->xs, a->counts, n.first, n.rows);
        mt_grouped_bwdx_into(s, b->dret, b->dux, a->t.expert_in, a->counts, n.first, n.rows);
    }
    mt_combine_bwd(s, b->dn2, b->dgates, b->dret, b->dgate, a->slot, shared);
    mt_router_logits(s, b->logits, b->n2, a->w[MT_BACKWARD].router);
    mt_router_bwd(s, b->dlogits, b->dgates, a->ids, b->logits, m->opt.score, m->opt.route_norm, m->opt.route_scale);
    mt_router_bwdw(s, a->g.router, b->dlogits, b->n2);
    mt_router_bwdx(s, b->dn2, b->dlogits, a->w[MT_BACKWARD].router);
}
