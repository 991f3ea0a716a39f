/* shared.c: the rows that buckets with uneven pieces share. */
#include <stdlib.h>

#include "shard/buckets.h"

/* A row being filled: what each member has in it so far. */
struct filling {
    int64_t *end;
    int members;
    int64_t align;
};
static void filling_open(struct filling *x, const struct mt_store *s, bool experts, int64_t align)
{
    int n = mt_mesh_place(&s->mesh, experts ? MT_GROUP_SLOT : MT_GROUP_SHARD, s->rank).n;
    *x = (struct filling){calloc((size_t)n, sizeof *x->end), n, align};
    MT_ASSERT(x->end);
}
/* Every member's piece behind what it has; returns where member `me`'s begins. */
static int64_t filling_add(struct filling *x, const int64_t *edge, int me)
{
    int64_t mine = x->end[me];
    for (int k = 0; k < x->members; k++)
        x->end[k] += (edge[k + 1] - edge[k] + x->align - 1) / x->align * x->align;
    return mine;
}
/* What the fullest member has. */
static int64_t filling_most(const struct filling *x)
{
    int64_t most = 0;
    for (int k = 0; k < x->members; k++)
        if (x->end[k] > most) most = x->end[k];
    return most;
}

static bool shares(const struct mt_store *s, const struct mt_bucket *b, bool experts)
{
    return b->shared && s->unit[b->unit].experts == experts;
}

/* Places in the row of states of those with a working copy, whose state may be in host memory, or of those without. Buckets with
 * second moments come first, so that the row of those ends with them. most: elements with second moments; all. */
static void state_places(struct mt_store *s, bool experts, bool work, int64_t most[2])
{
    struct filling x;
    filling_open(&x, s, experts, s->target->align / 4);
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < s->n_buckets; i++) {
            struct mt_bucket *b = &s->bucket[i];
            if (shares(s, b, experts) && !b->f32 == work && b->second == !last)
                b->at = filling_add(&x, b->edge, b->me);
        }
        most[last] = filling_most(&x);
    }
    free(x.end);
}
static void states(struct mt_store *s, struct mt_ledger *g, bool inference, bool experts, bool work)
{
    int64_t most[2];
    state_places(s, experts, work, most);
    for (int w = 0; w < MT_N_STATES; w++) {
        int64_t elements = most[w != MT_STATE_V];
        bool keep = elements && (!inference || w == MT_STATE_MASTER);
        enum mt_arena arena = work && s->offload.host[w] ? MT_HOST_ARENA : MT_DEVICE_ARENA;
        int32_t row = keep ? mt_row_add(g, arena, mt_state_rows[w].row_class, 4 * elements, "%s.%s%s",
                                        mt_state_rows[w].name, experts ? "experts" : "owned",
                                        work ? "" : ".f32")
                           : -1;
        for (int i = 0; i < s->n_buckets; i++) {
            struct mt_bucket *b = &s->bucket[i];
            if (shares(s, b, experts) && !b->f32 == work)
                b->row[w] = w == MT_STATE_V && !b->second ? -1 : row;
        }
    }
}

/* Places in the row of what stays of working copies, or of their fp8 forms; returns its bytes. */
static int64_t weight_places(struct mt_store *s, bool experts, bool fp8)
{
    struct filling x;
    filling_open(&x, s, experts, s->target->align);
    for (int i = 0; i < s->n_buckets; i++) {
        struct mt_bucket *b = &s->bucket[i];
        if (!shares(s, b, experts) || b->fp8 != fp8 || !b->work_bytes) continue;
        if (fp8)
            b->wire_at = filling_add(&x, b->wire_edge, b->me);
        else
            b->work_at = filling_add(&x, b->work_edge, b->me);
    }
    int64_t most = filling_most(&x);
    free(x.end);
    return most;
}
static void weights(struct mt_store *s, struct mt_ledger *g, bool experts, bool fp8)
{
    int64_t most = weight_places(s, experts, fp8);
    if (!most) return;
    int32_t row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_WEIGHT, most, "%s.%s", fp8 ? "fp8" : "work",
                             experts ? "experts" : "owned");
    for (int i = 0; i < s->n_buckets; i++) {
        struct mt_bucket *b = &s->bucket[i];
        if (shares(s, b, experts) && b->fp8 == fp8 && b->work_bytes)
            *(fp8 ? &b->wire_row : &b->work_row) = row;
    }
}

void mt_store_shared_places(struct mt_store *s)
{
    int64_t most[2];
    for (int i = 0; i < 4; i++) {
        state_places(s, i / 2, i % 2, most);
        weight_places(s, i / 2, i % 2);
    }
}

void mt_store_shared_rows(struct mt_store *s, struct mt_ledger *g, bool inference)
{
    for (int experts = 0; experts < 2; experts++) {
        states(s, g, inference, experts, true);
        states(s, g, inference, experts, false);
        weights(s, g, experts, false);
        weights(s, g, experts, true);
    }
}
