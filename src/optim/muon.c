#include "optim/muon.h"

#include <math.h>

struct run {
    const struct mt_muon *u;
    struct mt_rank *r;
    const mt_config *c;
    mt_view scale;
    double factor;
    struct mt_stream *compute, *reduce;
    /* Of the windows in flight. rows: handed to the reduce stream with the momentum in them, and back with the result.
     * whole: filled by the reduce stream, used by the iterations. */
    struct mt_lease rows[MT_MUON_SLOTS], whole[MT_MUON_SLOTS];
};

static mt_view all_of(int32_t row, int64_t bytes)
{
    return mt_view_of(row, MT_U8, 0, bytes, 0, 0);
}
static mt_view nothing(int32_t row)
{
    return mt_view_of(row, MT_U8, 0, 0, 0, 0);
}

/* On the first n matrices of u. How many a rank has of a batch or window differs, and the memory plan is made from one
 * rank's record: so the buffers' lives begin and end at the same places on a rank that has none. */
static void iterate(const struct run *x, mt_view u, int64_t n)
{
    mt_view ws = all_of(x->u->ws_row, x->u->ws_bytes);
    if (n)
        mt_newton_schulz(x->compute, mt_view_part(u, 0, n), ws, x->c->muon_steps, x->c->muon_coefficients);
    else
        mt_fresh(x->compute, ws);
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
/* w, update: parts or rows of a tensor's matrices, each rows x cols. */
static void apply(const struct run *x, int tensor, mt_view w, mt_view update, int64_t rows, int64_t cols)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[tensor];
    mt_muon_apply(x->compute, w, update, x->c->optim_lr * t->lr_scale * x->factor, t->weight_decay,
                  muon_factor(x->c->muon_scale, rows, cols));
}
static void momentum(const struct run *x, mt_view u, mt_view m, mt_view grad)
{
    mt_muon_momentum(x->compute, u, m, grad, x->scale, x->c->muon_momentum, x->c->muon_nesterov);
}

/* ---- what is whole here ---- */
/* The parts of a piece that this rank has: n of them. */
static mt_view piece_state(const struct mt_store *st, const struct mt_muon_piece *p, enum mt_state what,
                           int64_t *n)
{
    mt_view all = mt_store_local_state(st, p->tensor, what);
    int64_t have = mt_store_local(st, p->tensor).parts - p->first;
    *n = have < 0 ? 0 : have < p->n ? have : p->n;
    return *n ? mt_view_part(all, p->first, *n) : MT_NONE;
}

static void batch_update(const struct run *x, const struct mt_muon_batch *b)
{
    const struct mt_muon *m = x->u;
    const struct mt_store *st = &m->m->store;
    const struct mt_muon_piece *first = &m->piece[b->first_piece], *last = first + b->n_pieces;
    mt_view u = mt_view_of(m->u_row, m->dtype, 0, b->n, b->rows, b->cols),
            whole = all_of(m->u_row, m->u_bytes);
    int64_t n, at = 0;
    mt_fresh(x->compute, whole);
    for (const struct mt_muon_piece *p = first; p < last; p++) {
        mt_view mom = piece_state(st, p, MT_STATE_M, &n), grad = piece_state(st, p, MT_STATE_GRAD, &n);
        if (n) momentum(x, mt_view_part(u, at, n), mom, grad);
        at += n;
    }
    iterate(x, u, at);
    at = 0;
    for (const struct mt_muon_piece *p = first; p < last; p++) {
        mt_view w = piece_state(st, p, MT_STATE_MASTER, &n);
        if (n) apply(x, p->tensor, w, mt_view_part(u, at, n), b->rows, b->cols);
        at += n;
    }
    mt_keep(x->compute, whole);
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
    return here ? mt_view_part(wholes(x, k), d->index, 1) : nothing(x->u->whole_row[k % MT_MUON_SLOTS]);
}
/* This rank's rows of it, if it has any. */
static mt_view rows_of(const struct run *x, int k, const struct mt_muon_dense *d)
{
    int64_t n = mt_store_local(&x->u->m->store, d->tensor).rows;
    int32_t row = x->u->rows_row[k % MT_MUON_SLOTS];
    return n ? mt_view_of(row, x->u->dtype, d->rows_at, 1, n, x->u->window[k].cols) : nothing(row);
}

/* Momentum of this rank's rows, on their way to the owners. */
static void window_send(struct run *x, int k)
{
    const struct mt_muon *u = x->u;
    const struct mt_store *st = &u->m->store;
    const struct mt_muon_window *w = &u->window[k];
    int slot = k % MT_MUON_SLOTS;
    mt_fresh(x->compute, all_of(u->rows_row[slot], u->rows_bytes));
    for (int i = 0; i < w->n; i++) {
        const struct mt_muon_dense *d = dense_of(x, w, i);
        mt_view rows = rows_of(x, k, d);
        if (rows.bytes)
            momentum(x, rows, mt_store_local_state(st, d->tensor, MT_STATE_M),
                     mt_store_local_state(st, d->tensor, MT_STATE_GRAD));
    }
    mt_lease_filled(x->compute, &x->rows[slot]);
    mt_lease_use(x->reduce, &x->rows[slot]);
    mt_fresh(x->reduce, all_of(u->whole_row[slot], u->whole_bytes));
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
    iterate(x, wholes(x, k), w->mine);
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
        if (!here.rows) continue;
        mt_view update = rows_of(x, k, d);
        if (!u->exchange) {
            mt_view m = mt_view_as(whole_of(x, k, d), w->rows, w->cols, 0);
            update = mt_view_stack(mt_view_part(m, here.row0, here.rows), 1, m.bytes);
        }
        apply(x, d->tensor, mt_store_local_state(st, d->tensor, MT_STATE_MASTER), update, w->rows, w->cols);
    }
    mt_keep(x->compute, all_of(u->rows_row[slot], u->rows_bytes));
    mt_keep(x->compute, all_of(u->whole_row[slot], u->whole_bytes));
}

/* Around the iterations on window k, those on pieces are spread, under which window k + 1 is collected and the results of
 * window k travel. Slots: window k + 1 takes over from k - 1, which has been applied by then. */
void mt_muon_update(const struct mt_muon *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                    double factor)
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
