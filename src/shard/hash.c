/* hash.c: what all ranks must agree on in how parameters are stored. */
#include "base/hash.h"
#include "shard/store.h"

static uint64_t hash_bucket(uint64_t h, const struct mt_bucket *b)
{
    const int64_t x[] = {b->unit,      b->n,       b->elements,   b->work_bytes, b->second,
                         b->group,     b->members, b->near,       b->piece,      b->work_piece,
                         b->grad_wire, b->fp8,     b->wire_bytes, b->f32,        b->placement};
    h = mt_hash_ints(h, x, sizeof x / sizeof *x);
    if (b->edge) h = mt_hash_ints(h, b->edge, b->members + 1);
    if (b->wire_edge) h = mt_hash_ints(h, b->wire_edge, b->members + 1);
    return b->work_edge ? mt_hash_ints(h, b->work_edge, b->members + 1) : h;
}
static uint64_t hash_matrix(uint64_t h, const struct mt_matrix *m)
{
    const int64_t x[] = {m->unit, m->bucket, m->kind,     m->layer,    m->form, m->rows,
                         m->cols, m->off,    m->work_off, m->wire_off, m->owner};
    return mt_hash_ints(h, x, sizeof x / sizeof *x);
}
static uint64_t hash_tensor(uint64_t h, const struct mt_tensor *t)
{
    const int64_t x[] = {t->matrix,    t->kind,    t->layer,         t->row0,      t->rows,
                         t->optimizer, t->heads.n, t->heads.columns, t->factor[0], t->factor[1]};
    return mt_hash_ints(h, x, sizeof x / sizeof *x);
}

uint64_t mt_store_hash(const struct mt_store *s)
{
    const struct mt_offload *o = &s->offload;
    const int64_t x[] = {s->dtype,
                         s->mesh.world,
                         s->mesh.replicas,
                         s->mesh.ep,
                         s->n_units,
                         o->host[MT_STATE_MASTER],
                         o->host[MT_STATE_GRAD],
                         o->host[MT_STATE_M],
                         o->host_compute,
                         o->slots,
                         o->slot_bytes};
    uint64_t h = mt_hash_ints(1, x, sizeof x / sizeof *x);
    for (int i = 0; i < s->n_buckets; i++) h = hash_bucket(h, &s->bucket[i]);
    for (int i = 0; i < s->n_matrices; i++) h = hash_matrix(h, &s->matrix[i]);
    for (int i = 0; i < s->n_tensors; i++) h = hash_tensor(h, &s->tensor[i]);
    return mt_hash_ints(h, (const int64_t[]){s->n_cuts},
                        1); /* a rail's cuts are its own; all are made from the edges */
}
