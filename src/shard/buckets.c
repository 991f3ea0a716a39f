#include "shard/buckets.h"

#include <stdlib.h>

#include "device/op.h"
#include "shard/owners.h"

/* ---- buckets ---- */
static bool as_fp8(const struct mt_store *s, const struct mt_matrix *m)
{
    const struct mt_unit *u = &s->unit[m->unit];
    if (m->form != MT_FORM_PACKED || u->layer < 0) return false;
    return m->gather == MT_GATHERED_FP8 ||
           (m->gather == MT_GATHERED_AS_ALL && (u->experts ? s->formats.fp8_experts : s->formats.fp8_dense));
}

static void open_bucket(struct mt_store *s, const struct mt_matrix *m)
{
    struct mt_unit *u = &s->unit[m->unit];
    enum mt_group_id group = u->experts ? MT_GROUP_SLOT : MT_GROUP_SHARD;
    struct mt_place p = mt_mesh_place(&s->mesh, group, s->rank);
    s->bucket[s->n_buckets++] = (struct mt_bucket){
        .unit = m->unit,
        .n = u->experts ? u->n_experts : 1,
        .group = group,
        .members = p.n,
        .me = mt_mesh_piece(&s->mesh, group, p.me),
        .near = mt_mesh_near(&s->mesh, group),
        .f32 = m->form == MT_FORM_F32,
        .placement = m->placement,
        .dealt = m->placement == MT_PLACED_OWNED && !u->experts && p.n > 1,
        .shared = u->experts ? u->n_experts % p.n : m->placement == MT_PLACED_OWNED && p.n > 1,
        .fp8 = as_fp8(s, m),
        .grad_wire = m->form == MT_FORM_F32 ? MT_F32 : s->formats.reduce,
        .master_cut = {-1, -1, -1},
        .work_cut = {-1, -1, -1},
        .work_row = -1,
        .full_row = {-1, -1},
        .grad_row = -1,
        .staging_row = -1,
        .grad_cut = {-1, -1, -1},
        .acc_row = -1,
        .grad_wire_row = -1,
        .node_staging_row = -1,
        .wire_cut = {-1, -1, -1},
        .wire_row = -1,
        .wire_full_row = -1,
        .region_row = -1,
        .host_row = -1};
    u->n_buckets++;
}

static int bucket_for(struct mt_store *s, const struct mt_matrix *m)
{
    const struct mt_unit *u = &s->unit[m->unit];
    int i = u->bucket;
    for (; i < s->n_buckets; i++) {
        const struct mt_bucket *b = &s->bucket[i];
        if (b->f32 == (m->form == MT_FORM_F32) && b->placement == m->placement && b->fp8 == as_fp8(s, m))
            return i;
    }
    MT_ASSERT(u->n_buckets < MT_UNIT_BUCKETS);
    open_bucket(s, m);
    return i;
}

static void form(struct mt_store *s)
{
    s->bucket = calloc((size_t)s->n_matrices + 1, sizeof *s->bucket);
    MT_ASSERT(s->bucket);
    for (int i = 0, first = 0, end; i < s->n_units; i++, first = end) {
        s->unit[i].bucket = s->n_buckets;
        for (end = first; end < s->n_matrices && s->matrix[end].unit == i;) end++;
        for (int f32 = 0; f32 < 2; f32++)
            for (int k = first; k < end; k++)
                if ((s->matrix[k].form == MT_FORM_F32) == f32)
                    s->matrix[k].bucket = bucket_for(s, &s->matrix[k]);
    }
}

/* ---- owners ---- */
/* Iterations of one step, and f32 masters, of one part. */
static struct mt_load load_of(const struct mt_store *s, int t)
{
    const struct mt_blocks block = mt_store_blocks(s, t);
    int64_t dim[MT_LETTERS] = {0}, bytes[MT_MAX_ARGS] = {0};
    union mt_scalar scalar[MT_MAX_SCALARS] = {{.i = 1}};
    dim['B' - 'A'] = block.n;
    dim['R' - 'A'] = block.rows;
    dim['C' - 'A'] = block.cols;
    bool muon = s->tensor[t].optimizer == MT_MUON;
    return (struct mt_load){muon ? mt_op_info[MT_OP_newton_schulz].flops(dim, bytes, scalar) : 0,
                            4 * block.n * block.rows * block.cols};
}

static void add(struct mt_load *sum, const struct mt_load *one, int64_t times)
{
    sum->flops += (double)times * one->flops;
    sum->bytes += times * one->bytes;
}

/* What the ranks of a replica have before: their experts. */
static void load_experts(const struct mt_store *s, struct mt_load *load, int ranks)
{
    int *rank = calloc((size_t)ranks, sizeof *rank);
    MT_ASSERT(rank);
    mt_mesh_members(&s->mesh, MT_GROUP_SHARD, s->rank, rank);
    for (int t = 0; t < s->n_tensors; t++) {
        const struct mt_unit *u = &s->unit[s->matrix[s->tensor[t].matrix].unit];
        if (!u->experts) continue;
        struct mt_load one = load_of(s, t);
        for (int i = 0; i < ranks; i++) {
            struct mt_place slot = mt_mesh_place(&s->mesh, MT_GROUP_SLOT, rank[i]);
            int64_t piece = mt_mesh_piece(&s->mesh, MT_GROUP_SLOT, slot.me),
                    first = mt_owners_turn(u->n_experts, slot.n, u->layer, piece);
            add(&load[i], &one, mt_owners_turn(u->n_experts, slot.n, u->layer, piece + 1) - first);
        }
    }
    free(rank);
}

static void deal(struct mt_store *s)
{
    int ranks = mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n, n = 0;
    size_t most = (size_t)s->n_matrices + 1;
    struct mt_load *load = calloc((size_t)ranks, sizeof *load), *item = calloc(most, sizeof *item);
    int *owner = calloc(most, sizeof *owner), *matrix = calloc(most, sizeof *matrix);
    MT_ASSERT(load && item && owner && matrix);
    for (int i = 0; i < s->n_matrices; i++)
        if (s->bucket[s->matrix[i].bucket].dealt) matrix[n++] = i;
    if (n) load_experts(s, load, ranks);
    for (int t = 0, i = 0; t < s->n_tensors && n; t++) {
        while (i < n && matrix[i] < s->tensor[t].matrix) i++;
        struct mt_load one = load_of(s, t);
        if (i < n && matrix[i] == s->tensor[t].matrix) add(&item[i], &one, 1);
    }
    mt_owners_assign(owner, load, ranks, item, n);
    for (int i = 0; i < n; i++) {
        s->matrix[matrix[i]].owner = owner[i];
        s->matrix[matrix[i]].piece = mt_mesh_piece(&s->mesh, MT_GROUP_SHARD, owner[i]);
    }
    free(load);
    free(item);
    free(owner);
    free(matrix);
}

void mt_store_form_buckets(struct mt_store *s)
{
    form(s);
    deal(s);
}
