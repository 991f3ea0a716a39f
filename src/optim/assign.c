#include "optim/assign.h"

#include "model/param.h"

static const enum mt_optimizer optimizer_of[] = {[MT_OPTIMIZER_ADAMW] = MT_ADAMW,
                                                 [MT_OPTIMIZER_MUON] = MT_MUON,
                                                 [MT_OPTIMIZER_SOAP] = MT_SOAP,
                                                 [MT_OPTIMIZER_SHAMPOO] = MT_SHAMPOO,
                                                 [MT_OPTIMIZER_NONE] = MT_FROZEN};

/* How Muon takes the tensor. */
static struct mt_heads heads_of(const struct mt_tensor *t, const mt_config *c)
{
    const struct mt_shape shape = mt_shape_of(c);
    if (!c->muon_per_head || t->optimizer != MT_MUON) return (struct mt_heads){0, false};
    return mt_param_heads(&shape, t->kind);
}

/* Factors of what SOAP and Shampoo take; vectors, and matrices without a side that is short enough, are AdamW's. */
static mt_status factors_of(const struct mt_store *s, struct mt_tensor *t, const mt_config *c,
                            const mt_optim_group *g, int64_t i, const char *name, mt_err *e)
{
    const struct mt_matrix *m = &s->matrix[t->matrix];
    const int64_t side[] = {t->rows, m->cols};
    bool whole = s->unit[m->unit].experts || m->placement == MT_PLACED_OWNED ||
                 mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n == 1;
    const bool soap = t->optimizer == MT_SOAP;
    if (!soap && t->optimizer != MT_SHAMPOO) return MT_OK;
    for (int k = 0; k < 2; k++)
        t->factor[k] = m->cols && side[k] <= (soap ? c->soap_max_dim : c->shampoo_max_dim) ? side[k] : 0;
    if (!t->factor[0] && !t->factor[1]) t->optimizer = MT_ADAMW;
    MT_REQUIRE(
        whole || t->optimizer == MT_ADAMW, e, MT_CONFIG,
        "optim.groups[%lld] ('%s') gives '%s' to %s, which takes matrices that are whole on a rank, but "
        "this one is cut "
        "over %d ranks; add {match: \"%s\", placement: owned} to shard.groups, or give it to adamw or muon",
        (long long)i, g->match, name, soap ? "SOAP" : "Shampoo",
        mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n, name);
    return MT_OK;
}

static mt_status assign_one(struct mt_store *s, int tensor, const mt_config *c, const mt_optim_group *g,
                            int64_t n, bool *used, mt_err *e)
{
    struct mt_tensor *t = &s->tensor[tensor];
    const struct mt_matrix *m = &s->matrix[t->matrix];
    char name[96];
    mt_param_name(t, 0, name);
    for (int64_t i = 0; i < n; i++) {
        if (!mt_config_match(g[i].match, name)) continue;
        MT_REQUIRE(g[i].optimizer != MT_OPTIMIZER_MUON || m->cols, e, MT_CONFIG,
                   "optim.groups[%lld] ('%s') gives '%s' to Muon, which takes matrices only; put a pattern "
                   "with optimizer: adamw before it",
                   (long long)i, g[i].match, name);
        used[i] = true;
        t->optimizer = optimizer_of[g[i].optimizer];
        t->heads = heads_of(t, c);
        MT_TRY(factors_of(s, t, c, &g[i], i, name, e));
        t->lr_scale = g[i].lr_scale;
        t->weight_decay = g[i].weight_decay < 0 ? c->optim_weight_decay : g[i].weight_decay;
        return MT_OK;
    }
    MT_FAIL(e, MT_CONFIG, "no pattern of optim.groups matches parameter '%s'; end the list with match: \"*\"",
            name);
}

mt_status mt_optim_assign(struct mt_store *s, void *arg, mt_err *e)
{
    const mt_config *c = arg;
    bool used[MT_CONFIG_GROUPS] = {false};
    const mt_optim_group *g = c->optim_groups;
    int64_t n = c->optim_groups_count;
    for (int i = 0; i < s->n_tensors; i++) MT_TRY(assign_one(s, i, c, g, n, used, e));
    for (int64_t i = 0; i < n; i++)
        MT_REQUIRE(used[i] || g[i].optional, e, MT_CONFIG,
                   "optim.groups[%lld]: pattern '%s' takes no parameter of this model (an earlier pattern "
                   "may take them all); "
                   "remove it, or set optional: true",
                   (long long)i, g[i].match);
    return MT_OK;
}
