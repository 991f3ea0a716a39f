#include "ckpt/items.h"

#include <stdio.h>
#include <stdlib.h>

static void add(struct mt_ckpt_items *x, const struct mt_ctx *ctx, mt_view v, int64_t cols, bool moment,
                const char *front, const char *name)
{
    struct mt_ckpt_item *i = &x->item[x->n++];
    *i = (struct mt_ckpt_item){
        .data = mt_address(ctx, v), .rows = v.dim[v.nd - 2], .cols = cols, .moment = moment};
    snprintf(i->name, sizeof i->name, "%s%s", front, name);
}

static void add_tensor(struct mt_ckpt_items *x, const struct mt_model *m, const struct mt_ctx *ctx, int t,
                       enum mt_state what, const char *front)
{
    const struct mt_store *s = &m->store;
    mt_view all = mt_store_tensor_stack(s, t, what);
    if (!mt_view_given(all) || (what == MT_STATE_M && s->tensor[t].optimizer == MT_FROZEN)) return;
    for (int64_t i = 0; i < mt_store_parts(s, t); i++) {
        char name[96];
        mt_param_name(&s->tensor[t], i, name);
        add(x, ctx, mt_view_part(all, i, 1), s->matrix[s->tensor[t].matrix].cols, what != MT_STATE_MASTER,
            front, name);
    }
}

mt_status mt_ckpt_items_open(struct mt_ckpt_items *x, const struct mt_model *m, const struct mt_ctx *ctx,
                             mt_err *e)
{
    static const char *const front[] = {
        [MT_STATE_MASTER] = "", [MT_STATE_M] = "optim.m.", [MT_STATE_V] = "optim.v."};
    static const enum mt_state states[] = {MT_STATE_MASTER, MT_STATE_M, MT_STATE_V};
    int64_t most = m->shape.L;
    for (int t = 0; t < m->store.n_tensors; t++) most += 3 * mt_store_parts(&m->store, t);
    *x = (struct mt_ckpt_items){.item = calloc((size_t)most, sizeof *x->item)};
    MT_REQUIRE(x->item, e, MT_IO, "cannot allocate the list of %lld checkpoint tensors", (long long)most);
    for (int w = 0; w < (m->opt.inference ? 1 : 3); w++)
        for (int t = 0; t < m->store.n_tensors; t++) add_tensor(x, m, ctx, t, states[w], front[states[w]]);
    for (int l = 0; l < (int)m->shape.L; l++)
        if (mt_is_moe(&m->shape, l)) {
            char name[96];
            snprintf(name, sizeof name, "layers.%d.moe.router.bias", l);
            add(x, ctx, mt_view_as(m->layer[l].bias, m->shape.E, 1, 0), 0, false, "", name);
        }
    return MT_OK;
}

void mt_ckpt_items_close(struct mt_ckpt_items *x)
{
    free(x->item);
    *x = (struct mt_ckpt_items){0};
}
