#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/muon_ws.h"

/* ---- set-up: batches of equal shapes ---- */
static bool is_muon(const struct mt_store *s, int t) { return s->tensor[t].optimizer == MT_MUON; }
static int64_t cols_of(const struct mt_store *s, int t) { return s->matrix[s->tensor[t].matrix].cols; }

/* Appends tensor t's parts to the open batch of its shape, opening further ones as they fill up. */
static void batch_tensor(struct mt_optim *o, int t, int64_t cap)
{
    const struct mt_store *s = &o->m->store;
    for (int64_t at = 0, parts = mt_store_parts(s, t), n; at < parts; at += n) {
        struct mt_optim_batch *b = &o->batch[o->n_batches - 1];
        if (b->n == cap) {
            o->batch[o->n_batches++] = (struct mt_optim_batch){b->rows, b->cols, 0, o->n_pieces, 0};
            b++;
        }
        n = parts - at < cap - b->n ? parts - at : cap - b->n;
        o->piece[o->n_pieces++] = (struct mt_optim_piece){t, at, n};
        b->n += n;
        b->n_pieces++;
    }
}

static void batch_shape(struct mt_optim *o, int first)
{
    const struct mt_store *s = &o->m->store;
    int64_t rows = s->tensor[first].rows, cols = cols_of(s, first), bytes = rows * cols * mt_dtype_bytes(o->muon_dtype);
    int64_t cap = MT_MUON_BATCH_BYTES / bytes > 1 ? MT_MUON_BATCH_BYTES / bytes : 1;
    o->batch[o->n_batches++] = (struct mt_optim_batch){rows, cols, 0, o->n_pieces, 0};
    for (int t = first; t < s->n_tensors; t++)
        if (is_muon(s, t) && s->tensor[t].rows == rows && cols_of(s, t) == cols) batch_tensor(o, t, cap);
}

static bool shape_seen(const struct mt_store *s, int t)
{
    for (int i = 0; i < t; i++)
        if (is_muon(s, i) && s->tensor[i].rows == s->tensor[t].rows && cols_of(s, i) == cols_of(s, t)) return true;
    return false;
}

static int64_t count_matrices(const struct mt_store *s)
{
    int64_t n = 0;
    for (int t = 0; t < s->n_tensors; t++)
        if (is_muon(s, t)) n += mt_store_parts(s, t);
    return n;
}

static void size_buffers(struct mt_optim *o, struct mt_ledger *g)
{
    for (int i = 0; i < o->n_batches; i++) {
        const struct mt_optim_batch *b = &o->batch[i];
        int64_t u = b->n * b->rows * b->cols * mt_dtype_bytes(o->muon_dtype), ws = mt_newton_schulz_ws_bytes(b->n, b->rows, b->cols, o->muon_dtype);
        if (u > o->u_bytes) o->u_bytes = u;
        if (ws > o->ws_bytes) o->ws_bytes = ws;
    }
    if (!o->n_batches) return;
    o->u_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, o->u_bytes, "muon.u");
    o->ws_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, o->ws_bytes, "muon.ws");
}

mt_status mt_optim_init(struct mt_optim *o, const struct mt_model *m, const mt_config *c, struct mt_ledger *g, int world, mt_err *e)
{
    const struct mt_store *s = &m->store;
    int64_t n = count_matrices(s);
    *o = (struct mt_optim){.m = m, .muon_dtype = c->train_dtype == MT_F32 ? MT_F32 : c->muon_dtype, .u_row = -1, .ws_row = -1};
    o->piece = calloc((size_t)n + 1, sizeof *o->piece);
    o->batch = calloc((size_t)n + 1, sizeof *o->batch);
    MT_REQUIRE(o->piece && o->batch, e, MT_IO, "cannot allocate the plan of %lld Muon matrices", (long long)n);
    for (int t = 0; t < s->n_tensors; t++)
        if (is_muon(s, t) && !shape_seen(s, t)) batch_shape(o, t);
    size_buffers(o, g);
    o->sumsq = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq");
    o->sumsq_all = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, world, MT_SUMSQ_WORDS, 0, "sumsq.all");
    o->sumsq_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq.sum");
    o->scale = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, 1, 0, 0, "clip.scale");
    o->norm = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, 1, 0, 0, "clip.norm");
    return MT_OK;
}

void mt_optim_release(struct mt_optim *o)
{
    free(o->piece);
    free(o->batch);
    *o = (struct mt_optim){0};
}

/* ---- a step ---- */
void mt_optim_norm(const struct mt_optim *o, struct mt_rank *r, double max_norm)
{
    const struct mt_store *st = &o->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_fill0(s, o->sumsq);
    for (int i = 0; i < st->n_buckets; i++) {
        mt_view g = mt_store_bucket_state(st, i, MT_STATE_GRAD);
        if (mt_view_given(g)) mt_sumsq(s, o->sumsq, g);
    }
    mt_gather(s, o->sumsq_all, o->sumsq, MT_GROUP_WORLD, r->ctx->world, 8 * MT_SUMSQ_WORDS);
    mt_sum_parts_i64(s, o->sumsq_sum, o->sumsq_all);
    mt_clip(s, o->scale, o->norm, o->sumsq_sum, max_norm);
}

static void adamw_tensor(const struct mt_optim *o, struct mt_rank *r, int t, const mt_config *c, int64_t step, double factor)
{
    const struct mt_store *st = &o->m->store;
    const struct mt_tensor *p = &st->tensor[t];
    mt_view w = mt_store_tensor_stack(st, t, MT_STATE_MASTER), m = mt_store_tensor_stack(st, t, MT_STATE_M),
            v = mt_store_tensor_stack(st, t, MT_STATE_V), g = mt_store_tensor_stack(st, t, MT_STATE_GRAD);
    int64_t parts = mt_store_parts(st, t), n = mt_store_tensor_count(st, t) / parts;
    for (int64_t i = 0; i < parts; i++)
        mt_adamw(&r->ctx->stream[MT_COMPUTE], mt_view_as(mt_view_part(w, i, 1), n, 0, 0), mt_view_as(mt_view_part(m, i, 1), n, 0, 0),
                 mt_view_as(mt_view_part(v, i, 1), n, 0, 0), mt_view_as(mt_view_part(g, i, 1), n, 0, 0), o->scale,
                 c->optim_lr * p->lr_scale * factor, p->weight_decay, c->adamw_beta1, c->adamw_beta2, c->adamw_eps, step + 1);
}

/* rows, cols: of the matrix whose update is scaled. */
static double muon_factor(mt_choice_muon_scale mode, int64_t rows, int64_t cols)
{
    double a = (double)rows, b = (double)cols;
    switch (mode) {
    case MT_MUON_SCALE_MATCH_RMS_ADAMW: return 0.2 * sqrt(a > b ? a : b);
    case MT_MUON_SCALE_ORIGINAL: return sqrt(a > b ? a / b : 1);
    case MT_MUON_SCALE_SPECTRAL: return sqrt(a / b);
    }
    return 0;
}

static void muon_batch(const struct mt_optim *o, struct mt_rank *r, const struct mt_optim_batch *b, const mt_config *c, double factor)
{
    const struct mt_store *st = &o->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_view u = mt_view_of(o->u_row, o->muon_dtype, 0, b->n, b->rows, b->cols);
    mt_fresh(s, mt_view_of(o->u_row, MT_U8, 0, o->u_bytes, 0, 0));
    int64_t at = 0;
    for (int i = b->first_piece; i < b->first_piece + b->n_pieces; at += o->piece[i++].n) {
        const struct mt_optim_piece *p = &o->piece[i];
        mt_muon_momentum(s, mt_view_part(u, at, p->n), mt_view_part(mt_store_tensor_stack(st, p->tensor, MT_STATE_M), p->first, p->n),
                         mt_view_part(mt_store_tensor_stack(st, p->tensor, MT_STATE_GRAD), p->first, p->n), o->scale, c->muon_momentum,
                         c->muon_nesterov);
    }
    mt_newton_schulz(s, u, mt_view_of(o->ws_row, MT_U8, 0, o->ws_bytes, 0, 0), c->muon_steps, c->muon_coefficients);
    at = 0;
    for (int i = b->first_piece; i < b->first_piece + b->n_pieces; at += o->piece[i++].n) {
        const struct mt_optim_piece *p = &o->piece[i];
        const struct mt_tensor *t = &st->tensor[p->tensor];
        mt_muon_apply(s, mt_view_part(mt_store_tensor_stack(st, p->tensor, MT_STATE_MASTER), p->first, p->n), mt_view_part(u, at, p->n),
                      c->optim_lr * t->lr_scale * factor, t->weight_decay, muon_factor(c->muon_scale, b->rows, b->cols));
    }
}

void mt_optim_update(const struct mt_optim *o, struct mt_rank *r, const mt_config *c, int64_t step, double factor)
{
    for (int t = 0; t < o->m->store.n_tensors; t++)
        if (o->m->store.tensor[t].optimizer == MT_ADAMW) adamw_tensor(o, r, t, c, step, factor);
    for (int i = 0; i < o->n_batches; i++) muon_batch(o, r, &o->batch[i], c, factor);
}
