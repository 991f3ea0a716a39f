#include "optim/optim.h"

#include "model/touch.h"
#include "optim/qk_clip.h"

mt_status mt_optim_init(struct mt_optim *o, struct mt_model *m, const mt_config *c, struct mt_ledger *g,
                        mt_err *e)
{
    const struct mt_store *s = &m->store;
    int64_t shard = mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n;
    *o = (struct mt_optim){.m = m};
    MT_TRY(mt_muon_init(&o->muon, m, c, g, e));
    MT_TRY(mt_factored_init(&o->soap, m, MT_SOAP, "soap", c->soap_batch_bytes, g, e));
    MT_TRY(mt_factored_init(&o->shampoo, m, MT_SHAMPOO, "shampoo", c->shampoo_batch_bytes, g, e));
    o->sumsq = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq");
    o->sumsq_all =
        mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, shard, MT_SUMSQ_WORDS, 0, "sumsq.all");
    o->sumsq_sum = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_I64, MT_SUMSQ_WORDS, 0, 0, "sumsq.sum");
    o->scale[MT_DEVICE_ARENA] =
        mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F32, 1, 0, 0, "clip.scale");
    o->scale[MT_HOST_ARENA] = MT_NONE;
    if (s->offload.host_compute)
        o->scale[MT_HOST_ARENA] =
            mt_tensor_add(g, MT_HOST_ARENA, MT_ROW_TABLE, MT_F32, 1, 0, 0, "host.clip.scale");
    o->norm = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_TABLE, MT_F64, 1, 0, 0, "clip.norm");
    return MT_OK;
}

void mt_optim_release(struct mt_optim *o)
{
    mt_muon_release(&o->muon);
    mt_factored_release(&o->soap);
    mt_factored_release(&o->shampoo);
    *o = (struct mt_optim){0};
}

uint64_t mt_optim_hash(const struct mt_optim *o)
{
    return mt_factored_hash(&o->shampoo, mt_factored_hash(&o->soap, mt_muon_hash(&o->muon)));
}

void mt_optim_norm(const struct mt_optim *o, struct mt_rank *r, double max_norm)
{
    const struct mt_store *st = &o->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    if (mt_view_given(o->m->sumsq))
        mt_sum_parts_i64(s, o->sumsq, o->m->sumsq); /* of those that have left for host memory */
    else
        mt_fill0(s, o->sumsq);
    for (int i = 0; i < st->n_buckets; i++) {
        mt_view g = mt_store_piece(st, i, MT_STATE_GRAD);
        if (mt_view_given(g) && !st->bucket[i].host[MT_STATE_GRAD]) mt_sumsq(s, o->sumsq, g);
    }
    mt_gather(s, o->sumsq_all, o->sumsq, MT_GROUP_SHARD, o->sumsq_all.dim[0], 8 * MT_SUMSQ_WORDS);
    mt_sum_parts_i64(s, o->sumsq_sum, o->sumsq_all);
    mt_clip(s, o->scale[MT_DEVICE_ARENA], o->norm, o->sumsq_sum, max_norm);
}

static mt_view flat(mt_view v)
{
    return mt_view_as(v, mt_view_count(v), 0, 0);
}

struct update {
    const struct mt_optim *o;
    struct mt_rank *r;
    const mt_config *c;
    int64_t step;
    double factor;
};

/* state: by mt_state, of the same rows of a tensor. */
static void adamw(const struct update *x, enum mt_arena side, int t, const mt_view *state)
{
    const struct mt_tensor *p = &x->o->m->store.tensor[t];
    const mt_config *c = x->c;
    mt_adamw(mt_slots_run(&x->r->slots, side), flat(state[MT_STATE_MASTER]), flat(state[MT_STATE_M]),
             flat(state[MT_STATE_V]), flat(state[MT_STATE_GRAD]), x->o->scale[side],
             c->optim_lr * p->lr_scale * x->factor, p->weight_decay, c->adamw_beta1, c->adamw_beta2,
             c->adamw_eps, x->step + 1);
}

static void adamw_strips(const struct update *x, int t)
{
    const struct mt_store *st = &x->o->m->store;
    const unsigned changed = MT_HAS_MASTER | MT_HAS_M | MT_HAS_V, all = changed | MT_HAS_GRAD;
    enum mt_arena side = mt_strip_side(st, t);
    for (int64_t i = 0; i < mt_strip_count(st, t); i++) {
        struct mt_strip p = mt_strip_at(st, t, i);
        struct mt_slot slot = mt_slot_load(&x->r->slots, &p, side, all, all);
        if (p.rows) adamw(x, side, t, slot.state);
        mt_strip_end(x->r, &p, &slot, changed);
    }
}

static void adamw_tensor(const struct update *x, int t)
{
    const struct mt_store *st = &x->o->m->store;
    mt_touch(x->r, mt_touch_state(t, MT_STATE_MASTER));
    mt_touch(x->r, mt_touch_state(t, MT_STATE_M));
    mt_touch(x->r, mt_touch_state(t, MT_STATE_V));
    if (mt_bucket_offloads(st, st->matrix[st->tensor[t].matrix].bucket)) {
        adamw_strips(x, t);
        return;
    }
    for (int64_t i = 0, parts = mt_store_local(st, t).parts; i < parts; i++) {
        mt_view state[MT_N_STATES];
        for (int w = 0; w < MT_N_STATES; w++)
            state[w] = mt_view_part(mt_store_local_state(st, t, (enum mt_state)w), i, 1);
        adamw(x, MT_DEVICE_ARENA, t, state);
    }
}

/* What the host needs before it can begin. */
static void scale_to_host(const struct mt_optim *o, struct mt_rank *r)
{
    struct mt_stream *out = &r->ctx->stream[MT_D2H];
    if (!mt_view_given(o->scale[MT_HOST_ARENA])) return;
    mt_stream_wait(out, mt_event_record(&r->ctx->stream[MT_COMPUTE]));
    mt_copy_d2h(out, o->scale[MT_HOST_ARENA], o->scale[MT_DEVICE_ARENA]);
}

void mt_optim_update(const struct mt_optim *o, struct mt_rank *r, const mt_config *c, int64_t step,
                     double factor)
{
    const struct update x = {o, r, c, step, factor};
    scale_to_host(o, r);
    mt_slots_open(&r->slots);
    for (int t = 0; t < o->m->store.n_tensors; t++)
        if (o->m->store.tensor[t].optimizer == MT_ADAMW) adamw_tensor(&x, t);
    mt_soap_update(&o->soap, r, c, o->scale[MT_DEVICE_ARENA], step, factor);
    mt_shampoo_update(&o->shampoo, r, c, o->scale[MT_DEVICE_ARENA], step, factor);
    mt_muon_update(&o->muon, r, c, o->scale, factor);
    mt_qk_clip_update(r, c->optim_qk_clip);
    mt_slots_close(&r->slots);
}
