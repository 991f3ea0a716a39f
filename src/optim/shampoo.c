#include "optim/shampoo.h"

#include <math.h>

#include "model/touch.h"

typedef struct mt_factored_run run;
typedef struct mt_factored_place place;

/* ---- what is done to rows ---- */
static void moment(const run *x, const place *p)
{
    mt_soap_moment(mt_factored_stream(x), p->buffer[MT_FACTORED_GRAD], p->buffer[MT_FACTORED_UPDATE],
                   p->state[MT_STATE_M], p->state[MT_STATE_GRAD], x->scale, x->c->shampoo_beta1);
}
static void adam(const run *x, const place *p)
{
    const mt_config *c = x->c;
    mt_soap_adam(mt_factored_stream(x), p->state[MT_STATE_V], p->buffer[MT_FACTORED_UPDATE],
                 p->buffer[MT_FACTORED_GRAD], c->shampoo_beta1, c->shampoo_beta2, c->shampoo_graft_eps,
                 x->step + 1);
}
static void apply(const run *x, const place *p)
{
    const struct mt_tensor *t = &x->u->m->store.tensor[p->tensor];
    mt_muon_apply(mt_factored_stream(x), p->state[MT_STATE_MASTER], p->buffer[MT_FACTORED_TURNED],
                  x->c->optim_lr * t->lr_scale * x->factor, t->weight_decay, 1);
}

/* ---- whole matrices ---- */
static bool started(const run *x)
{
    return x->step + 1 >= x->c->shampoo_start;
}
static void side(const run *x, const struct mt_piece *p, enum mt_factor mean, enum mt_factor root)
{
    const struct mt_store *s = &x->u->m->store;
    const struct mt_tensor *t = &s->tensor[p->tensor];
    const mt_config *c = x->c;
    struct mt_stream *q = mt_factored_stream(x);
    mt_view ws = mt_factored_ws(x);
    const int64_t n = mt_piece_here(s, p), now = x->step + 1;
    const bool due = now == c->shampoo_start || (started(x) && now % c->shampoo_frequency == 0);
    if (!mt_factor_edge(t, mean)) return;
    if (!n) {
        mt_fresh(q, ws); /* lives begin at the same places on a rank that has none */
        return;
    }
    mt_view g = mt_factored_buffer(x, p->tensor, MT_FACTORED_GRAD, n), m = mt_factored_factor(x, p, mean);
    if (mean == MT_FACTOR_LEFT)
        mt_gram_left(q, m, g, c->shampoo_beta2);
    else
        mt_gram_right(q, m, g, c->shampoo_beta2);
    mt_eigen_basis(q, mt_factored_factor(x, p, root), m, ws, due ? 3 : 0,
                   1 - pow(c->shampoo_beta2, (double)now), c->shampoo_eps,
                   t->factor[0] && t->factor[1] ? 4 : 2);
}
static void graft(const run *x, const struct mt_piece *p)
{
    const int64_t n = mt_piece_here(&x->u->m->store, p);
    if (n)
        mt_graft(mt_factored_stream(x), mt_factored_buffer(x, p->tensor, MT_FACTORED_TURNED, n),
                 mt_factored_buffer(x, p->tensor, MT_FACTORED_UPDATE, n), started(x));
}

static void update(const run *x, const struct mt_piece *p)
{
    mt_factored_open(x);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_M));
    mt_factored_each(x, p, MT_HAS_M | MT_HAS_GRAD, moment);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_V)); /* and the factors, which go by the same number */
    side(x, p, MT_FACTOR_LEFT, MT_FACTOR_LEFT_BASIS);
    side(x, p, MT_FACTOR_RIGHT, MT_FACTOR_RIGHT_BASIS);
    mt_factored_product(x, p, MT_FACTORED_TURNED, MT_FACTORED_UPDATE,
                        (struct mt_factored_turn){false, false});
    mt_factored_each(x, p, MT_HAS_V, adam);
    graft(x, p);
    mt_touch(x->r, mt_touch_state(p->tensor, MT_STATE_MASTER));
    mt_factored_each(x, p, MT_HAS_MASTER, apply);
    mt_factored_close(x);
}

void mt_shampoo_update(const struct mt_factored *u, struct mt_rank *r, const mt_config *c, mt_view scale,
                       int64_t step, double factor)
{
    const run x = {u, r, c, scale, step, factor};
    for (int i = 0; i < u->n_pieces; i++) update(&x, &u->piece[i]);
}
