/* place.c: the patterns of shard.groups applied to the parameters of a model. */
#include "model/param.h"

static const enum mt_placement placement_of[] = {[MT_PLACEMENT_AUTO] = MT_PLACED_FLAT,
                                                 [MT_PLACEMENT_FLAT] = MT_PLACED_FLAT,
                                                 [MT_PLACEMENT_BLOCK] = MT_PLACED_BLOCK,
                                                 [MT_PLACEMENT_OWNED] = MT_PLACED_OWNED};
static const enum mt_gathered gathered_of[] = {[MT_GATHER_AUTO] = MT_GATHERED_AS_ALL,
                                               [MT_GATHER_F32] = MT_GATHERED_WORK,
                                               [MT_GATHER_BF16] = MT_GATHERED_WORK,
                                               [MT_GATHER_FP8] = MT_GATHERED_FP8};

static mt_status check_placement(const struct mt_store *s, const struct mt_matrix *m, const mt_shard_group *g,
                                 int64_t i, const char *name, mt_err *e)
{
    bool experts = s->unit[m->unit].experts;
    MT_REQUIRE(!experts || g->placement == MT_PLACEMENT_AUTO || g->placement == MT_PLACEMENT_OWNED, e,
               MT_CONFIG,
               "shard.groups[%lld] ('%s') places '%s' %s, but a routed expert is always owned, whole; set "
               "placement: owned, or leave it out",
               (long long)i, g->match, name, mt_choices_placement[g->placement]);
    return MT_OK;
}

static mt_status check_gather(const struct mt_store *s, const struct mt_matrix *m, const mt_shard_group *g,
                              int64_t i, const char *name, mt_err *e)
{
    mt_dtype as_is = m->form == MT_FORM_F32 ? MT_F32 : s->dtype;
    MT_REQUIRE(g->gather != MT_GATHER_FP8 || (m->form == MT_FORM_PACKED && m->layer >= 0), e, MT_CONFIG,
               "shard.groups[%lld] ('%s') gathers '%s' as fp8, which only matrices of blocks can be; give a "
               "narrower pattern, or one for this parameter before it",
               (long long)i, g->match, name);
    MT_REQUIRE(
        g->gather == MT_GATHER_AUTO || g->gather == MT_GATHER_FP8 ||
            g->gather == (as_is == MT_F32 ? MT_GATHER_F32 : MT_GATHER_BF16),
        e, MT_CONFIG,
        "shard.groups[%lld] ('%s') gathers '%s' as %s, but what is gathered of it is %s; set gather: auto",
        (long long)i, g->match, name, mt_choices_gather[g->gather], mt_choices_dtype[as_is]);
    return MT_OK;
}

/* g NULL: no pattern takes it. */
static mt_status place(struct mt_store *s, int tensor, const mt_shard_group *g, int64_t i, const char *name,
                       mt_err *e)
{
    struct mt_matrix *m = &s->matrix[s->tensor[tensor].matrix];
    bool experts = s->unit[m->unit].experts, first = s->tensor[tensor].row0 == 0;
    enum mt_placement placement = experts ? MT_PLACED_OWNED : MT_PLACED_FLAT;
    enum mt_gathered gather = MT_GATHERED_AS_ALL;
    if (g) {
        MT_TRY(check_placement(s, m, g, i, name, e));
        MT_TRY(check_gather(s, m, g, i, name, e));
        if (!experts) placement = placement_of[g->placement];
        gather = gathered_of[g->gather];
    }
    MT_REQUIRE(first || (m->placement == placement && m->gather == gather), e, MT_CONFIG,
               "shard.groups: '%s' is one matrix with the parameter before it (gate and up), which lies and "
               "travels as one; give both the same placement and gather",
               name);
    m->placement = placement;
    m->gather = gather;
    return MT_OK;
}

mt_status mt_params_place(struct mt_store *s, const mt_shard_group *groups, int64_t n, mt_err *e)
{
    bool used[MT_CONFIG_GROUPS] = {false};
    MT_ASSERT(n <= MT_CONFIG_GROUPS);
    for (int t = 0; t < s->n_tensors; t++) {
        char name[96];
        int64_t i = 0;
        mt_param_name(&s->tensor[t], 0, name);
        while (i < n && !mt_config_match(groups[i].match, name)) i++;
        if (i < n) used[i] = true;
        MT_TRY(place(s, t, i < n ? &groups[i] : NULL, i, name, e));
    }
    for (int64_t i = 0; i < n; i++)
        MT_REQUIRE(used[i] || groups[i].optional, e, MT_CONFIG,
                   "shard.groups[%lld]: pattern '%s' takes no parameter of this model (an earlier pattern "
                   "may take them "
                   "all); remove it, or set optional: true",
                   (long long)i, groups[i].match);
    return MT_OK;
}
