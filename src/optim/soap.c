#include "optim/soap.h"

#include "model/touch.h"

typedef struct mt_factored_run run;
typedef struct mt_factored_place place;

/* Where the turned mean and its update are: two turns come back to where they began, one can't. */
static int turned_at(const run *x, int tensor)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[tensor];
    return t->factor[0] && t->factor[1] ? MT_FACTORED_UPDATE : MT_FACTORED_BETWEEN;
}

/* ---- what is done to rows ---- */
/* The first step leaves moments and weights as they are. */
static void moment(const run *x, const place *p)
{
    mt_soap_moment(mt_factored_stream(x), p->buffer[MT_FACTORED_GRAD], p->buffer[MT_FACTORED_UPDATE],
                   p->state[MT_STATE_M], p->state[MT_STATE_GRAD], x->scale, x->step ? x->c->soap_beta1 : 1);
}
static void adam(const run *x, const place *p)
{
    mt_soap_adam(mt_factored_stream(x), p->state[MT_STATE_V], p->buffer[turned_at(x, p->tensor)],
                 p->buffer[MT_FACTORED_TURNED], x->c->soap_beta1, x->step ? x->c->soap_beta2 : 1,
                 x->c->soap_eps, x->step ? x->step : 1);
}
static void apply(const run *x, const place *p)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[p->tensor];
    double lr = x->step ? x->c->optim_lr * t->lr_scale * x->factor : 0;
    mt_muon_apply(mt_factored_stream(x), p->state[MT_STATE_MASTER], p->buffer[MT_FACTORED_UPDATE], lr,
                  t->weight_decay, 1);
}

/* ---- whole matrices ---- */
/* to = QL^T from QR, or back: QL from QR^T. */
static void turn(const run *x, const struct mt_piece *p, int to, int from, bool back)
{
    mt_factored_product(x, p, to, from, (struct mt_factored_turn){!back, back});
}

/* Eigenvectors first, then a step of orthogonal iteration now and then. */
static int64_t basis_mode(const run *x)
{
    return x->step == 0 ? 2 : x->step % x->c->soap_frequency == 0 ? 1 : 0;
}
static void side(const run *x, const struct mt_piece *p, enum mt_factor mean, enum mt_factor basis)
{
    const struct mt_store *s = &x->u->m->store;
    mt_view ws = mt_factored_ws(x);
    int64_t n = mt_piece_here(s, p);
    if (!mt_factor_edge(&s->tensor[p->tensor], mean)) return;
    if (!n) {
        mt_fresh(mt_factored_stream(x), ws); /* lives begin at the same places on a rank that has none */
        return;
    }
    mt_view g = mt_factored_buffer(x, p->tensor, MT_FACTORED_GRAD, n), m = mt_factored_factor(x, p, mean);
    if (mean == MT_FACTOR_LEFT)
        mt_gram_left(mt_factored_stream(x), m, g, x->c->soap_beta2);
    else
        mt_gram_right(mt_factored_stream(x), m, g, x->c->soap_beta2);
    mt_eigen_basis(mt_factored_stream(x), mt_factored_factor(x, p, basis), m, ws, basis_mode(x), 1, 0, 2);
}

static void update(const run *x, const struct mt_piece *p)
{
    int at = turned_at(x, p->tensor);
    mt_factored_open(x);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_M));
    mt_factored_each(x, p, MT_HAS_M | MT_HAS_GRAD, moment);
    turn(x, p, MT_FACTORED_TURNED, MT_FACTORED_GRAD, false);
    turn(x, p, at, MT_FACTORED_UPDATE, false);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_V)); /* and the factors, which go by the same number */
    mt_factored_each(x, p, MT_HAS_V, adam);
    turn(x, p, MT_FACTORED_UPDATE, at, true);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_MASTER));
    mt_factored_each(x, p, MT_HAS_MASTER, apply);
    side(x, p, MT_FACTOR_LEFT, MT_FACTOR_LEFT_BASIS);
    side(x, p, MT_FACTOR_RIGHT, MT_FACTOR_RIGHT_BASIS);
    mt_factored_close(x);
}

void mt_soap_update(const struct mt_factored *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                    int64_t step, double factor)
{
    const run x = {u, r, c, scale, step, factor};
    for (int i = 0; i < u->n_pieces; i++) update(&x, &u->piece[i]);
}
