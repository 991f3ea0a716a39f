/* fill.c: operations over all parameters: initial values, working copies, zeroes. */
#include "base/rng.h"
#include "model/model.h"

/* One expert's tensor at a time: each has its own name, hence its own stream of random numbers. */
static void fill_tensor(struct mt_rank *r, int t, uint64_t seed)
{
    const struct mt_store *s = &r->m->store;
    const struct mt_tensor *p = &s->tensor[t];
    struct mt_stream *q = &r->ctx->stream[MT_COMPUTE];
    struct mt_local here = mt_store_local(s, t);
    mt_view all = mt_store_local_state(s, t, MT_STATE_MASTER);
    for (int64_t i = 0; i < here.parts; i++) {
        mt_view v = mt_view_part(all, i, 1);
        char name[96];
        mt_param_name(p, mt_store_expert(s, here.part0 + i), name);
        if (p->init_std < 0)
            mt_fill_f32(q, v, -p->init_std - 1);
        else
            mt_init_normal(q, v, (int64_t)mt_rng_key(seed, name), here.row0 * v.dim[2], p->init_std);
    }
}

void mt_model_fill(struct mt_rank *r, uint64_t seed)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    for (int t = 0; t < m->store.n_tensors; t++) fill_tensor(r, t, seed);
    for (int l = 0; l < (int)m->shape.L; l++)
        if (mt_is_moe(&m->shape, l)) mt_fill0(s, m->layer[l].bias);
    if (m->opt.inference) return;
    for (int i = 0; i < m->store.n_buckets; i++)
        for (int w = MT_STATE_M; w <= MT_STATE_V; w++) {
            mt_view v = mt_store_piece(&m->store, i, w);
            if (mt_view_given(v)) mt_fill0(s, v);
        }
}

void mt_model_tables(struct mt_rank *r)
{
    mt_rope_table(&r->ctx->stream[MT_COMPUTE], r->m->rope, r->m->opt.theta);
}

static void pack_matrix(struct mt_stream *s, const struct mt_store *st, int i)
{
    const struct mt_bucket *b = &st->bucket[st->matrix[i].bucket];
    mt_view master, work;
    if (!mt_store_local_work(st, i, &master, &work)) return;
    if (st->matrix[i].form == MT_FORM_PACKED)
        mt_weight_pack(s, work, master);
    else
        mt_weight_cast(s, work, master);
    if (!b->fp8) return;
    mt_fp8_pack(s, mt_store_local_wire(st, i), work);
    /* A group of one reads its shard, and must read what others would have gathered. */
    if (b->members == 1) mt_fp8_unpack(s, work, mt_store_local_wire(st, i));
}

void mt_model_pack(struct mt_rank *r)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    for (int i = 0; i < st->n_buckets; i++) {
        mt_view passing = st->bucket[i].elements ? mt_store_passing(st, i) : MT_NONE;
        if (mt_view_given(passing)) mt_fresh(s, passing);
        for (int k = 0; k < st->n_matrices; k++)
            if (st->matrix[k].bucket == i) pack_matrix(s, st, k);
        if (mt_view_given(passing)) mt_keep(s, passing);
    }
}

void mt_model_zero(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    for (int i = 0; i < m->store.n_buckets; i++) {
        mt_view v = mt_store_piece(&m->store, i, MT_STATE_GRAD);
        if (mt_view_given(v)) mt_fill0(s, v);
    }
    for (int l = 0; l < (int)m->shape.L; l++)
        if (mt_is_moe(&m->shape, l)) mt_fill0(s, m->layer[l].load);
    mt_fill0(s, m->loss);
    mt_fill0(s, m->valid);
}
