/* moe.c: routing, dispatch and experts of a block.
 *
 *   y = h + shared(n2) + sum_k gate_k expert_{id_k}(n2)
 *
 * Routed rows go to the ranks that hold their experts and come back. A bounded buffer takes C of them, so a pass goes in
 * rounds (rounds.h). A group of one has its rows at hand: what would be exchanged is gathered where it is needed. */
#include "model/model.h"
#include "model/rounds.h"

static int64_t read_index(const struct mt_rank *r, int l)
{
    return r->mb * r->m->shape.L + l;
}
/* [ep, E]: rows that each rank of the group sends to each expert. */
static int32_t *counts_of(const struct mt_rank *r, int64_t mb, int l)
{
    const struct mt_model *m = r->m;
    return r->counts + (mb * m->shape.L + l) * m->shape.E * m->opt.mesh.ep;
}
static struct mt_routing routing_of(const struct mt_rank *r, int l)
{
    const struct mt_shape *d = &r->m->shape;
    const struct mt_mesh *mesh = &r->m->opt.mesh;
    return (struct mt_routing){counts_of(r, r->mb, l),
                               d->E,
                               mesh->ep,
                               mt_mesh_place(mesh, MT_GROUP_EP, r->m->opt.rank).me,
                               d->C,
                               d->M};
}
const int32_t *mt_rank_counts(const struct mt_rank *r, int64_t mb, int l)
{
    return counts_of(r, mb, l) +
           mt_mesh_place(&r->m->opt.mesh, MT_GROUP_EP, r->m->opt.rank).me * r->m->shape.E;
}

/* The next round, or false. While recording, `force_rounds` rounds whatever the counts. Rounds behind the first have the
 * buffers that all layers share: what a layer keeps is of the first. */
static bool advance(const struct mt_rank *r, const struct mt_routing *w, struct mt_round *n)
{
    return r->force_rounds ? mt_round_forced(n, w, r->force_rounds) : mt_round_next(n, w);
}
static bool next_round(struct mt_rank *r, const struct mt_routing *w, struct mt_round *n)
{
    bool more = advance(r, w, n);
    r->ctx->round = more ? n->index : 0;
    if (more && n->index > 1) r->b.xs = r->m->b.xs, r->b.ux = r->m->b.ux, r->b.sx = r->m->b.sx;
    return more;
}
static bool has_further_rounds(const struct mt_rank *r, const struct mt_routing *w)
{
    struct mt_round n = {0};
    return advance(r, w, &n) && advance(r, w, &n);
}

static void route(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    const struct mt_layer *y = &m->layer[l];
    struct mt_route p = mt_model_route(m, l, r->mb);
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_routing w = routing_of(r, l);
    mt_router_logits(s, r->b.logits, r->b.n2, y->w[MT_FORWARD].router);
    mt_router_topk(s, p.ids, p.gates, r->b.logits, y->bias, m->opt.score, m->opt.route_norm,
                   m->opt.route_scale, m->opt.balanced ? m->shape.S : 0, m->opt.n_group, m->opt.topk_group,
                   m->opt.group_score == MT_GROUP_SCORE_TOP2);
    if (r->train) mt_aux_forward(r, l);
    if (m->shape.capacity)
        mt_route_drop(s, r->b.kept, r->b.asked, p.ids, p.gates, m->shape.S, m->shape.capacity,
                      m->opt.drop_by_gate);
    mt_route_sort(s, p.order, p.slot, p.counts, m->shape.capacity ? r->b.kept : p.ids);
    if (!m->opt.inference) mt_counts_add(s, y->load, m->shape.capacity ? r->b.asked : p.counts);
    if (w.ep > 1) {
        mt_gather(s, p.all, p.counts, MT_GROUP_EP, w.ep, 4 * m->shape.E);
        mt_expert_counts(s, p.mine, p.all, w.me);
    }
}

/* ---- rows to the experts and back ---- */
/* Before the rounds: all rows that this rank sends, in the order of experts. */
static void pack(struct mt_rank *r, int l, mt_view send, mt_view x)
{
    const struct mt_shape *d = &r->m->shape;
    if (r->m->opt.mesh.ep > 1)
        mt_gather_rows(&r->ctx->stream[MT_COMPUTE], send, x, mt_model_route(r->m, l, r->mb).order, d->K, 0,
                       d->M);
}

/* A round's rows, sorted by expert, into xe. x: the tokens that send was packed from. */
static void to_experts(struct mt_rank *r, int l, const struct mt_routing *w, const struct mt_round *n,
                       mt_view xe, mt_view send, mt_view x)
{
    const struct mt_model *m = r->m;
    struct mt_route p = mt_model_route(m, l, r->mb);
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    if (w->ep == 1) {
        mt_gather_rows(s, xe, x, p.order, m->shape.K, n->first, n->rows);
        return;
    }
    if (!r->force_rounds) mt_round_peers(n, w, peer);
    mt_exchange_units(s, false, r->b.recv, send, MT_GROUP_EP, send.ld * mt_dtype_bytes((mt_dtype)send.dtype),
                      peer, w->ep);
    mt_expert_sort(s, xe, r->b.recv, p.all, w->me, w->experts / w->ep, n->first, n->rows);
}

/* A round's results ye back to the ranks whose rows they are: into their places of ret. */
static void from_experts(struct mt_rank *r, int l, const struct mt_routing *w, const struct mt_round *n,
                         mt_view ret, mt_view back, mt_view ye)
{
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    if (!r->force_rounds) mt_round_home(n, w, peer);
    mt_expert_unsort(s, back, ye, mt_model_route(r->m, l, r->mb).all, w->me, w->experts / w->ep, n->first,
                     n->rows);
    int64_t unit = (back.nd == 2 ? back.ld : 1) * mt_dtype_bytes((mt_dtype)back.dtype);
    mt_exchange_units(s, true, ret, back, MT_GROUP_EP, unit, peer, w->ep);
}

/* ---- experts ---- */
/* Kept results are those of the first round. */
static bool round_computes(const struct mt_rank *r, int l, enum mt_pass pass, const struct mt_round *n,
                           int keep)
{
    return n->index > 1 || mt_computes(r, l, pass, keep);
}

/* n2 of the round's rows -> xs, ux, sx: what both directions need. */
static void experts_in(struct mt_rank *r, int l, const struct mt_routing *w, const struct mt_round *n,
                       enum mt_pass pass)
{
    const struct mt_layer *a = &r->m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (round_computes(r, l, pass, n, MT_KEEP_DISPATCH)) to_experts(r, l, w, n, b->xs, b->send, b->n2);
    if (round_computes(r, l, pass, n, MT_KEEP_EXPERT_UP))
        mt_grouped_fwd(s, b->ux, b->xs, a->w[pass].expert_in, mt_model_route(r->m, l, r->mb).mine, n->first,
                       n->rows);
    if (round_computes(r, l, pass, n, MT_KEEP_EXPERT_ACT)) mt_expert_swiglu_fwd(s, b->sx, b->ux, n->rows);
}

static void shared_forward(struct mt_rank *r, int l, enum mt_pass pass)
{
    const struct mt_layer *a = &r->m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (mt_computes(r, l, pass, MT_KEEP_FFN_UP))
        mt_linear_fwd(s, b->us, b->n2, a->w[pass].shared_in, MT_NONE, MT_NONE);
    if (mt_computes(r, l, pass, MT_KEEP_FFN_ACT)) mt_swiglu_fwd(s, b->ss, b->us);
}

void mt_moe_forward(struct mt_rank *r, int l, mt_view y)
{
    const struct mt_model *m = r->m;
    const struct mt_layer *a = &m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_routing w = routing_of(r, l);
    struct mt_route p = mt_model_route(m, l, r->mb);
    mt_view h = b->h;

    route(r, l);
    mt_unit_use(r, a->experts, MT_FORWARD);
    pack(r, l, b->send, b->n2);
    if (m->shape.Fs) {
        shared_forward(r, l, MT_FORWARD);
        mt_linear_fwd(s, b->hs, b->ss, a->w[MT_FORWARD].shared_down, MT_NONE, b->h);
        h = b->hs;
    }
    mt_host_read(s, MT_READ_COUNTS, read_index(r, l), p.all, counts_of(r, r->mb, l));
    mt_fresh(s, b->ret);
    for (struct mt_round n = {0}; next_round(r, &w, &n);) {
        experts_in(r, l, &w, &n, MT_FORWARD);
        if (w.ep == 1) {
            mt_grouped_fwd_into(s, b->ret, b->sx, a->w[MT_FORWARD].expert_down, p.mine, n.first, n.rows);
        } else {
            mt_grouped_fwd(s, b->ye, b->sx, a->w[MT_FORWARD].expert_down, p.mine, n.first, n.rows);
            from_experts(r, l, &w, &n, b->ret, b->back, b->ye);
        }
    }
    mt_combine_fwd(s, y, h, b->ret, p.gates, p.slot);
}

static mt_view shared_backward(struct mt_rank *r, int l, mt_view dy)
{
    const struct mt_layer *a = &r->m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (!r->m->shape.Fs) return MT_NONE;
    shared_forward(r, l, MT_BACKWARD);
    mt_linear_bwdw(s, a->g.shared_down, dy, b->ss);
    mt_linear_bwdx(s, b->dss, dy, a->t.shared_down, MT_NONE);
    mt_swiglu_bwd(s, b->dus, b->dss, b->us);
    mt_linear_bwdw(s, a->g.shared_in, b->dus, b->n2);
    mt_linear_bwdx(s, b->dn2s, b->dus, a->t.shared_in, MT_NONE);
    return b->dn2s;
}

/* Of the order of all pairs, the part that can be sent; behind it lie dropped ones. */
static mt_view rows_of(const struct mt_rank *r, mt_view order)
{
    return mt_view_part(order, 0, r->m->shape.M);
}

/* dsx -> dux and the gates' gradients. The gate enters behind the down matrix in forward, so its gradient is
 * <dy W_down, s> and needs no output of the experts. Gates travel as rows do. */
static void gates_backward(struct mt_rank *r, int l, const struct mt_routing *w, const struct mt_round *n)
{
    struct mt_route p = mt_model_route(r->m, l, r->mb);
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    if (w->ep == 1) {
        mt_expert_swiglu_bwd(s, b->dux, b->sx, b->dgate, b->dsx, b->ux, p.gates, rows_of(r, p.order),
                             n->first, n->rows);
        return;
    }
    if (!r->force_rounds) mt_round_peers(n, w, peer);
    mt_exchange_units(s, false, b->gate_recv, b->gate_send, MT_GROUP_EP, 4, peer, w->ep);
    mt_expert_sort(s, b->gate_xe, b->gate_recv, p.all, w->me, w->experts / w->ep, n->first, n->rows);
    mt_view dgate = mt_view_as(b->dgate_xe, b->dgate_xe.dim[0], 0, 0);
    mt_fresh(s, b->dgate_xe);
    mt_expert_swiglu_bwd(s, b->dux, b->sx, dgate, b->dsx, b->ux, b->gate_xe, MT_NONE, 0, n->rows);
    from_experts(r, l, w, n, b->dgate, b->dgate_back, b->dgate_xe);
}

void mt_moe_backward(struct mt_rank *r, int l, mt_view dy)
{
    const struct mt_model *m = r->m;
    const struct mt_layer *a = &m->layer[l];
    const struct mt_buffers *b = &r->b;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    struct mt_routing w = routing_of(r, l);
    struct mt_route p = mt_model_route(m, l, r->mb);
    mt_view shared = shared_backward(r, l, dy);

    mt_unit_use(r, a->experts, MT_BACKWARD);
    if (mt_computes(r, l, MT_BACKWARD, MT_KEEP_DISPATCH) || has_further_rounds(r, &w))
        pack(r, l, b->send, b->n2);
    pack(r, l, b->dsend, dy);
    if (w.ep > 1) mt_gather_gates(s, b->gate_send, p.gates, rows_of(r, p.order));
    mt_fresh(s, b->dret);
    mt_fresh(s, b->dgate);
    for (struct mt_round n = {0}; next_round(r, &w, &n);) {
        experts_in(r, l, &w, &n, MT_BACKWARD);
        to_experts(r, l, &w, &n, b->dys, b->dsend, dy);
        mt_grouped_bwdx(s, b->dsx, b->dys, a->t.expert_down, p.mine, n.first, n.rows);
        gates_backward(r, l, &w, &n);
        mt_grouped_bwdw(s, a->g.expert_down, b->dys, b->sx, p.mine, n.first, n.rows);
        mt_grouped_bwdw(s, a->g.expert_in, b->dux, b->xs, p.mine, n.first, n.rows);
        if (w.ep == 1) {
            mt_grouped_bwdx_into(s, b->dret, b->dux, a->t.expert_in, p.mine, n.first, n.rows);
        } else {
            mt_grouped_bwdx(s, b->ye, b->dux, a->t.expert_in, p.mine, n.first, n.rows);
            from_experts(r, l, &w, &n, b->dret, b->back, b->ye);
        }
    }
    mt_combine_bwd(s, b->dn2, b->dgates, b->dret, b->dgate, p.slot, shared);
    if (mt_computes(r, l, MT_BACKWARD, MT_KEEP_ROUTER))
        mt_router_logits(s, b->logits, b->n2, a->w[MT_BACKWARD].router);
    mt_router_bwd(s, b->dlogits, b->dgates, p.ids, b->logits, m->opt.score, m->opt.route_norm,
                  m->opt.route_scale);
    mt_aux_backward(r, l);
    mt_router_bwdw(s, a->g.router, b->dlogits, b->n2);
    mt_router_bwdx(s, b->dn2, b->dlogits, a->w[MT_BACKWARD].router);
}
