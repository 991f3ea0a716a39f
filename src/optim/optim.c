#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/muon_ws.h"

/* ---- set-up: batches of equal shapes ---- */
static bool is_muon(const struct mt_store *s, int t) { return s->tensor[t].optimizer == MT_MUON; }
static int64_t cols_of(const struct mt_store *s, int t) { return s->matrix[s->tensor[t].matrix].cols; }
static const struct mt_bucket *bucket_of(const struct mt_store *s, int t) { return &s->bucket[s->matrix[s->tensor[t].matrix].bucket]; }

/* Parts of the tensor on the rank that has most: batches are planned alike on all ranks. */
static int64_t most_parts(const struct mt_store *s, int t)
{
    const struct mt_bucket *b = bucket_of(s, t);
    return s->unit[b->unit].experts ? (b->n + b->members - 1) / b->members : 1;
}

/* How the momentum of a dense matrix is cut: as its bucket is, within its rows. */
static int momentum_cut(struct mt_store *s, int t, mt_dtype dtype)
{
    const struct mt_bucket *b = bucket_of(s, t);
    const struct mt_matrix *m = &s->matrix[s->tensor[t].matrix];
    int64_t off = m->off + s->tensor[t].row0 * m->cols, n = s->tensor[t].rows * m->cols, el = mt_dtype_bytes(dtype);
    if (s->unit[b->unit].experts || b->members == 1) return -1;
    int64_t *at = calloc((size_t)b->members + 1, sizeof *at);
    MT_ASSERT(at);
    for (int i = 0; i <= b->members; i++) {
        int64_t x = b->edge[i] - off;
        at[i] = el * (x < 0 ? 0 : x > n ? n : x);
    }
    int cut = mt_store_add_cut(s, b->members, at);
    free(at);
    return cut;
}

/* Appends tensor t's parts to the open batch of its shape, opening further ones as they fill up. */
static void batch_tensor(struct mt_optim *o, struct mt_store *s, int t, int64_t cap)
{
    for (int64_t at = 0, parts = most_parts(s, t), n; at < parts; at += n) {
        struct mt_optim_batch *b = &o->batch[o->n_batches - 1];
        if (b->n == cap) {
            o->batch[o->n_batches++] = (struct mt_optim_batch){b->rows, b->cols, 0, o->n_pieces, 0};
            b++;
        }
        n = parts - at < cap - b->n ? parts - at : cap - b->n;
        o->piece[o->n_pieces++] = (struct mt_optim_piece){t, at, n, momentum_cut(s, t, o->muon_dtype)};
        b->n += n;
        b->n_pieces++;
    }
}

static void batch_shape(struct mt_optim *o, struct mt_store *s, int first)
{
    int64_t rows = s->tensor[first].rows, cols = cols_of(s, first), bytes = rows * cols * mt_dtype_bytes(o->muon_dtype);
    int64_t cap = MT_MUON_BATCH_BYTES / bytes > 1 ? MT_MUON_BATCH_BYTES / bytes : 1;
    o->batch[o->n_batches++] = (struct mt_optim_batch){rows, cols, 0, o->n_pieces, 0};
    for (int t = first; t < s->n_tensors; t++)
        if (is_muon(s, t) && s->tensor[t].rows == rows && cols_of(s, t) == cols) batch_tensor(o, s, t, cap);
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
        if (is_muon(s, t)) n += most_parts(s, t);
    return n;
}

static void size_buffers(struct mt_optim *o, struct mt_ledger *g)
{
    for (int i = 0; i < o->n_batches; i++) {
        const struct mt_optim_batch *b = &o->batch[i];
        int64_t one = b->rows * b->cols * mt_dtype_bytes(o->muon_dtype), ws = mt_newton_schulz_ws_bytes(b->n, b->rows, b->cols, o->muon_dtype);
        if (b->n * one > o->u_bytes) o->u_bytes = b->n * one;
        if (ws > o->ws_bytes) o->ws_bytes = ws;
        for (int k = b->first_piece; k < b->first_piece + b->n_pieces; k++)
            if (o->piece[k].cut >= 0 && one > o->own_bytes) o->own_bytes = one;
    }
    if (!o->n_batches) return;
    o->u_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, o->u_bytes, "muon.u");
    o->ws_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, o->ws_bytes, "muon.ws");
    if (o->own_bytes) o->own_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, o->own_bytes, "muon.own");
}

mt_status mt_optim_init(struct mt_optim *o, struct mt_model *m, const mt_config *c, struct mt_ledger *g, mt_err *e)
{
    struct mt_store *s = &m->store;
    int64_t n = count_matrices(s), shard = mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n;
    *o = (struct mt_optim){.m = m, .muon_dtype = c->train_dtype == MT_F32 ? MT_F32 : c->muon_dtype, .u_row = -1, .ws_row = -1, .own_row = -1};
    o->piece = calloc((size_t)n + 1, sizeof *o->piece);
    o->batch = calloc((size_t)n + 1, sizeof *o->batch);
    MT_REQUIRE(o->piece && o->batch, e, MT_IO, "cannot allocate the plan of %lld Muon matrices", (long long)n);
    for (int t = 0; t < s->n_tensors; t++)
        if (is_muon(s, t) && !shape_seen(s, t)) batch_shape(o, s, t);
    size_buffers(o, g);
    o->sumsq = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq");
    o->sumsq_all = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, shard, MT_SUMSQ_WORDS, 0, "sumsq.all");
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
        mt_view g = mt_store_piece(st, i, MT_STATE_GRAD);
        if (mt_view_given(g)) mt_sumsq(s, o->sumsq, g);
    }
    mt_gather(s, o->sumsq_all, o->sumsq, MT_GROUP_SHARD, o->sumsq_all.dim[0], 8 * MT_SUMSQ_WORDS);
    mt_sum_parts_i64(s, o->sumsq_sum, o->sumsq_all);
    mt_clip(s, o->scale, o->norm, o->sumsq_sum, max_norm);
}

static mt_view flat(mt_view v) { return mt_view_as(v, mt_view_count(v), 0, 0); }

static void adamw_tensor(const struct mt_optim *o, struct mt_rank *r, int t, const mt_config *c, int64_t step, double factor)
{
    const struct mt_store *st = &o->m->store;
    const struct mt_tensor *p = &st->tensor[t];
    mt_view w = mt_store_local_state(st, t, MT_STATE_MASTER), m = mt_store_local_state(st, t, MT_STATE_M),
            v = mt_store_local_state(st, t, MT_STATE_V), g = mt_store_local_state(st, t, MT_STATE_GRAD);
    for (int64_t i = 0, parts = mt_store_local(st, t).parts; i < parts; i++)
        mt_adamw(&r->ctx->stream[MT_COMPUTE], flat(mt_view_part(w, i, 1)), flat(mt_view_part(m, i, 1)), flat(mt_view_part(v, i, 1)),
                 flat(mt_view_part(g, i, 1)), o->scale, c->optim_lr * p->lr_scale * factor, p->weight_decay, c->adamw_beta1, c->adamw_beta2,
                 c->adamw_eps, step + 1);
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

/* The parts of a piece that this rank has. */
static mt_view piece_state(const struct mt_store *st, const struct mt_optim_piece *p, enum mt_state what, int64_t *n)
{
    mt_view all = mt_store_local_state(st, p->tensor, what);
    int64_t have = mt_store_local(st, p->tensor).parts - p->first;
    *n = have < 0 ? 0 : have < p->n ? have : p->n;
    return *n ? mt_view_part(all, p->first, *n) : MT_NONE;
}

/* Momentum of a piece into its matrices of the batch, u; a cut matrix by way of this rank's rows and a gather. Returns how
 * many matrices of u it filled. */
static int64_t momentum(const struct mt_optim *o, struct mt_rank *r, const struct mt_optim_piece *p, mt_view u, const mt_config *c)
{
    const struct mt_store *st = &o->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    int64_t n, ignored;
    mt_view m = piece_state(st, p, MT_STATE_M, &n), g = piece_state(st, p, MT_STATE_GRAD, &ignored);
    if (p->cut < 0) {
        if (n) mt_muon_momentum(s, mt_view_part(u, 0, n), m, g, o->scale, c->muon_momentum, c->muon_nesterov);
        return n;
    }
    mt_view own = mt_view_of(o->own_row, MT_U8, 0, 0, 0, 0);
    mt_fresh(s, mt_view_of(o->own_row, MT_U8, 0, o->own_bytes, 0, 0));
    if (n) {
        own = mt_view_of(o->own_row, o->muon_dtype, 0, 1, m.dim[1], m.dim[2]);
        mt_muon_momentum(s, own, m, g, o->scale, c->muon_momentum, c->muon_nesterov);
    }
    mt_gather_cut(s, mt_view_part(u, 0, 1), own, MT_GROUP_SHARD, p->cut);
    return 1;
}

static void apply(const struct mt_optim *o, struct mt_rank *r, const struct mt_optim_piece *p, mt_view u, const mt_config *c, double factor, int64_t *at)
{
    const struct mt_store *st = &o->m->store;
    const struct mt_tensor *t = &st->tensor[p->tensor];
    struct mt_local here = mt_store_local(st, p->tensor);
    int64_t n;
    mt_view w = piece_state(st, p, MT_STATE_MASTER, &n), x = mt_view_part(u, *at, p->cut < 0 ? n : 1);
    if (p->cut >= 0 && n) x = mt_view_stack(mt_view_part(mt_view_as(x, x.dim[1], x.dim[2], 0), here.row0, here.rows), 1, x.stride);
    if (n)
        mt_muon_apply(&r->ctx->stream[MT_COMPUTE], w, x, c->optim_lr * t->lr_scale * factor, t->weight_decay,
                      muon_factor(c->muon_scale, u.dim[1], u.dim[2]));
    *at += p->cut < 0 ? n : 1;
}

static void muon_batch(const struct mt_optim *o, struct mt_rank *r, const struct mt_optim_batch *b, const mt_config *c, double factor)
{
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    const struct mt_optim_piece *first = &o->piece[b->first_piece], *last = first + b->n_pieces;
    mt_view u = mt_view_of(o->u_row, o->muon_dtype, 0, b->n, b->rows, b->cols);
    int64_t n = 0, at = 0;
    mt_fresh(s, mt_view_of(o->u_row, MT_U8, 0, o->u_bytes, 0, 0));
    for (const struct mt_optim_piece *p = first; p < last; p++) n += momentum(o, r, p, mt_view_part(u, n, b->n - n), c);
    if (n) mt_newton_schulz(s, mt_view_part(u, 0, n), mt_view_of(o->ws_row, MT_U8, 0, o->ws_bytes, 0, 0), c->muon_steps, c->muon_coefficients);
    for (const struct mt_optim_piece *p = first; p < last; p++) apply(o, r, p, u, c, factor, &at);
}

void mt_optim_update(const struct mt_optim *o, struct mt_rank *r, const mt_config *c, int64_t step, double factor)
{
    for (int t = 0; t < o->m->store.n_tensors; t++)
        if (o->m->store.tensor[t].optimizer == MT_ADAMW) adamw_tensor(o, r, t, c, step, factor);
    for (int i = 0; i < o->n_batches; i++) muon_batch(o, r, &o->batch[i], c, factor);
}
