#include "ckpt/items.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/touch.h"
#include "shard/factors.h"

struct builder {
    struct mt_ckpt_items *x;
    const struct mt_ckpt_rank *rank;
    int n;
};

static struct mt_ckpt_item *add_item(struct builder *b, const char *front, const char *name, int64_t rows,
                                     int64_t cols, int touch)
{
    struct mt_ckpt_item *i = &b->x->item[b->x->n++];
    *i = (struct mt_ckpt_item){.rows = rows, .cols = cols, .touch = touch, .first = b->x->n_pieces};
    snprintf(i->name, sizeof i->name, "%s%s", front, name);
    return i;
}

static void add_piece(struct builder *b, struct mt_ckpt_item *i, const struct mt_ckpt_rank *r, mt_view v,
                      int64_t row0, bool copy)
{
    b->x->piece[b->x->n_pieces++] = (struct mt_ckpt_piece){
        .data = mt_address(r->ctx, v), .row0 = row0, .rows = v.dim[1], .rank = r->ctx->rank, .copy = copy};
    i->n++;
}

static int by_row(const void *a, const void *b)
{
    const struct mt_ckpt_piece *x = a, *y = b;
    return (x->row0 > y->row0) - (x->row0 < y->row0);
}
void mt_ckpt_item_sort(struct mt_ckpt_items *x, int64_t i)
{
    qsort(x->piece + x->item[i].first, (size_t)x->item[i].n, sizeof *x->piece, by_row);
}

/* One expert of a tensor, or all of a dense one, from whichever ranks hold it. */
static void add_part(struct builder *b, int t, int64_t expert, enum mt_state what, const char *front)
{
    const struct mt_store *s0 = &b->rank[0].m->store;
    const struct mt_tensor *p = &s0->tensor[t];
    char name[96];
    mt_param_name(p, expert, name);
    struct mt_ckpt_item *i =
        add_item(b, front, name, p->rows, s0->matrix[p->matrix].cols, mt_touch_state(t, what));
    i->moment = what != MT_STATE_MASTER;
    bool experts = s0->unit[s0->matrix[p->matrix].unit].experts;
    for (int k = 0; k < b->n; k++) {
        const struct mt_store *s = &b->rank[k].m->store;
        struct mt_local here = mt_store_local(s, t);
        int64_t part = experts ? expert - mt_store_expert(s, here.part0) : 0;
        if (!here.parts || part < 0 || part >= here.parts) continue;
        mt_view v = mt_view_part(mt_store_local_state(s, t, what), part, 1);
        v = mt_view_as(v, v.dim[1], v.dim[2], 0);
        v = mt_view_as(v, 1, v.dim[0], v.dim[1]);
        add_piece(b, i, &b->rank[k], v, here.row0, b->rank[k].ctx->rank >= s->mesh.world / s->mesh.replicas);
    }
    mt_ckpt_item_sort(b->x, b->x->n - 1);
}

static bool has_state(const struct mt_store *s, int t, enum mt_state what)
{
    return mt_optimizer_has(s->tensor[t].optimizer, what);
}

/* A factor of one expert, or of a dense matrix, from the rank that has it, and its copies. */
static void add_factor(struct builder *b, int t, int64_t expert, enum mt_factor f, const char *front)
{
    const struct mt_store *s0 = &b->rank[0].m->store;
    int64_t edge = mt_factor_edge(&s0->tensor[t], f);
    char name[96];
    mt_param_name(&s0->tensor[t], expert, name);
    struct mt_ckpt_item *i = add_item(b, front, name, edge, edge, mt_touch_state(t, MT_STATE_V));
    i->moment = true;
    bool experts = s0->unit[s0->matrix[s0->tensor[t].matrix].unit].experts;
    for (int k = 0; k < b->n; k++) {
        const struct mt_store *s = &b->rank[k].m->store;
        struct mt_local here = mt_store_local(s, t);
        int64_t part = experts ? expert - mt_store_expert(s, here.part0) : 0;
        if (!here.parts || part < 0 || part >= here.parts) continue;
        add_piece(b, i, &b->rank[k], mt_view_part(mt_store_factor(s, t, f), part, 1), 0,
                  b->rank[k].ctx->rank >= s->mesh.world / s->mesh.replicas);
    }
}
static void add_factors(struct builder *b)
{
    static const char *const front[] = {"optim.left.", "optim.right.", "optim.left_basis.",
                                        "optim.right_basis."};
    const struct mt_store *s = &b->rank[0].m->store;
    for (int f = 0; f < MT_N_FACTORS; f++)
        for (int t = 0; t < s->n_tensors; t++) {
            int64_t parts = s->unit[s->matrix[s->tensor[t].matrix].unit].experts ? b->rank[0].m->shape.E : 1;
            for (int64_t i = 0; i < parts && mt_factor_edge(&s->tensor[t], (enum mt_factor)f); i++)
                add_factor(b, t, i, (enum mt_factor)f, front[f]);
        }
}

static void add_biases(struct builder *b)
{
    const struct mt_shape *d = &b->rank[0].m->shape;
    for (int l = 0; l < (int)d->L; l++) {
        char name[96];
        if (!mt_is_moe(d, l)) continue;
        snprintf(name, sizeof name, "layers.%d.moe.router.bias", l);
        struct mt_ckpt_item *i = add_item(b, "", name, d->E, 0, mt_touch_bias(b->rank[0].m, l));
        for (int k = 0; k < b->n; k++)
            add_piece(b, i, &b->rank[k], mt_view_as(b->rank[k].m->layer[l].bias, 1, d->E, 1), 0,
                      b->rank[k].ctx->rank > 0);
    }
}

mt_status mt_ckpt_items_open(struct mt_ckpt_items *x, const struct mt_ckpt_rank *rank, int n, mt_err *e)
{
    static const char *const front[] = {
        [MT_STATE_MASTER] = "", [MT_STATE_M] = "optim.m.", [MT_STATE_V] = "optim.v."};
    static const enum mt_state states[] = {MT_STATE_MASTER, MT_STATE_M, MT_STATE_V};
    const struct mt_model *m = rank[0].m;
    const struct mt_store *s = &m->store;
    struct builder b = {x, rank, n};
    int64_t most = m->shape.L;
    const struct mt_ctx *reach = rank[0].ctx->dev->copy ? rank[0].ctx : NULL; /* a process has one device */
    for (int t = 0; t < s->n_tensors; t++)
        most += (3 + MT_N_FACTORS) * (s->unit[s->matrix[s->tensor[t].matrix].unit].experts ? m->shape.E : 1);
    *x = (struct mt_ckpt_items){.reach = reach,
                                .item = calloc((size_t)most, sizeof *x->item),
                                .piece = calloc((size_t)(most * n), sizeof *x->piece)};
    MT_REQUIRE(x->item && x->piece, e, MT_IO, "cannot allocate the list of %lld checkpoint tensors",
               (long long)most);
    for (int w = 0; w < (m->opt.inference ? 1 : 3); w++)
        for (int t = 0; t < s->n_tensors; t++) {
            int64_t parts = s->unit[s->matrix[s->tensor[t].matrix].unit].experts ? m->shape.E : 1;
            for (int64_t i = 0; i < parts && has_state(s, t, states[w]); i++)
                add_part(&b, t, i, states[w], front[states[w]]);
        }
    add_factors(&b);
    add_biases(&b);
    return MT_OK;
}

void mt_ckpt_items_close(struct mt_ckpt_items *x)
{
    free(x->item);
    free(x->piece);
    *x = (struct mt_ckpt_items){0};
}
