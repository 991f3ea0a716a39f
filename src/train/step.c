#include "train/step.h"

#include <math.h>

/* This step's tokens onto the device; the compute stream may use them afterwards. */
static void batch_in(struct mt_rank *r, int64_t micro)
{
    const struct mt_model *m = r->m;
    struct mt_stream *in = &r->ctx->stream[MT_H2D], *s = &r->ctx->stream[MT_COMPUTE];
    int64_t n = micro * m->shape.N;
    mt_stream_wait(in, mt_event_record(s)); /* what was enqueued before may still read the last batch */
    mt_copy_h2d(in, mt_view_part(m->device.tokens, 0, n), mt_view_part(m->host.tokens, 0, n));
    mt_copy_h2d(in, mt_view_part(m->device.labels, 0, n), mt_view_part(m->host.labels, 0, n));
    mt_copy_h2d(in, mt_view_part(m->device.begin, 0, n), mt_view_part(m->host.begin, 0, n));
    mt_copy_h2d(in, mt_view_part(m->device.pos, 0, n), mt_view_part(m->host.pos, 0, n));
    mt_stream_wait(s, mt_event_record(in));
}

/* Labels that count in the whole step, on all ranks: what the loss is divided by. */
static void count_labels(struct mt_rank *r, int64_t micro)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_count_valid(s, m->valid, mt_view_part(m->device.labels, 0, micro * m->shape.N));
    mt_gather(s, m->valid_all, m->valid, MT_GROUP_WORLD, r->ctx->world, 8);
    mt_sum_parts_i64(s, m->valid_sum, m->valid_all);
}

static void sum_loss(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_gather(s, m->loss_all, m->loss, MT_GROUP_WORLD, r->ctx->world, 8);
    mt_sum_parts_f64(s, m->loss_sum, m->loss_all);
}

static mt_view boundary(const struct mt_model *m, int64_t l) { return l < m->shape.L ? m->layer[l].x : m->x_last; }

/* The working weights of block l in the format backward reads, on the gather stream, one block ahead. */
static void turn_block(struct mt_rank *r, int l)
{
    struct mt_stream *s = &r->ctx->stream[MT_GATHER];
    const struct mt_layer *y = &r->m->layer[l];
    mt_unit_turn(r, s, y->unit);
    if (y->experts >= 0) mt_unit_turn(r, s, y->experts);
}
static void block_leases(struct mt_rank *r, int l, bool use)
{
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    const struct mt_layer *y = &r->m->layer[l];
    for (int i = 0; i < (y->experts >= 0 ? 2 : 1); i++) {
        struct mt_lease *lease = &r->turned[y->unit + i];
        if (use) mt_lease_use(s, lease);
        else mt_lease_done(s, lease);
    }
}

static void forward(struct mt_rank *r, bool then_backward)
{
    const struct mt_model *m = r->m;
    int L = (int)m->shape.L;
    mt_embed_forward(r, boundary(m, 0));
    for (int l = 0; l < L; l++) {
        if (then_backward && l == L - 1) { /* a throttle: turned weights may lie where forward's buffers did */
            struct mt_stream *gs = &r->ctx->stream[MT_GATHER];
            mt_stream_wait(gs, mt_event_record(&r->ctx->stream[MT_COMPUTE]));
            if (!m->shape.tied) mt_unit_turn(r, gs, m->head_unit);
            turn_block(r, L - 1);
        }
        mt_block_forward(r, l, boundary(m, l), boundary(m, l + 1));
    }
}

static void micro_batch(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE], *gs = &r->ctx->stream[MT_GATHER];
    int L = (int)m->shape.L;
    mt_view dy = m->b.dxa, dx = m->b.dxb;

    forward(r, true);
    mt_head_forward_backward(r, boundary(m, L), dy);
    r->unit_done[L] = mt_event_record(s);
    for (int l = L - 1; l >= 0; l--) {
        if (l > 0) {
            mt_stream_wait(gs, r->unit_done[l + 1]); /* a throttle: two blocks' turned weights at a time */
            turn_block(r, l - 1);
        }
        block_leases(r, l, true);
        mt_block_backward(r, l, dx, dy);
        block_leases(r, l, false);
        r->unit_done[l] = mt_event_record(s);
        mt_view t = dx;
        dx = dy;
        dy = t;
    }
    mt_embed_bwd(s, m->g.embed, dy, mt_model_batch(m, r->mb).tokens);
}

static void leases_restart(struct mt_rank *r)
{
    for (int i = 0; i < r->m->store.n_units; i++) r->turned[i].ready = r->turned[i].used = (mt_event){0, 0};
}

static void balance_experts(struct mt_rank *r, double rate)
{
    const struct mt_model *m = r->m;
    if (!(rate > 0)) return;
    for (int l = 0; l < (int)m->shape.L; l++)
        if (mt_is_moe(&m->shape, l)) mt_bias_update(&r->ctx->stream[MT_COMPUTE], m->layer[l].bias, m->layer[l].load, rate);
}

void mt_train_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    struct mt_rank *r = &t->rank;
    const struct mt_model *m = r->m;
    struct mt_stream *s = &ctx->stream[MT_COMPUTE];

    leases_restart(r);
    mt_model_zero(r);
    batch_in(r, t->micro);
    count_labels(r, t->micro);
    for (r->mb = 0; r->mb < t->micro; r->mb++) micro_batch(r);
    sum_loss(r);
    mt_optim_norm(t->optim, r, t->cfg->optim_clip);
    mt_host_read(s, MT_READ_LOSS, 0, m->loss_sum, &t->loss);
    mt_host_read(s, MT_READ_STATE, 0, m->valid_sum, &t->valid);
    mt_host_read(s, MT_READ_NORM, 0, t->optim->norm, &t->norm);
    t->updated = isfinite(t->norm) && isfinite(t->loss); /* equal on all ranks: all do the same */
    if (!t->updated) return;
    mt_optim_update(t->optim, r, t->cfg, t->step, t->lr_factor);
    balance_experts(r, t->cfg->model_bias_rate);
    mt_model_pack(r);
}

void mt_eval_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    struct mt_rank *r = &t->rank;
    const struct mt_model *m = r->m;
    struct mt_stream *s = &ctx->stream[MT_COMPUTE];

    batch_in(r, t->micro);
    mt_fill0(s, m->loss);
    mt_fill0(s, m->valid);
    count_labels(r, t->micro);
    for (r->mb = 0; r->mb < t->micro; r->mb++) {
        forward(r, false);
        mt_head_eval(r, boundary(m, m->shape.L));
    }
    sum_loss(r);
    mt_host_read(s, MT_READ_LOSS, 1, m->loss_sum, &t->loss);
    mt_host_read(s, MT_READ_STATE, 1, m->valid_sum, &t->valid);
}

void mt_fill_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    mt_model_fill(&t->rank, (uint64_t)t->cfg->train_seed);
    mt_pack_step(ctx, arg);
}

void mt_pack_step(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_model_tables(&t->rank);
    mt_model_pack(&t->rank);
}
