#include "optim/soap.h"

#include <stdlib.h>

#include "base/hash.h"
#include "device/cpu/muon_ws.h"
#include "model/touch.h"
#include "shard/factors.h"

struct run {
    const struct mt_soap *u;
    struct mt_rank *r;
    const mt_config *c;
    mt_view scale;
    int64_t step;
    double factor;
};
/* Where a visit finds rows of a tensor: states, and the piece's buffers. */
struct place {
    int tensor;
    mt_view state[MT_N_STATES], buffer[MT_SOAP_BUFFERS];
};

static struct mt_stream *stream(const struct run *x)
{
    return &x->r->ctx->stream[MT_COMPUTE];
}
/* A buffer of n matrices of the tensor. */
static mt_view buffer(const struct run *x, int tensor, int which, int64_t n)
{
    const struct mt_store *s = &x->u->m->store;
    const struct mt_tensor *t = &s->tensor[tensor];
    return mt_view_of(x->u->row[which], MT_F32, 0, n, t->rows, s->matrix[t->matrix].cols);
}

/* Where the turned mean and its update are: two turns come back to where they began, one can't. */
static int turned_at(const struct run *x, int tensor)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[tensor];
    return t->factor[0] && t->factor[1] ? MT_SOAP_UPDATE : MT_SOAP_BETWEEN;
}

/* ---- what is done to rows ---- */
/* The first step leaves moments and weights as they are. */
static void moment(const struct run *x, const struct place *p)
{
    mt_soap_moment(stream(x), p->buffer[MT_SOAP_GRAD], p->buffer[MT_SOAP_UPDATE], p->state[MT_STATE_M],
                   p->state[MT_STATE_GRAD], x->scale, x->step ? x->c->soap_beta1 : 1);
}
static void adam(const struct run *x, const struct place *p)
{
    mt_soap_adam(stream(x), p->state[MT_STATE_V], p->buffer[turned_at(x, p->tensor)],
                 p->buffer[MT_SOAP_TURNED], x->c->soap_beta1, x->step ? x->c->soap_beta2 : 1, x->c->soap_eps,
                 x->step ? x->step : 1);
}
static void apply(const struct run *x, const struct place *p)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[p->tensor];
    double lr = x->step ? x->c->optim_lr * t->lr_scale * x->factor : 0;
    mt_muon_apply(stream(x), p->state[MT_STATE_MASTER], p->buffer[MT_SOAP_UPDATE], lr, t->weight_decay, 1);
}

/* ---- rows, in place or strip by strip ---- */
typedef void visit(const struct run *x, const struct place *p);

static void in_place(const struct run *x, const struct mt_piece *p, unsigned uses, visit *f)
{
    const struct mt_store *s = &x->u->m->store;
    int64_t n = mt_piece_here(s, p);
    struct place at = {.tensor = p->tensor};
    if (!n) return;
    for (int w = 0; w < MT_N_STATES; w++)
        at.state[w] = uses & MT_HAS(w) ? mt_piece_state(s, p, (enum mt_state)w) : MT_NONE;
    for (int i = 0; i < MT_SOAP_BUFFERS; i++) at.buffer[i] = buffer(x, p->tensor, i, n);
    f(x, &at);
}
/* The strip's matrix is k of the piece. */
static void on_strip(const struct run *x, const struct mt_strip *p, int64_t k, unsigned uses, visit *f)
{
    const struct mt_store *s = &x->u->m->store;
    struct mt_slot slot = mt_slot_load(&x->r->slots, p, MT_DEVICE_ARENA, uses, uses);
    struct place at = {.tensor = p->tensor};
    if (p->rows) {
        for (int w = 0; w < MT_N_STATES; w++)
            at.state[w] = uses & MT_HAS(w) ? mt_piece_one(slot.state[w]) : MT_NONE;
        for (int i = 0; i < MT_SOAP_BUFFERS; i++)
            at.buffer[i] = mt_piece_strip(mt_view_part(buffer(x, p->tensor, i, k + 1), k, 1),
                                          s->tensor[p->tensor].row0, p);
        f(x, &at);
    }
    uses &= ~(unsigned)MT_HAS_GRAD; /* which is only read */
    if (uses & MT_HAS_MASTER)
        mt_strip_end(x->r, p, &slot, uses);
    else
        mt_slot_done(&x->r->slots, p, &slot, uses);
}
static void each(const struct run *x, const struct mt_piece *p, unsigned uses, visit *f)
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
static mt_view factor(const struct run *x, const struct mt_piece *p, enum mt_factor f)
{
    mt_view v = mt_store_factor(&x->u->m->store, p->tensor, f);
    return mt_view_given(v) ? mt_view_part(v, p->first, mt_piece_here(&x->u->m->store, p)) : MT_NONE;
}
/* to = QL^T from QR, or back: QL from QR^T. Two turns go by the buffer between them. */
static void turn(const struct run *x, const struct mt_piece *p, int to, int from, bool back)
{
    int64_t n = mt_piece_here(&x->u->m->store, p);
    if (!n) return;
    mt_view left = factor(x, p, MT_FACTOR_LEFT_BASIS), right = factor(x, p, MT_FACTOR_RIGHT_BASIS),
            in = buffer(x, p->tensor, from, n), out = buffer(x, p->tensor, to, n),
            between = buffer(x, p->tensor, MT_SOAP_BETWEEN, n);
    bool both = mt_view_given(left) && mt_view_given(right);
    if (mt_view_given(left)) mt_turn_left(stream(x), both ? between : out, left, in, !back);
    if (mt_view_given(right)) mt_turn_right(stream(x), out, both ? between : in, right, back);
}

/* Eigenvectors first, then a step of orthogonal iteration now and then. */
static int64_t basis_mode(const struct run *x)
{
    return x->step == 0 ? 2 : x->step % x->c->soap_frequency == 0 ? 1 : 0;
}
static void side(const struct run *x, const struct mt_piece *p, enum mt_factor mean, enum mt_factor basis)
{
    const struct mt_store *s = &x->u->m->store;
    mt_view ws = mt_piece_row(x->u->ws_row, x->u->ws_bytes);
    int64_t n = mt_piece_here(s, p);
    if (!mt_factor_edge(&s->tensor[p->tensor], mean)) return;
    if (!n) {
        mt_fresh(stream(x), ws); /* lives begin at the same places on a rank that has none */
        return;
    }
    mt_view g = buffer(x, p->tensor, MT_SOAP_GRAD, n), m = factor(x, p, mean);
    if (mean == MT_FACTOR_LEFT)
        mt_gram_left(stream(x), m, g, x->c->soap_beta2);
    else
        mt_gram_right(stream(x), m, g, x->c->soap_beta2);
    mt_eigen_basis(stream(x), factor(x, p, basis), m, ws, basis_mode(x));
}

static void update(const struct run *x, const struct mt_piece *p)
{
    int at = turned_at(x, p->tensor);
    for (int i = 0; i < MT_SOAP_BUFFERS; i++) mt_fresh(stream(x), mt_piece_row(x->u->row[i], x->u->bytes));
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_M));
    each(x, p, MT_HAS_M | MT_HAS_GRAD, moment);
    turn(x, p, MT_SOAP_TURNED, MT_SOAP_GRAD, false);
    turn(x, p, at, MT_SOAP_UPDATE, false);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_V)); /* and the factors, which go by the same number */
    each(x, p, MT_HAS_V, adam);
    turn(x, p, MT_SOAP_UPDATE, at, true);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_MASTER));
    each(x, p, MT_HAS_MASTER, apply);
    side(x, p, MT_FACTOR_LEFT, MT_FACTOR_LEFT_BASIS);
    side(x, p, MT_FACTOR_RIGHT, MT_FACTOR_RIGHT_BASIS);
    for (int i = 0; i < MT_SOAP_BUFFERS; i++) mt_keep(stream(x), mt_piece_row(x->u->row[i], x->u->bytes));
}

void mt_soap_update(const struct mt_soap *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                    int64_t step, double factor)
{
    const struct run x = {u, r, c, scale, step, factor};
    for (int i = 0; i < u->n_pieces; i++) update(&x, &u->piece[i]);
}

/* ---- the plan ---- */
static void plan_tensor(struct mt_soap *u, int t, int64_t batch_bytes)
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

mt_status mt_soap_init(struct mt_soap *u, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                       mt_err *e)
{
    static const char *const name[] = {"grad", "update", "turned", "between"};
    const struct mt_store *s = &m->store;
    size_t n = 1;
    *u = (struct mt_soap){.m = m};
    for (int t = 0; t < s->n_tensors; t++)
        if (s->tensor[t].optimizer == MT_SOAP) n += (size_t)mt_piece_most(s, t);
    u->piece = calloc(n, sizeof *u->piece);
    MT_REQUIRE(u->piece, e, MT_IO, "cannot allocate the plan of %zu SOAP matrices", n);
    for (int t = 0; t < s->n_tensors; t++)
        if (s->tensor[t].optimizer == MT_SOAP) plan_tensor(u, t, c->soap_batch_bytes);
    if (!u->n_pieces) return MT_OK;
    for (int i = 0; i < MT_SOAP_BUFFERS; i++)
        u->row[i] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, u->bytes, "soap.%s", name[i]);
    u->ws_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_OPTIM, u->ws_bytes, "soap.ws");
    return MT_OK;
}

void mt_soap_release(struct mt_soap *u)
{
    free(u->piece);
    *u = (struct mt_soap){0};
}

uint64_t mt_soap_hash(const struct mt_soap *u, uint64_t h)
{
    for (int i = 0; i < u->n_pieces; i++)
        h = mt_hash_ints(h, (const int64_t[]){u->piece[i].tensor, u->piece[i].first, u->piece[i].n}, 3);
    return mt_hash_ints(h, (const int64_t[]){u->bytes, u->ws_bytes}, 2);
}
