#include "model/buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */
static mt_view routing(struct mt_ledger *g, mt_dtype t, int64_t d0, int64_t d1, const char *name, int l)
{
    return mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_ROUTING, t, d0, d1, 0, "%s.%d", name, l);
}
static void route_rows(struct mt_model *m, struct mt_ledger *g, int l, struct mt_route *p)
{
    const struct mt_shape *s = &m->shape;
    int64_t n = m->opt.span, ep = m->opt.mesh.ep;
    p->ids = routing(g, MT_I32, n * s->N, s->K, "ids", l);
    p->gates = routing(g, MT_F32, n * s->N, s->K, "gates", l);
    p->order = routing(g, MT_I32, n * s->N * s->K, 0, "order", l);
    p->slot = routing(g, MT_I32, n * s->N, s->K, "slot", l);
    p->counts = routing(g, MT_I32, n, s->E, "counts", l);
    p->all = ep > 1 ? routing(g, MT_I32, n * ep, s->E, "counts_all", l) : p->counts;
    p->mine = ep > 1 ? routing(g, MT_I32, n, s->E / ep, "counts_mine", l) : p->counts;
    p->chosen = p->local = p->total = MT_NONE;
    if (m->opt.inference) return;
    if (m->opt.aux[MT_AUX_SEQUENCE] > 0) p->chosen = routing(g, MT_I64, n * (s->N / s->S), s->E, "chosen", l);
    if (!(m->opt.aux[MT_AUX_GLOBAL] > 0)) return;
    p->local = routing(g, MT_I64, n, s->E, "chosen_local", l);
    p->total = routing(g, MT_I64, n, s->E, "chosen_total", l);
}

static void layer_rows(struct mt_model *m, struct mt_ledger *g, int l, int unit)
{
    const struct mt_shape *s = &m->shape;
    struct mt_layer *y = &m->layer[l];
    y->unit = unit;
    y->experts = mt_is_moe(s, l) ? unit + 1 : -1;
    for (int pass = 0; pass < MT_N_PASSES; pass++) mt_weights_for(&m->store, l, pass, &y->w[pass]);
    mt_saved_rows(m, g, l);
    if (!m->opt.inference) mt_weights_of(&m->store, l, mt_store_turned, &y->t);
    if (!mt_is_moe(s, l)) return;
    route_rows(m, g, l, &y->route);
    y->bias = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, s->E, 0, 0, "router_bias.%d", l);
    y->load = m->opt.inference
                  ? MT_NONE
                  : mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, s->E, 0, 0, "load.%d", l);
    y->so_far = mt_view_given(y->route.total) ? mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, s->E,
                                                              0, 0, "chosen_so_far.%d", l)
                                              : MT_NONE;
}

static void head_rows(struct mt_model *m, struct mt_ledger *g)
{
    const struct mt_shape *s = &m->shape;
    mt_dtype T = m->opt.dtype;
    int64_t nt = mt_packed_bytes(m->store.target, T, MT_PACKED_NT, s->V, s->D),
            nn = mt_packed_bytes(m->store.target, T, MT_PACKED_NN, s->V, s->D);
    m->head_nt = m->head_nn = MT_NONE;
    if (s->tied) {
        m->head_nt = mt_packed_view(m->store.target,
                                    mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, nt, "head.nt"), T,
                                    MT_PACKED_NT, 0, s->V, s->D);
        if (!m->opt.inference)
            m->head_nn = mt_packed_view(m->store.target,
                                        mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, nn, "head.nn"), T,
                                        MT_PACKED_NN, 0, s->V, s->D);
    }
    m->hn = mt_tensor_add_ld(g, MT_DEVICE_ARENA, MT_ROW_LOSS, T, s->N, s->D,
                             mt_padded(m->store.target, T, s->D), "hn");
    m->rstdf = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_LOSS, MT_F32, s->N, 0, 0, "rstdf");
    m->chunk_logits = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_LOSS, MT_F32, s->Nc, s->V, 0, "logits.chunk");
    m->chunk_loss = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_LOSS, MT_F32, s->Nc, 0, 0, "loss.chunk");
    if (m->opt.inference) return;
    m->chunk_dlogits = mt_tensor_add_ld(g, MT_DEVICE_ARENA, MT_ROW_LOSS, T, s->Nc, s->V,
                                        mt_padded(m->store.target, T, s->V), "dlogits.chunk");
    m->dhn = mt_tensor_add_ld(g, MT_DEVICE_ARENA, MT_ROW_LOSS, T, s->N, s->D,
                              mt_padded(m->store.target, T, s->D), "dhn");
}

static void aux_rows(struct mt_model *m, struct mt_ledger *g)
{
    int64_t world = m->opt.mesh.world;
    if (!mt_aux_any(m)) return;
    m->aux = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, MT_N_AUX, 0, 0, "aux");
    m->aux_all = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, world, MT_N_AUX, 0, "aux.all");
    m->aux_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, MT_N_AUX, 0, 0, "aux.sum");
    if (m->opt.aux[MT_AUX_GLOBAL] > 0)
        m->chosen_all =
            mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_ROUTING, MT_I64, world, m->shape.E, 0, "chosen.all");
}

static void top_rows(struct mt_model *m, struct mt_ledger *g)
{
    const int64_t L = m->shape.L, H = m->shape.H;
    if (!m->opt.tops) return;
    m->top = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, L, H, 0, "top");
    m->top_all =
        mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, m->opt.mesh.world, L * H, 0, "top.all");
    m->top_most = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, L, H, 0, "top.most");
    m->top_one = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, 1, 0, 0, "top.one");
    if (m->store.offload.host_compute)
        m->top_host = mt_tensor_add(g, MT_HOST_ARENA, MT_ROW_TABLE, MT_F32, L, H, 0, "host.top");
}

static void batch_rows(struct mt_model *m, struct mt_ledger *g)
{
    static const char *const name[] = {"tokens", "labels", "begin", "pos"};
    int64_t n = m->opt.micro_batches * m->shape.N, world = m->opt.mesh.world, depths = m->shape.mtp + 1;
    mt_view *host[] = {&m->host.tokens, &m->host.labels, &m->host.begin, &m->host.pos};
    mt_view *device[] = {&m->device.tokens, &m->device.labels, &m->device.begin, &m->device.pos};
    for (int i = 0; i < 4; i++) {
        *host[i] = mt_tensor_add(g, MT_HOST_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "host.%s", name[i]);
        *device[i] = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "%s", name[i]);
    }
    m->host.near = MT_NONE;
    m->device.near = mt_near_layers(&m->shape)
                         ? mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "near")
                         : MT_NONE;
    m->rope = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, m->shape.S, m->shape.R, 0, "rope");
    m->loss = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, depths, 0, 0, "loss");
    m->loss_all = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, world, depths, 0, "loss.all");
    m->loss_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, depths, 0, 0, "loss.sum");
    m->valid = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, depths, 0, 0, "valid");
    m->valid_all = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, world, depths, 0, "valid.all");
    m->valid_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, depths, 0, 0, "valid.sum");
    m->sumsq = m->store.offload.host[MT_STATE_GRAD] ? mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64,
                                                                    2, MT_SUMSQ_WORDS, 0, "sumsq.passing")
                                                    : MT_NONE;
    m->replica_row = -1;
    m->aux = m->aux_all = m->aux_sum = m->chosen_all = MT_NONE;
    m->top = m->top_all = m->top_most = m->top_one = m->top_host = MT_NONE;
    if (m->opt.inference) return;
    aux_rows(m, g);
    top_rows(m, g);
    if (m->shape.E) {
        m->load_all =
            mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, MT_I64, world, m->shape.E, 0, "load.all");
        m->load_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, MT_I64, m->shape.E, 0, 0, "load.sum");
    }
    int64_t piece = 0;
    for (int i = 0; i < m->store.n_buckets; i++)
        if (m->store.bucket[i].piece > piece) piece = m->store.bucket[i].piece;
    m->replica_bytes = 4 * piece * m->opt.mesh.replicas;
    if (m->opt.mesh.replicas > 1)
        m->replica_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, m->replica_bytes, "stage.replicas");
}

/* What of each unit's gathered weights serves several passes. A region is one only where weights move in two levels. */
static void mark_kept(struct mt_model *m)
{
    for (int i = 0; i < m->store.n_units; i++) {
        struct mt_unit *u = &m->store.unit[i];
        bool block = u->layer >= 0,
             near = mt_mesh_near(&m->opt.mesh, u->experts ? MT_GROUP_SLOT : MT_GROUP_SHARD) > 0;
        if (block) u->kept = u->experts ? m->opt.kept_experts : m->opt.kept_dense;
        if (block && u->layer >= m->shape.L - m->opt.keep_last) u->kept = MT_KEPT_ALL;
        if (u->kept == MT_KEPT_REGION && !near) u->kept = MT_KEPT_PIECE;
        bool again = m->opt.micro_batches > m->opt.span || (block && u->kept == MT_KEPT_PIECE);
        u->in_host = again && (u->experts ? m->opt.host_experts : m->opt.host_dense);
    }
}

/* Blocks that may be gathered ahead: with the one in use, they stay within the bound. */
static int64_t prefetch_depth(const struct mt_model *m)
{
    int64_t block = 0, depth = m->opt.prefetch;
    for (int i = 0; i < m->store.n_buckets; i++) {
        const struct mt_bucket *b = &m->store.bucket[i];
        int64_t bytes = b->members > 1 ? b->n * (b->work_bytes ? b->work_bytes : 4 * b->elements) : 0;
        const struct mt_unit *u = &m->store.unit[b->unit];
        if (u->layer == 0)
            block += bytes; /* blocks with experts may be larger: the first of each kind counts */
        else if (u->layer > 0 && u->experts && mt_is_moe(&m->shape, u->layer) &&
                 u->layer == m->shape.first_dense)
            block += bytes;
    }
    while (m->opt.prefetch_memory && depth > 1 && (depth + 1) * block > m->opt.prefetch_memory) depth--;
    return depth;
}

mt_status mt_model_init(struct mt_model *m, const struct mt_shape *shape, const struct mt_model_options *opt,
                        const struct mt_target *target, struct mt_ledger *g,
                        mt_status (*assign)(struct mt_store *, void *, mt_err *), void *arg, mt_err *e)
{
    *m = (struct mt_model){.shape = *shape, .opt = *opt};
    mt_store_init(&m->store, opt->dtype, target, &opt->mesh, opt->rank);
    m->store.formats = opt->formats;
    m->store.offload = opt->offload;
    mt_params_declare(&m->store, shape, opt->init_std);
    MT_TRY(mt_params_place(&m->store, opt->groups, opt->n_groups, e));
    if (assign) MT_TRY(assign(&m->store, arg, e));
    mark_kept(m);
    mt_store_layout(&m->store, g, opt->inference);
    m->prefetch = prefetch_depth(m);
    m->layer = calloc((size_t)shape->L, sizeof *m->layer);
    MT_REQUIRE(m->layer, e, MT_IO, "cannot allocate the descriptions of %lld layers", (long long)shape->L);
    batch_rows(m, g);
    mt_keeps_choose(m);
    mt_buffers_rows(m, g);
    int unit = 1;
    for (int l = 0; l < (int)shape->L; l++) {
        layer_rows(m, g, l, unit);
        if (!opt->inference) mt_weights_of(&m->store, l, mt_store_grad, &m->layer[l].g);
        unit += mt_is_moe(shape, l) ? 2 : 1;
    }
    m->head_unit = unit;
    mt_mtp_rows(m, g);
    for (int pass = 0; pass < MT_N_PASSES; pass++) mt_weights_for(&m->store, -1, pass, &m->w[pass]);
    if (!opt->inference) {
        mt_weights_of(&m->store, -1, mt_store_grad, &m->g);
        mt_weights_of(&m->store, -1, mt_store_turned, &m->t);
    }
    head_rows(m, g);
    return MT_OK;
}

void mt_model_release(struct mt_model *m)
{
    mt_store_release(&m->store);
    free(m->layer);
    *m = (struct mt_model){0};
}

void mt_model_turn(struct mt_model *m, int rank)
{
    m->opt.rank = rank;
    mt_store_turn(&m->store, rank);
}

/* ---- micro-batches of a span ---- */
mt_view mt_model_span_part(const struct mt_model *m, mt_view v, int64_t mb)
{
    return mt_view_part(v, mb % m->opt.span * m->shape.N, m->shape.N);
}
static mt_view flat_part(mt_view v, int64_t i)
{
    return mt_view_as(mt_view_part(v, i, 1), v.dim[1], 0, 0);
}
/* The i-th n rows of what there may be. */
static mt_view part_of(mt_view v, int64_t i, int64_t n)
{
    return mt_view_given(v) ? mt_view_part(v, i * n, n) : MT_NONE;
}
struct mt_route mt_model_route(const struct mt_model *m, int l, int64_t mb)
{
    const struct mt_route *p = &m->layer[l].route;
    int64_t i = mb % m->opt.span, N = m->shape.N, M = N * m->shape.K, ep = m->opt.mesh.ep;
    return (struct mt_route){mt_view_part(p->ids, i * N, N),  mt_view_part(p->gates, i * N, N),
                             mt_view_part(p->slot, i * N, N), mt_view_part(p->order, i * M, M),
                             flat_part(p->counts, i),         mt_view_part(p->all, i * ep, ep),
                             flat_part(p->mine, i),           part_of(p->chosen, i, N / m->shape.S),
                             part_of(p->local, i, 1),         part_of(p->total, i, 1)};
}

/* ---- a rank's host side ---- */
mt_status mt_rank_init(struct mt_rank *r, struct mt_ctx *ctx, const struct mt_model *m, mt_err *e)
{
    int64_t counts = m->opt.micro_batches * m->shape.L * m->shape.E * m->opt.mesh.ep;
    size_t units = (size_t)m->store.n_units;
    *r = (struct mt_rank){.ctx = ctx, .m = m};
    r->counts = calloc((size_t)counts + 1, sizeof *r->counts);
    r->grads = calloc(units, sizeof *r->grads);
    r->sums = calloc(units, sizeof *r->sums);
    r->host = calloc(units, sizeof *r->host);
    r->done = calloc((size_t)m->shape.L + 1, sizeof *r->done);
    r->saved = calloc((size_t)m->shape.L, sizeof *r->saved);
    r->kept = calloc((size_t)m->shape.L, sizeof *r->kept);
    r->fetched = calloc((size_t)m->shape.L, sizeof *r->fetched);
    r->counted = calloc((size_t)m->shape.L, sizeof *r->counted);
    for (int pass = 0; pass < MT_N_PASSES; pass++) r->weights[pass] = calloc(units, sizeof *r->weights[pass]);
    MT_REQUIRE(r->counts && r->grads && r->sums && r->host && r->done && r->saved && r->kept && r->fetched &&
                   r->counted && r->weights[0] && r->weights[1],
               e, MT_IO, "cannot allocate the host state of rank %d (%lld expert counts)", ctx->rank,
               (long long)counts);
    return mt_slots_init(&r->slots, ctx, &m->store, e);
}

void mt_rank_release(struct mt_rank *r)
{
    free(r->counts);
    free(r->grads);
    free(r->sums);
    mt_slots_release(&r->slots);
    free(r->host);
    free(r->done);
    free(r->saved);
    free(r->kept);
    free(r->fetched);
    free(r->counted);
    for (int pass = 0; pass < MT_N_PASSES; pass++) free(r->weights[pass]);
    *r = (struct mt_rank){0};
}
