#include "train/step.h"

#include <math.h>

#include "model/touch.h"
#include "optim/qk_clip.h"

/* This step's tokens onto the device; the compute stream may use them afterwards. */
static void batch_in(struct mt_rank *r, int64_t micro, bool train)
{
    const struct mt_model *m = r->m;
    struct mt_stream *in = &r->ctx->stream[MT_H2D], *s = &r->ctx->stream[MT_COMPUTE];
    int64_t n = micro * m->shape.N;
    mt_copy_h2d(in, mt_view_part(m->device.tokens, 0, n), mt_view_part(m->host.tokens, 0, n));
    mt_copy_h2d(in, mt_view_part(m->device.labels, 0, n), mt_view_part(m->host.labels, 0, n));
    mt_copy_h2d(in, mt_view_part(m->device.begin, 0, n), mt_view_part(m->host.begin, 0, n));
    mt_copy_h2d(in, mt_view_part(m->device.pos, 0, n), mt_view_part(m->host.pos, 0, n));
    if (train) mt_mtp_batch_in(r);
    mt_stream_wait(s, mt_event_record(in));
    mt_model_windows(r, micro);
}

/* Labels of each depth that count in the whole step, on all ranks: what its loss is divided by. */
static void count_labels(struct mt_rank *r, int64_t micro, bool train)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    int64_t n = micro * m->shape.N;
    mt_count_valid(s, mt_view_part(m->valid, 0, 1), mt_view_part(m->device.labels, 0, n));
    for (int64_t k = 1; train && k <= m->shape.mtp; k++)
        mt_count_valid(s, mt_view_part(m->valid, k, 1), mt_view_part(m->mtp.labels, (k - 1) * n, n));
    mt_gather(s, m->valid_all, m->valid, MT_GROUP_WORLD, r->ctx->world, m->valid.bytes);
    mt_sum_parts_i64(s, m->valid_sum, m->valid_all);
}

static void sum_loss(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_gather(s, m->loss_all, m->loss, MT_GROUP_WORLD, r->ctx->world, m->loss.bytes);
    mt_sum_parts_f64(s, m->loss_sum, m->loss_all);
}

/* A block's two units: its dense part and, if it has any, its experts. */
static int units_of(const struct mt_model *m, int l)
{
    return m->layer[l].experts >= 0 ? 2 : 1;
}
static void block_gather(struct mt_rank *r, int l, enum mt_pass pass, mt_event after)
{
    for (int i = 0; i < units_of(r->m, l); i++) mt_unit_gather(r, r->m->layer[l].unit + i, pass, after);
}
/* The block waits for its experts where it comes to them (model/moe.c). */
static void block_use(struct mt_rank *r, int l, enum mt_pass pass)
{
    mt_unit_use(r, r->m->layer[l].unit, pass);
}
static void block_done(struct mt_rank *r, int l, enum mt_pass pass)
{
    for (int i = 0; i < units_of(r->m, l); i++) mt_unit_done(r, r->m->layer[l].unit + i, pass);
}
/* Whole gradients of so many blocks exist at a time: those of block l + grads are reduced by then. */
static void block_grads_open(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    int64_t before = l + m->opt.grads;
    for (int i = 0; i < units_of(m, l); i++)
        mt_grads_open(r, m->layer[l].unit + i,
                      before < m->shape.L
                          ? r->grads[m->layer[before].unit + units_of(m, (int)before) - 1].used
                          : (mt_event){0, 0});
}
static void block_grads_reduce(struct mt_rank *r, int l)
{
    for (int i = 0; i < units_of(r->m, l); i++) mt_grads_reduce(r, r->m->layer[l].unit + i);
}

/* Blocks of a pass: without training those of modules for further tokens are left out. */
static int64_t blocks_of(const struct mt_model *m, bool train)
{
    return train ? m->shape.L : mt_own_layers(&m->shape);
}

/* While block l computes, block l + p is gathered, into the bytes of block l - 1; p blocks are ahead from the start. Behind
 * the model's own last block comes the head, behind the last one for training the last blocks for backward. */
static void gather_ahead(struct mt_rank *r, int64_t l, bool train, mt_event after)
{
    const struct mt_model *m = r->m;
    int64_t L = blocks_of(m, train), next = l + m->prefetch;
    if (next < L) block_gather(r, (int)next, MT_FORWARD, after);
    if (l + 1 == mt_own_layers(&m->shape))
        mt_unit_gather(r, m->head_unit, train ? MT_BACKWARD : MT_FORWARD, after);
    if (l + 1 < L) return;
    for (int64_t k = L - 1; train && k >= 0 && k >= L - m->prefetch; k--)
        block_gather(r, (int)k, MT_BACKWARD, after);
}

/* What the micro-batches of a span write in turn begins anew. */
static void span_begin(struct mt_rank *r, mt_view v)
{
    if (r->m->opt.span > 1) mt_fresh(&r->ctx->stream[MT_COMPUTE], v);
}
static void span_begin_kept(struct mt_rank *r, int l)
{
    const struct mt_layer *y = &r->m->layer[l];
    for (int i = 0; i < y->n_kept; i++) span_begin(r, y->kept[i].at[MT_FORWARD]);
}
static void span_begin_routes(struct mt_rank *r, int l)
{
    const struct mt_route *p = &r->m->layer[l].route;
    const mt_view v[] = {p->ids,    p->gates, p->slot,  p->order, p->counts,
                         p->chosen, p->local, p->total, p->all,   p->mine};
    int n = r->m->opt.mesh.ep > 1 ? 10 : 8; /* one rank's counts are everybody's */
    for (int i = 0; i < n && mt_is_moe(&r->m->shape, l); i++)
        if (mt_view_given(v[i])) span_begin(r, v[i]);
}

static void embed(struct mt_rank *r, int64_t first, int64_t n, bool train)
{
    const struct mt_model *m = r->m;
    span_begin(r, m->layer[0].x.at[MT_FORWARD]);
    for (int64_t k = 1; train && k <= m->shape.mtp; k++) span_begin(r, m->depth[k].e);
    for (r->mb = first; r->mb < first + n; r->mb++) {
        mt_embed_forward(r, mt_model_boundary(m, 0, MT_FORWARD, r->mb));
        if (train) mt_mtp_embed_forward(r);
    }
}

/* Where all micro-batches of a span have what block l gives. */
static mt_view output_of(const struct mt_model *m, int l)
{
    bool last = l + 1 >= mt_own_layers(&m->shape);
    return last ? m->depth[mt_depth_of(&m->shape, l)].x : m->layer[l + 1].x.at[MT_FORWARD];
}

/* Into the block of a module for further tokens, and, behind the last block of a depth that has one behind it, out to the next. */
static void module_in(struct mt_rank *r, int l, int64_t first, int64_t n)
{
    const struct mt_model *m = r->m;
    span_begin(r, m->layer[l].x.at[MT_FORWARD]);
    for (r->mb = first; r->mb < first + n; r->mb++) mt_mtp_forward(r, mt_depth_of(&m->shape, l));
    r->passed = mt_event_record(&r->ctx->stream[MT_COMPUTE]);
}
static void depth_out(struct mt_rank *r, int l, int64_t first, int64_t n)
{
    const struct mt_model *m = r->m;
    int depth = mt_depth_of(&m->shape, l);
    if (l + 1 < mt_own_layers(&m->shape) || depth == m->shape.mtp) return;
    /* Its norm; where that is not gathered, what is on its way is for the head alone. */
    if (!depth && m->store.bucket[m->store.unit[m->head_unit].bucket].members > 1)
        mt_unit_use(r, m->head_unit, MT_BACKWARD);
    span_begin(r, m->depth[depth].h);
    span_begin(r, m->depth[depth].rstd);
    for (r->mb = first; r->mb < first + n; r->mb++) mt_mtp_norm(r, depth, MT_FORWARD);
}

/* Micro-batches [first, first + n) through all blocks: each block's weights are gathered once for all of them. */
static void forward(struct mt_rank *r, int64_t first, int64_t n, bool train)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    int64_t L = blocks_of(m, train);
    r->train = train;
    mt_unit_gather(r, 0, MT_FORWARD, (mt_event){0, 0});
    for (int64_t l = 0; l < m->prefetch && l < L; l++) block_gather(r, (int)l, MT_FORWARD, (mt_event){0, 0});
    mt_unit_use(r, 0, MT_FORWARD);
    embed(r, first, n, train);
    r->passed = mt_event_record(s);
    for (int l = 0; l < (int)L; l++) {
        gather_ahead(r, l, train, r->passed);
        block_use(r, l, MT_FORWARD);
        if (mt_is_mtp(&m->shape, l)) module_in(r, l, first, n);
        if (train) mt_layer_save_input(r, l);
        span_begin(r, output_of(m, l));
        span_begin_routes(r, l);
        span_begin_kept(r, l);
        for (r->mb = first; r->mb < first + n; r->mb++)
            mt_block_forward(r, l, mt_model_boundary(m, l, MT_FORWARD, r->mb), mt_model_output(m, l, r->mb));
        if (train) depth_out(r, l, first, n);
        block_done(r, l, MT_FORWARD);
        r->passed = mt_event_record(s);
        if (train) mt_layer_save_kept(r, l);
    }
}

/* The head is there, with its gradients, from the last depth to the model's own. */
static void head_open(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    /* Modules have waited for what is gathered of it, and the last one's block comes behind its turned weights. */
    if (!m->shape.mtp) mt_unit_use(r, m->head_unit, MT_BACKWARD);
    mt_grads_open(r, m->head_unit, (mt_event){0, 0});
    if (m->shape.tied) mt_grads_open(r, 0, (mt_event){0, 0});
}
static void head(struct mt_rank *r, int depth, int64_t first, int64_t n, mt_view dy)
{
    span_begin(r, dy);
    for (r->mb = first; r->mb < first + n; r->mb++)
        mt_head_forward_backward(r, depth, mt_model_span_part(r->m, dy, r->mb));
}
static void head_close(struct mt_rank *r)
{
    mt_unit_done(r, r->m->head_unit, MT_BACKWARD);
    mt_grads_reduce(r, r->m->head_unit);
}

static void embedding_backward(struct mt_rank *r, int64_t first, int64_t n, mt_view dy)
{
    const struct mt_model *m = r->m;
    if (!m->shape.tied) mt_grads_open(r, 0, (mt_event){0, 0});
    for (r->mb = first; r->mb < first + n; r->mb++) {
        mt_embed_bwd(&r->ctx->stream[MT_COMPUTE], m->g.embed, mt_model_span_part(m, dy, r->mb),
                     mt_model_batch(m, r->mb).tokens);
        mt_mtp_embed_backward(r);
    }
    mt_unit_done(r, 0, MT_FORWARD);
    mt_grads_reduce(r, 0);
}

/* From dy, the gradient of what block l gave, to dx, that of its input. A module's dy comes from the head and the module behind it
 * alone, and its dx goes on to the depth in front of it. */
static void block_backward(struct mt_rank *r, int l, int64_t first, int64_t n, mt_view dy, mt_view dx)
{
    const struct mt_model *m = r->m;
    int depth = mt_depth_of(&m->shape, l);
    block_use(r, l, MT_BACKWARD);
    mt_layer_use(r, l);
    block_grads_open(r, l);
    if (depth) head(r, depth, first, n, dy);
    span_begin(r, dx);
    for (r->mb = first; r->mb < first + n; r->mb++)
        mt_block_backward(r, l, mt_model_boundary(m, l, MT_BACKWARD, r->mb), mt_model_span_part(m, dx, r->mb),
                          mt_model_span_part(m, dy, r->mb));
    if (depth) {
        span_begin(r, m->mtp.dh);
        span_begin(r, m->depth[depth].de);
        for (r->mb = first; r->mb < first + n; r->mb++)
            mt_mtp_backward(r, depth, mt_model_span_part(m, dx, r->mb));
    }
    block_done(r, l, MT_BACKWARD);
    block_grads_reduce(r, l);
}

/* Forward and backward of micro-batches [first, first + n): one, or all of a step. */
static void forward_backward(struct mt_rank *r, int64_t first, int64_t n)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view dy = m->b.dxa, dx = m->b.dxb;

    forward(r, first, n, true);
    for (int64_t l = m->shape.L - 1; l >= 0 && l >= m->shape.L - m->opt.offload_prefetch; l--)
        mt_layer_fetch(r, (int)l, (mt_event){0, 0});
    head_open(r);
    r->done[m->shape.L] = mt_event_record(s);
    for (int l = (int)m->shape.L - 1; l >= 0; l--) {
        if (l + 1 == mt_own_layers(&m->shape)) {
            head(r, 0, first, n, dy);
            head_close(r);
            r->done[l + 1] = mt_event_record(s);
        }
        if (l >= m->prefetch) block_gather(r, l - (int)m->prefetch, MT_BACKWARD, r->done[l + 1]);
        if (l >= m->opt.offload_prefetch) mt_layer_fetch(r, l - (int)m->opt.offload_prefetch, r->done[l + 1]);
        block_backward(r, l, first, n, dy, dx);
        r->done[l] = mt_event_record(s);
        mt_view t = dx;
        dx = dy;
        dy = t;
    }
    embedding_backward(r, first, n, dy);
}

/* Each block's router bias follows the rows its experts got, of all ranks and micro-batches of the step. */
static void balance_experts(struct mt_rank *r, double rate)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (!(rate > 0)) return;
    for (int l = 0; l < (int)m->shape.L; l++) {
        if (!mt_is_moe(&m->shape, l)) continue;
        mt_gather(s, m->load_all, m->layer[l].load, MT_GROUP_WORLD, r->ctx->world, 8 * m->shape.E);
        mt_sum_parts_i64(s, m->load_sum, m->load_all);
        mt_touch(r, mt_touch_bias(m, l));
        mt_bias_update(s, m->layer[l].bias, m->load_sum, rate);
    }
}

/* From numbers that are equal on all ranks: all do the same. */
static bool is_good(const struct mt_step *t)
{
    if (!isfinite(t->norm) || !isfinite(t->loss)) return false;
    if (t->norm_limit > 0 && t->norm > t->norm_limit) return false;
    return !(t->loss_limit > 0 && t->loss > t->loss_limit * (double)t->valid);
}

/* index: of the reads, 0 for training, which alone has further depths. */
static void read_losses(struct mt_step *t, struct mt_stream *s, int64_t index)
{
    const struct mt_model *m = t->rank.m;
    int64_t more = index ? 0 : m->shape.mtp;
    mt_host_read(s, MT_READ_LOSS, index, mt_view_part(m->loss_sum, 0, 1), &t->loss);
    mt_host_read(s, MT_READ_STATE, index, mt_view_part(m->valid_sum, 0, 1), &t->valid);
    if (!more) return;
    mt_host_read(s, MT_READ_LOSS, 2, mt_view_part(m->loss_sum, 1, more), t->mtp_loss);
    mt_host_read(s, MT_READ_STATE, 3, mt_view_part(m->valid_sum, 1, more), t->mtp_valid);
}

void mt_train_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    struct mt_rank *r = &t->rank;
    const struct mt_model *m = r->m;
    struct mt_stream *s = &ctx->stream[MT_COMPUTE];

    mt_units_restart(r, true);
    mt_model_zero(r);
    batch_in(r, t->micro, true);
    count_labels(r, t->micro, true);
    for (int64_t mb = 0; mb < t->micro; mb += m->opt.span) forward_backward(r, mb, m->opt.span);
    mt_grads_sum_replicas(r);
    sum_loss(r);
    mt_aux_sum(r);
    mt_qk_clip_scores(r);
    mt_optim_norm(t->optim, r, t->cfg->optim_clip);
    read_losses(t, s, 0);
    mt_host_read(s, MT_READ_NORM, 0, t->optim->norm, &t->norm);
    if (mt_aux_any(m)) mt_host_read(s, MT_READ_STATE, 2, m->aux_sum, t->aux);
    if (m->opt.tops) mt_host_read(s, MT_READ_STATE, 4, m->top_one, &t->top);
    t->updated = is_good(t);
    if (!t->updated) return;
    mt_optim_update(t->optim, r, t->cfg, t->step, t->lr_factor);
    balance_experts(r, t->cfg->model_bias_rate);
    mt_model_pack_rest(r);
}

void mt_eval_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    struct mt_rank *r = &t->rank;
    const struct mt_model *m = r->m;
    struct mt_stream *s = &ctx->stream[MT_COMPUTE];

    mt_units_restart(r, t->micro > 1);
    batch_in(r, t->micro, false);
    mt_fill0(s, m->loss);
    mt_fill0(s, m->valid);
    count_labels(r, t->micro, false);
    for (int64_t mb = 0; mb < t->micro; mb++) {
        forward(r, mb, 1, false);
        mt_unit_use(r, m->head_unit, MT_FORWARD);
        r->mb = mb;
        mt_head_eval(r, mt_model_span_part(m, m->depth[0].x, mb));
        mt_unit_done(r, m->head_unit, MT_FORWARD);
        mt_unit_done(r, 0, MT_FORWARD);
    }
    sum_loss(r);
    read_losses(t, s, 1);
}

void mt_fill_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_units_restart(&t->rank, false);
    mt_model_fill(&t->rank, (uint64_t)t->cfg->train_seed);
    mt_model_tables(&t->rank);
    mt_model_pack(&t->rank);
}

void mt_pack_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_units_restart(&t->rank, false);
    mt_model_tables(&t->rank);
    mt_model_pack(&t->rank);
}
