#include "optim/optim.h"

mt_status mt_optim_init(struct mt_optim *o, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                        mt_err *e)
{
    const struct mt_store *s = &m->store;
    int64_t shard = mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n;
    *o = (struct mt_optim){.m = m};
    MT_TRY(mt_muon_init(&o->muon, m, c, g, e));
    o->sumsq = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq");
    o->sumsq_all =
        mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, shard, MT_SUMSQ_WORDS, 0, "sumsq.all");
    o->sumsq_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq.sum");
    o->scale = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, 1, 0, 0, "clip.scale");
    o->norm = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, 1, 0, 0, "clip.norm");
    return MT_OK;
}

void mt_optim_release(struct mt_optim *o)
{
    mt_muon_release(&o->muon);
    *o = (struct mt_optim){0};
}

uint64_t mt_optim_hash(const struct mt_optim *o)
{
    return mt_muon_hash(&o->muon);
}

void mt_optim_norm(const struct mt_optim *o, struct mt_rank *r, double max_norm)
{
    const struct mt_store *st = &o->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_fill0(s, o->sumsq);
    for (int i = 0; i < st->n_buckets; i++) {
        mt_view g = mt_store_piece(st, i, MT_STATE_GRAD);
        if (mt_view_given(g)) mt_sumsq(s, o->sumsq, g);
    }
    mt_gather(s, o->sumsq_all, o->sumsq, MT_GROUP_SHARD, o->sumsq_all.dim[0], 8 * MT_SUMSQ_WORDS);
    mt_sum_parts_i64(s, o->sumsq_sum, o->sumsq_all);
    mt_clip(s, o->scale, o->norm, o->sumsq_sum, max_norm);
}

static mt_view flat(mt_view v)
{
    return mt_view_as(v, mt_view_count(v), 0, 0);
}

static void adamw_tensor(const struct mt_optim *o, struct mt_rank *r, int t, const mt_config *c, int64_t step,
                         double factor)
{
    const struct mt_store *st = &o->m->store;
    const struct mt_tensor *p = &st->tensor[t];
    mt_view w = mt_store_local_state(st, t, MT_STATE_MASTER), m = mt_store_local_state(st, t, MT_STATE_M),
            v = mt_store_local_state(st, t, MT_STATE_V), g = mt_store_local_state(st, t, MT_STATE_GRAD);
    for (int64_t i = 0, parts = mt_store_local(st, t).parts; i < parts; i++)
        mt_adamw(&r->ctx->stream[MT_COMPUTE], flat(mt_view_part(w, i, 1)), flat(mt_view_part(m, i, 1)),
                 flat(mt_view_part(v, i, 1)), flat(mt_view_part(g, i, 1)), o->scale,
                 c->optim_lr * p->lr_scale * factor, p->weight_decay, c->adamw_beta1, c->adamw_beta2,
                 c->adamw_eps, step + 1);
}

void mt_optim_update(const struct mt_optim *o, struct mt_rank *r, const mt_config *c, int64_t step,
                     double factor)
{
    for (int t = 0; t < o->m->store.n_tensors; t++)
        if (o->m->store.tensor[t].optimizer == MT_ADAMW) adamw_tensor(o, r, t, c, step, factor);
    mt_muon_update(&o->muon, r, c, o->scale, factor);
}
