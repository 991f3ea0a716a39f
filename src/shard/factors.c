#include "shard/factors.h"

#include <stdlib.h>

int64_t mt_factor_edge(const struct mt_tensor *t, enum mt_factor f)
{
    return t->factor[f == MT_FACTOR_RIGHT || f == MT_FACTOR_RIGHT_BASIS];
}

/* Elements of one part. */
static int64_t part_elements(const struct mt_tensor *t)
{
    return 2 * (t->factor[0] * t->factor[0] + t->factor[1] * t->factor[1]);
}
/* Parts of the tensor on the rank. */
static int64_t parts_on(const struct mt_store *s, int t, int rank)
{
    enum mt_group_id g = s->bucket[s->matrix[s->tensor[t].matrix].bucket].group;
    return mt_store_local_of(s, t, mt_mesh_piece(&s->mesh, g, mt_mesh_place(&s->mesh, g, rank).me)).parts;
}
static int64_t up(int64_t elements)
{
    return (elements + 15) / 16 * 16;
}

void mt_factors_places(struct mt_store *s)
{
    int64_t at = 0;
    for (int t = 0; t < s->n_tensors; t++) {
        struct mt_tensor *p = &s->tensor[t];
        p->factor_at = at;
        if (part_elements(p)) at += up(mt_store_local(s, t).parts * part_elements(p));
    }
}

/* What the fullest rank has. */
static int64_t most_elements(const struct mt_store *s)
{
    int n = mt_mesh_place(&s->mesh, MT_GROUP_SHARD, s->rank).n, *rank = calloc((size_t)n, sizeof *rank);
    int64_t most = 0;
    MT_ASSERT(rank);
    mt_mesh_members(&s->mesh, MT_GROUP_SHARD, s->rank, rank);
    for (int k = 0; k < n; k++) {
        int64_t sum = 0;
        for (int t = 0; t < s->n_tensors; t++)
            if (part_elements(&s->tensor[t]))
                sum += up(parts_on(s, t, rank[k]) * part_elements(&s->tensor[t]));
        if (sum > most) most = sum;
    }
    free(rank);
    return most;
}

void mt_factors_layout(struct mt_store *s, struct mt_ledger *g)
{
    s->factor_elements = most_elements(s);
    s->factor_row = -1;
    if (s->factor_elements)
        s->factor_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_MOMENT, 4 * s->factor_elements, "factors");
    mt_factors_places(s);
}

mt_view mt_store_factor(const struct mt_store *s, int tensor, enum mt_factor f)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    int64_t parts = mt_store_local(s, tensor).parts, at = t->factor_at, n = mt_factor_edge(t, f);
    if (!parts || !n) return MT_NONE;
    for (int i = 0; i < (int)f; i++) {
        int64_t edge = mt_factor_edge(t, (enum mt_factor)i);
        at += parts * edge * edge;
    }
    return mt_view_stack(mt_view_of(s->factor_row, MT_F32, 4 * at, n, n, 0), parts, 4 * n * n);
}

mt_view mt_store_factors(const struct mt_store *s)
{
    return s->factor_row < 0 ? MT_NONE : mt_view_of(s->factor_row, MT_F32, 0, s->factor_elements, 0, 0);
}
