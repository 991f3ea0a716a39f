/* fill.c: operations over all parameters: initial values, working copies, zeroes. */
#include <float.h>

#include "base/rng.h"
#include "model/model.h"
#include "shard/factors.h"

/* The same where masters live in host memory: strips of it are filled in slots. */
static void fill_strip(struct mt_rank *r, const struct mt_strip *p, uint64_t seed)
{
    const struct mt_store *s = &r->m->store;
    const struct mt_tensor *t = &s->tensor[p->tensor];
    struct mt_stream *q = &r->ctx->stream[MT_COMPUTE];
    struct mt_slot slot = mt_slot_load(&r->slots, p, MT_DEVICE_ARENA, MT_HAS_MASTER, 0);
    mt_view v = slot.state[MT_STATE_MASTER];
    char name[96];
    if (p->rows && t->init_std < 0)
        mt_fill_f32(q, v, -t->init_std - 1);
    else if (p->rows) {
        mt_param_name(t, mt_store_expert(s, p->part), name);
        mt_init_normal(q, v, (int64_t)mt_rng_key(seed, name), (p->own0 - t->row0) * v.dim[1], t->init_std);
    }
    mt_slot_done(&r->slots, p, &slot, MT_HAS_MASTER);
}

/* One expert's tensor at a time: each has its own name, hence its own stream of random numbers. */
static void fill_tensor(struct mt_rank *r, int t, uint64_t seed)
{
    const struct mt_store *s = &r->m->store;
    const struct mt_tensor *p = &s->tensor[t];
    struct mt_stream *q = &r->ctx->stream[MT_COMPUTE];
    struct mt_local here = mt_store_local(s, t);
    mt_view all = mt_store_local_state(s, t, MT_STATE_MASTER);
    if (s->bucket[s->matrix[p->matrix].bucket].host[MT_STATE_MASTER]) {
        for (int64_t i = 0; i < mt_strip_count(s, t); i++) {
            struct mt_strip strip = mt_strip_at(s, t, i);
            fill_strip(r, &strip, seed);
        }
        return;
    }
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
            if (mt_view_given(v)) mt_fill0(m->store.bucket[i].host[w] ? &r->ctx->stream[MT_HOST] : s, v);
        }
    if (mt_view_given(mt_store_factors(&m->store))) mt_fill0(s, mt_store_factors(&m->store));
}

void mt_model_tables(struct mt_rank *r)
{
    const struct mt_rope_form *f = &r->m->opt.rope;
    mt_rope_table(&r->ctx->stream[MT_COMPUTE], r->m->rope, f->theta, f->factor, f->low, f->high, f->gain);
}

static void pack(struct mt_stream *s, const struct mt_bucket *b, mt_view master, mt_view work, mt_view wire)
{
    if (work.format == MT_PACKED_NT)
        mt_weight_pack(s, work, master);
    else
        mt_weight_cast(s, work, master);
    if (!b->fp8) return;
    mt_fp8_pack(s, wire, work);
    /* A group of one reads its shard, and must read what others would have gathered. */
    if (b->members == 1) mt_fp8_unpack(s, work, wire);
}

static void pack_matrix(struct mt_stream *s, const struct mt_store *st, int i)
{
    const struct mt_bucket *b = &st->bucket[st->matrix[i].bucket];
    mt_view master, work;
    if (!mt_store_local_work(st, i, &master, &work)) return;
    pack(s, b, master, work, b->fp8 ? mt_store_local_wire(st, i) : MT_NONE);
}

static void pack_strip(struct mt_rank *r, const struct mt_strip *p, const struct mt_slot *slot)
{
    const struct mt_store *st = &r->m->store;
    const struct mt_bucket *b = &st->bucket[st->matrix[st->tensor[p->tensor].matrix].bucket];
    if (p->rows)
        pack(&r->ctx->stream[MT_COMPUTE], b, slot->master, mt_strip_work(st, p, slot->form),
             b->fp8 ? mt_strip_wire(st, p, slot->form) : MT_NONE);
}

/* Strips that were changed in host memory, or loaded there, come over to be packed. */
static void pack_from_host(struct mt_rank *r, const struct mt_strip *p)
{
    struct mt_slot slot = mt_slot_load(&r->slots, p, MT_DEVICE_ARENA, MT_HAS_MASTER, MT_HAS_MASTER);
    pack_strip(r, p, &slot);
    mt_slot_done(&r->slots, p, &slot, 0);
}

void mt_strip_end(struct mt_rank *r, const struct mt_strip *p, const struct mt_slot *slot, unsigned out)
{
    const struct mt_store *st = &r->m->store;
    bool packs = out & MT_HAS_MASTER &&
                 st->bucket[st->matrix[st->tensor[p->tensor].matrix].bucket].host[MT_STATE_MASTER];
    if (packs && slot->side == MT_DEVICE_ARENA) pack_strip(r, p, slot);
    mt_slot_done(&r->slots, p, slot, out);
    if (!packs || slot->side == MT_DEVICE_ARENA) return;
    mt_stream_wait(&r->ctx->stream[MT_H2D], mt_event_record(&r->ctx->stream[MT_HOST]));
    pack_from_host(r, p);
}

void mt_model_pack(struct mt_rank *r)
{
    const struct mt_store *st = &r->m->store;
    mt_stream_wait(&r->ctx->stream[MT_H2D],
                   mt_event_record(&r->ctx->stream[MT_D2H])); /* they may be being filled */
    for (int t = 0; t < st->n_tensors; t++) {
        if (!st->bucket[st->matrix[st->tensor[t].matrix].bucket].host[MT_STATE_MASTER]) continue;
        for (int64_t i = 0; i < mt_strip_count(st, t); i++) {
            struct mt_strip strip = mt_strip_at(st, t, i);
            pack_from_host(r, &strip);
        }
    }
    mt_model_pack_rest(r);
}

void mt_model_pack_rest(struct mt_rank *r)
{
    const struct mt_store *st = &r->m->store;
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    for (int i = 0; i < st->n_buckets; i++) {
        if (st->bucket[i].host[MT_STATE_MASTER]) continue;
        mt_view passing = mt_store_passing(st, i);
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
        if (mt_view_given(v) && !m->store.bucket[i].host[MT_STATE_GRAD]) mt_fill0(s, v);
    }
    for (int l = 0; l < (int)m->shape.L; l++)
        if (mt_is_moe(&m->shape, l)) {
            mt_fill0(s, m->layer[l].load);
            if (mt_view_given(m->layer[l].so_far)) mt_fill0(s, m->layer[l].so_far);
        }
    if (mt_view_given(m->aux)) mt_fill0(s, m->aux);
    if (m->opt.tops) mt_fill_f32(s, m->top, -FLT_MAX);
    if (mt_view_given(m->sumsq)) mt_fill0(s, m->sumsq);
    mt_fill0(s, m->loss);
    mt_fill0(s, m->valid);
}
