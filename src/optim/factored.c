#include "optim/factored.h"

#include <stdlib.h>

#include "base/hash.h"
#include "device/cpu/muon_ws.h"

struct mt_stream *mt_factored_stream(const struct mt_factored_run *x)
{
    return &x->r->ctx->stream[MT_COMPUTE];
}
void mt_factored_open(const struct mt_factored_run *x)
{
    for (int i = 0; i < MT_FACTORED_BUFFERS; i++)
        mt_fresh(mt_factored_stream(x), mt_piece_row(x->u->row[i], x->u->bytes));
}
void mt_factored_close(const struct mt_factored_run *x)
{
    for (int i = 0; i < MT_FACTORED_BUFFERS; i++)
        mt_keep(mt_factored_stream(x), mt_piece_row(x->u->row[i], x->u->bytes));
}
mt_view mt_factored_buffer(const struct mt_factored_run *x, int tensor, int which, int64_t n)
{
    const struct mt_store *s = &x->u->m->store;
    const struct mt_tensor *t = &s->tensor[tensor];
    return mt_view_of(x->u->row[which], MT_F32, 0, n, t->rows, s->matrix[t->matrix].cols);
}
mt_view mt_factored_ws(const struct mt_factored_run *x)
{
    return mt_piece_row(x->u->ws_row, x->u->ws_bytes);
}

/* ---- rows, in place or strip by strip ---- */
static void in_place(const struct mt_factored_run *x, const struct mt_piece *p, unsigned uses,
                     mt_factored_visit *f)
{
    const struct mt_store *s = &x->u->m->store;
    int64_t n = mt_piece_here(s, p);
    struct mt_factored_place at = {.tensor = p->tensor};
    if (!n) return;
    for (int w = 0; w < MT_N_STATES; w++)
        at.state[w] = uses & MT_HAS(w) ? mt_piece_state(s, p, (enum mt_state)w) : MT_NONE;
    for (int i = 0; i < MT_FACTORED_BUFFERS; i++) at.buffer[i] = mt_factored_buffer(x, p->tensor, i, n);
    f(x, &at);
}
/* The strip's matrix is k of the piece. */
static void on_strip(const struct mt_factored_run *x, const struct mt_strip *p, int64_t k, unsigned uses,
                     mt_factored_visit *f)
{
    const struct mt_store *s = &x->u->m->store;
    struct mt_slot slot = mt_slot_load(&x->r->slots, p, MT_DEVICE_ARENA, uses, uses);
    struct mt_factored_place at = {.tensor = p->tensor};
    if (p->rows) {
        for (int w = 0; w < MT_N_STATES; w++)
            at.state[w] = uses & MT_HAS(w) ? mt_piece_one(slot.state[w]) : MT_NONE;
        for (int i = 0; i < MT_FACTORED_BUFFERS; i++)
            at.buffer[i] = mt_piece_strip(mt_view_part(mt_factored_buffer(x, p->tensor, i, k + 1), k, 1),
                                          s->tensor[p->tensor].row0, p);
        f(x, &at);
    }
    uses &= ~(unsigned)MT_HAS_GRAD; /* which is only read */
    if (uses & MT_HAS_MASTER)
        mt_strip_end(x->r, p, &slot, uses);
    else
        mt_slot_done(&x->r->slots, p, &slot, uses);
}
void mt_factored_each(const struct mt_factored_run *x, const struct mt_piece *p, unsigned uses,
                      mt_factored_visit *f)
{
    const struct mt_store *s = &x->u->m->store;
    int64_t per = mt_strip_per_part(s, p->tensor);
    if (!mt_piece_strips(s, p->tensor)) {
        in_place(x, p, uses, f);
        return;
    }
    for (int64_t i = p->first * per; i < (p->first + p->n) * per; i++) {
        struct mt_strip strip = mt_strip_at(s, p->tensor, i);
        on_strip(x, &strip, i / per - p->first, uses, f);
    }
}

/* ---- whole matrices ---- */
mt_view mt_factored_factor(const struct mt_factored_run *x, const struct mt_piece *p, enum mt_factor f)
{
    mt_view v = mt_store_factor(&x->u->m->store, p->tensor, f);
    return mt_view_given(v) ? mt_view_part(v, p->first, mt_piece_here(&x->u->m->store, p)) : MT_NONE;
}
void mt_factored_product(const struct mt_factored_run *x, const struct mt_piece *p, int to, int from,
                         struct mt_factored_turn turned)
{
    struct mt_stream *s = mt_factored_stream(x);
    int64_t n = mt_piece_here(&x->u->m->store, p);
    if (!n) return;
    mt_view left = mt_factored_factor(x, p, MT_FACTOR_LEFT_BASIS),
            right = mt_factored_factor(x, p, MT_FACTOR_RIGHT_BASIS),
            in = mt_factored_buffer(x, p->tensor, from, n), out = mt_factored_buffer(x, p->tensor, to, n),
            between = mt_factored_buffer(x, p->tensor, MT_FACTORED_BETWEEN, n);
    bool both = mt_view_given(left) && mt_view_given(right);
    if (mt_view_given(left)) mt_turn_left(s, both ? between : out, left, in, turned.left);
    if (mt_view_given(right)) mt_turn_right(s, out, both ? between : in, right, turned.right);
}

/* ---- the plan ---- */
static void plan_tensor(struct mt_factored *u, int t, int64_t batch_bytes)
{
    const struct mt_store *s = &u->m->store;
    const struct mt_tensor *p = &s->tensor[t];
    int64_t bytes = 4 * p->rows * s->matrix[p->matrix].cols, most = mt_piece_most(s, t),
            cap = batch_bytes / bytes > 1 ? batch_bytes / bytes : 1;
    for (int64_t at = 0, n; at < most; at += n) {
        n = most - at < cap ? most - at : cap;
        u->piece[u->n_pieces++] = (struct mt_piece){t, at, n};
        if (n * bytes > u->bytes) u->bytes = n * bytes;
        for (int i = 0; i < 2; i++) {
            int64_t ws = p->factor[i] ? mt_eigen_ws_bytes(n, p->factor[i]) : 0;
            if (ws > u->ws_bytes) u->ws_bytes = ws;
        }
    }
}

mt_status mt_factored_init(struct mt_factored *u, struct mt_model *m, enum mt_optimizer optimizer,
                           const char *name, int64_t batch_bytes, struct mt_ledger *g, mt_err *e)
{
    static const char *const what[] = {"grad", "update", "turned", "between"};
    const struct mt_store *s = &m->store;
    size_t n = 1;
    *u = (struct mt_factored){.m = m};
    for (int t = 0; t < s->n_tensors; t++)
        if (s->tensor[t].optimizer == optimizer) n += (size_t)mt_piece_most(s, t);
    u->piece = calloc(n, sizeof *u->piece);
    MT_REQUIRE(u->piece, e, MT_IO, "cannot allocate the plan of %zu matrices of %s", n, name);
    for (int t = 0; t < s->n_tensors; t++)
        if (s->tensor[t].optimizer == optimizer) plan_tensor(u, t, batch_bytes);
    if (!u->n_pieces) return MT_OK;
    for (int i = 0; i < MT_FACTORED_BUFFERS; i++)
        u->row[i] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, u->bytes, "%s.%s", name, what[i]);
    u->ws_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, u->ws_bytes, "%s.ws", name);
    return MT_OK;
}

void mt_factored_release(struct mt_factored *u)
{
    free(u->piece);
    *u = (struct mt_factored){0};
}

uint64_t mt_factored_hash(const struct mt_factored *u, uint64_t h)
{
    for (int i = 0; i < u->n_pieces; i++)
        h = mt_hash_ints(h, (const int64_t[]){u->piece[i].tensor, u->piece[i].first, u->piece[i].n}, 3);
    return mt_hash_ints(h, (const int64_t[]){u->bytes, u->ws_bytes}, 2);
}
