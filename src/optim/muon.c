#include "optim/muon.h"

#include <math.h>

#include "model/touch.h"

struct run {
    const struct mt_muon *u;
    struct mt_rank *r;
    const mt_config *c;
    const mt_view *scale; /* by side */
    double factor;
    struct mt_stream *compute, *reduce;
    /* Of the windows in flight. rows: handed to the reduce stream with the momentum in them, and back with the result.
     * whole: filled by the reduce stream, used by the iterations. */
    struct mt_lease rows[MT_MUON_SLOTS], whole[MT_MUON_SLOTS];
};

/* [1, rows, n cols] as the n blocks of its columns that lie side by side. */
static mt_view columns(mt_view v, int64_t n)
{
    mt_view b = v;
    b.dim[0] = n;
    b.dim[2] = v.dim[2] / n;
    b.stride = b.dim[2] * mt_dtype_bytes((mt_dtype)v.dtype);
    return b;
}
/* On the first n matrices of u. How many a rank has of a batch or window differs, and the memory plan is made from one
 * rank's record: so the buffers' lives begin and end at the same places on a rank that has none. */
static void iterate(const struct run *x, enum mt_arena side, mt_view u, int64_t n, struct mt_heads heads)
{
    mt_view ws = mt_piece_row(x->u->ws_row[side], x->u->ws_bytes[side]);
    struct mt_stream *s = mt_slots_run(&x->r->slots, side);
    const int64_t steps = x->c->muon_steps, set = x->c->muon_coefficients, h = heads.n ? heads.n : 1;
    if (!n) mt_fresh(s, ws);
    for (int64_t i = 0; heads.columns && i < n; i++)
        mt_newton_schulz(s, columns(mt_view_part(u, i, 1), h), ws, steps, set);
    if (n && !heads.columns)
        mt_newton_schulz(s, mt_view_as(mt_view_part(u, 0, n), n * h, u.dim[1] / h, u.dim[2]), ws, steps, set);
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
/* w, update: parts or rows of a tensor's matrices. */
static void apply(const struct run *x, enum mt_arena side, int tensor, mt_view w, mt_view update)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[tensor];
    const struct mt_blocks b = mt_store_blocks(&x->u->m->store, tensor);
    mt_muon_apply(mt_slots_run(&x->r->slots, side), w, update, x->c->optim_lr * t->lr_scale * x->factor,
                  t->weight_decay, muon_factor(x->c->muon_scale, b.rows, b.cols));
}
static void momentum(const struct run *x, enum mt_arena side, mt_view u, mt_view m, mt_view grad)
{
    mt_muon_momentum(mt_slots_run(&x->r->slots, side), u, m, grad, x->scale[side], x->c->muon_momentum,
                     x->c->muon_nesterov);
}

/* ---- what comes over strip by strip ---- */
static void strip_momentum(const struct run *x, enum mt_arena side, const struct mt_strip *p, mt_view u,
                           int64_t row0)
{
    struct mt_slot slot = mt_slot_load(&x->r->slots, p, side, MT_HAS_M | MT_HAS_GRAD, MT_HAS_M | MT_HAS_GRAD);
    if (p->rows)
        momentum(x, side, mt_piece_strip(u, row0, p), mt_piece_one(slot.state[MT_STATE_M]),
                 mt_piece_one(slot.state[MT_STATE_GRAD]));
    mt_slot_done(&x->r->slots, p, &slot, MT_HAS_M);
}
static void strip_apply(const struct run *x, enum mt_arena side, const struct mt_strip *p, mt_view update,
                        int64_t row0)
{
    struct mt_slot slot = mt_slot_load(&x->r->slots, p, side, MT_HAS_MASTER, MT_HAS_MASTER);
    if (p->rows)
        apply(x, side, p->tensor, mt_piece_one(slot.state[MT_STATE_MASTER]), mt_piece_strip(update, row0, p));
    mt_strip_end(x->r, p, &slot, MT_HAS_MASTER);
}

/* ---- what is whole here ---- */
/* Parts of a batch are matrices of `u` in turn; at: the first of the piece. Returns the next. Strips that this rank lacks come, too. */
static int64_t piece_momentum(const struct run *x, const struct mt_piece *p, mt_view u, int64_t at)
{
    const struct mt_store *st = &x->u->m->store;
    enum mt_arena side = x->u->side;
    int64_t n = mt_piece_here(st, p), per = mt_strip_per_part(st, p->tensor);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_M));
    mt_view mom = mt_piece_state(st, p, MT_STATE_M), grad = mt_piece_state(st, p, MT_STATE_GRAD);
    if (!mt_piece_strips(&x->u->m->store, p->tensor)) {
        if (n) momentum(x, side, mt_view_part(u, at, n), mom, grad);
        return at + n;
    }
    for (int64_t i = p->first * per; i < (p->first + p->n) * per; i++) {
        struct mt_strip strip = mt_strip_at(st, p->tensor, i);
        int64_t k = i / per - p->first;
        strip_momentum(x, side, &strip, k < n ? mt_view_part(u, at + k, 1) : MT_NONE,
                       st->tensor[p->tensor].row0);
    }
    return at + n;
}
static int64_t piece_apply(const struct run *x, const struct mt_piece *p, mt_view u, int64_t at)
{
    const struct mt_store *st = &x->u->m->store;
    enum mt_arena side = x->u->side;
    int64_t n = mt_piece_here(st, p), per = mt_strip_per_part(st, p->tensor);
    mt_view w = mt_piece_state(st, p, MT_STATE_MASTER);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_MASTER));
    if (!mt_piece_strips(&x->u->m->store, p->tensor)) {
        if (n) apply(x, side, p->tensor, w, mt_view_part(u, at, n));
        return at + n;
    }
    for (int64_t i = p->first * per; i < (p->first + p->n) * per; i++) {
        struct mt_strip strip = mt_strip_at(st, p->tensor, i);
        int64_t k = i / per - p->first;
        strip_apply(x, side, &strip, k < n ? mt_view_part(u, at + k, 1) : MT_NONE,
                    st->tensor[p->tensor].row0);
    }
    return at + n;
}

static void batch_update(const struct run *x, const struct mt_muon_batch *b)
{
    const struct mt_muon *m = x->u;
    const struct mt_piece *first = &m->piece[b->first_piece], *last = first + b->n_pieces;
    mt_view u = mt_view_of(m->u_row, m->dtype, 0, b->n, b->rows, b->cols),
            whole = mt_piece_row(m->u_row, m->u_bytes);
    struct mt_stream *s = mt_slots_run(&x->r->slots, m->side);
    int64_t at = 0;
    mt_fresh(s, whole);
    for (const struct mt_piece *p = first; p < last; p++) at = piece_momentum(x, p, u, at);
    iterate(x, m->side, u, at, b->heads);
    at = 0;
    for (const struct mt_piece *p = first; p < last; p++) at = piece_apply(x, p, u, at);
    mt_keep(s, whole);
}

/* Batches between two windows: share i of n. */
static void batches(const struct run *x, int i, int n)
{
    for (int k = x->u->n_batches * i / n; k < x->u->n_batches * (i + 1) / n; k++)
        batch_update(x, &x->u->batch[k]);
}

/* ---- windows ---- */
static const struct mt_muon_dense *dense_of(const struct run *x, const struct mt_muon_window *w, int i)
{
    return &x->u->dense[w->first + i];
}

static mt_view wholes(const struct run *x, int k)
{
    const struct mt_muon_window *w = &x->u->window[k];
    return mt_view_of(x->u->whole_row[k % MT_MUON_SLOTS], x->u->dtype, 0, w->most, w->rows, w->cols);
}
/* A matrix of the window, if it is whole here. */
static mt_view whole_of(const struct run *x, int k, const struct mt_muon_dense *d)
{
    bool here = d->owner == x->u->me || d->owner < 0;
    return here ? mt_view_part(wholes(x, k), d->index, 1)
                : mt_piece_row(x->u->whole_row[k % MT_MUON_SLOTS], 0);
}
/* This rank's rows of it, if it has any. */
static mt_view rows_of(const struct run *x, int k, const struct mt_muon_dense *d)
{
    int64_t n = mt_store_local(&x->u->m->store, d->tensor).rows;
    int32_t row = x->u->rows_row[k % MT_MUON_SLOTS];
    return n ? mt_view_of(row, x->u->dtype, d->rows_at, 1, n, x->u->window[k].cols) : mt_piece_row(row, 0);
}

/* Strips of a dense matrix: of this rank's rows of the momentum, and of their update. */
static void dense_momentum(const struct run *x, int t, mt_view rows)
{
    const struct mt_store *st = &x->u->m->store;
    for (int64_t i = 0; i < mt_strip_count(st, t); i++) {
        struct mt_strip strip = mt_strip_at(st, t, i);
        strip_momentum(x, MT_DEVICE_ARENA, &strip, rows, st->tensor[t].row0 + mt_store_local(st, t).row0);
    }
}
static void dense_apply(const struct run *x, int t, mt_view update)
{
    const struct mt_store *st = &x->u->m->store;
    for (int64_t i = 0; i < mt_strip_count(st, t); i++) {
        struct mt_strip strip = mt_strip_at(st, t, i);
        strip_apply(x, MT_DEVICE_ARENA, &strip, update, st->tensor[t].row0 + mt_store_local(st, t).row0);
    }
}

/* Momentum of this rank's rows, on their way to the owners. */
static void window_send(struct run *x, int k)
{
    const struct mt_muon *u = x->u;
    const struct mt_store *st = &u->m->store;
    const struct mt_muon_window *w = &u->window[k];
    int slot = k % MT_MUON_SLOTS;
    mt_fresh(x->compute, mt_piece_row(u->rows_row[slot], u->rows_bytes));
    for (int i = 0; i < w->n; i++) {
        const struct mt_muon_dense *d = dense_of(x, w, i);
        mt_view rows = rows_of(x, k, d);
        mt_touch(x->r, mt_touch_state(d->tensor, MT_STATE_M));
        if (mt_piece_strips(&x->u->m->store, d->tensor))
            dense_momentum(x, d->tensor, rows);
        else if (rows.bytes)
            momentum(x, MT_DEVICE_ARENA, rows, mt_store_local_state(st, d->tensor, MT_STATE_M),
                     mt_store_local_state(st, d->tensor, MT_STATE_GRAD));
    }
    mt_lease_filled(x->compute, &x->rows[slot]);
    mt_lease_use(x->reduce, &x->rows[slot]);
    mt_fresh(x->reduce, mt_piece_row(u->whole_row[slot], u->whole_bytes));
    for (int i = 0; i < w->n; i++) {
        const struct mt_muon_dense *d = dense_of(x, w, i);
        if (u->exchange)
            mt_collect_cut(x->reduce, whole_of(x, k, d), rows_of(x, k, d), MT_GROUP_SHARD, d->cut, d->owner);
        else
            mt_gather_cut(x->reduce, whole_of(x, k, d), rows_of(x, k, d), MT_GROUP_SHARD, d->cut);
    }
    mt_lease_filled(x->reduce, &x->whole[slot]);
}

/* Iterates on what is owned here, and sends the results home: into the places that the rows came from. */
static void window_iterate(struct run *x, int k)
{
    const struct mt_muon_window *w = &x->u->window[k];
    int slot = k % MT_MUON_SLOTS;
    mt_lease_use(x->compute, &x->whole[slot]);
    iterate(x, MT_DEVICE_ARENA, wholes(x, k), w->mine, w->heads);
    mt_lease_done(x->compute, &x->whole[slot]);
    if (!x->u->exchange) return;
    mt_lease_fill(x->reduce, &x->whole[slot]);
    for (int i = 0; i < w->n; i++) {
        const struct mt_muon_dense *d = dense_of(x, w, i);
        mt_spread_cut(x->reduce, rows_of(x, k, d), whole_of(x, k, d), MT_GROUP_SHARD, d->cut, d->owner);
    }
    mt_lease_done(x->reduce, &x->rows[slot]);
}

static void window_apply(struct run *x, int k)
{
    const struct mt_muon *u = x->u;
    const struct mt_store *st = &u->m->store;
    const struct mt_muon_window *w = &u->window[k];
    int slot = k % MT_MUON_SLOTS;
    mt_lease_fill(x->compute, &x->rows[slot]);
    for (int i = 0; i < w->n; i++) {
        const struct mt_muon_dense *d = dense_of(x, w, i);
        struct mt_local here = mt_store_local(st, d->tensor);
        mt_view update = rows_of(x, k, d);
        mt_touch(x->r, mt_touch_state(d->tensor, MT_STATE_MASTER));
        if (!u->exchange && here.rows) {
            mt_view m = mt_view_as(whole_of(x, k, d), w->rows, w->cols, 0);
            update = mt_piece_one(mt_view_part(m, here.row0, here.rows));
        }
        if (mt_piece_strips(&x->u->m->store, d->tensor))
            dense_apply(x, d->tensor, update);
        else if (here.rows)
            apply(x, MT_DEVICE_ARENA, d->tensor, mt_store_local_state(st, d->tensor, MT_STATE_MASTER),
                  update);
    }
    mt_keep(x->compute, mt_piece_row(u->rows_row[slot], u->rows_bytes));
    mt_keep(x->compute, mt_piece_row(u->whole_row[slot], u->whole_bytes));
}

/* Around the iterations on window k, those on pieces are spread, under which window k + 1 is collected and the results of
 * window k travel. Slots: window k + 1 takes over from k - 1, which has been applied by then. */
void mt_muon_update(const struct mt_muon *u, struct mt_rank *r, const mt_config *c,
                    const mt_view scale[MT_N_ARENAS], double factor)
{
    struct run x = {.u = u,
                    .r = r,
                    .c = c,
                    .scale = scale,
                    .factor = factor,
                    .compute = &r->ctx->stream[MT_COMPUTE],
                    .reduce = &r->ctx->stream[MT_REDUCE]};
    int n = u->n_windows;
    if (n) window_send(&x, 0);
    batches(&x, 0, n + 1);
    for (int k = 0; k < n; k++) {
        window_iterate(&x, k);
        if (k) window_apply(&x, k - 1);
        if (k + 1 < n) window_send(&x, k + 1);
        batches(&x, k + 1, n + 1);
    }
    if (n) window_apply(&x, n - 1);
}
