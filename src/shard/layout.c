/* layout.c: where everything of a store lies: offsets inside buckets, cuts over their groups, rows in the ledger. */
#include <stdio.h>
#include <stdlib.h>

#include "shard/store.h"

static int64_t width(const struct mt_matrix *m) { return m->cols ? m->cols : 1; }

static int64_t work_bytes(const struct mt_store *s, const struct mt_matrix *m)
{
    if (m->form == MT_FORM_PACKED) return mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, m->rows, m->cols);
    int64_t a = s->target->align;
    return (m->rows * width(m) * mt_dtype_bytes(s->dtype) + a - 1) / a * a;
}

static void offsets(struct mt_store *s)
{
    for (int i = 0; i < s->n_matrices; i++) {
        struct mt_matrix *m = &s->matrix[i];
        struct mt_bucket *b = &s->bucket[m->bucket];
        m->off = b->elements;
        b->elements += m->rows * width(m);
        if (m->form == MT_FORM_F32) continue;
        m->work_off = b->work_bytes;
        b->work_bytes += work_bytes(s, m);
    }
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensor[i].optimizer == MT_ADAMW) s->bucket[s->matrix[s->tensor[i].matrix].bucket].adamw = true;
}

/* ---- cuts ---- */
/* The cut of a dense bucket nearest below `want` elements: at a panel, a row, or an element of a vector. */
static void cut_at(const struct mt_store *s, int bucket, int64_t want, int64_t *elements, int64_t *bytes)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    *elements = *bytes = 0;
    for (int i = 0; i < s->n_matrices; i++) {
        const struct mt_matrix *m = &s->matrix[i];
        if (m->bucket != bucket || want < m->off) continue;
        int64_t step = m->form == MT_FORM_PACKED ? s->target->panel : 1, row = (want - m->off) / width(m) / step * step;
        if (row >= m->rows) row = m->rows;
        *elements = m->off + row * width(m);
        *bytes = row == m->rows ? m->work_off + work_bytes(s, m)
                 : m->form == MT_FORM_PACKED ? m->work_off + row * (mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, step, m->cols) / step)
                                             : m->work_off + row * width(m) * mt_dtype_bytes(s->dtype);
    }
    if (!b->work_bytes) *bytes = 4 * *elements;
}

/* First expert of piece k. Experts of a layer that the group does not divide make pieces of two sizes: rank k has in each
 * layer what rank k + 1 had in the one before, so over any number of layers the ranks' sums differ by one expert at most. */
static int64_t expert_edge(const struct mt_store *s, const struct mt_bucket *b, int64_t k)
{
    int64_t turn = s->unit[b->unit].layer;
    return (turn + k) * b->n / b->members - turn * b->n / b->members;
}

static void cut_bucket(struct mt_store *s, int i)
{
    struct mt_bucket *b = &s->bucket[i];
    int64_t n = b->members, unit_bytes = b->work_bytes ? b->work_bytes : 4 * b->elements;
    b->edge = calloc((size_t)n + 1, sizeof *b->edge);
    b->work_edge = calloc((size_t)n + 1, sizeof *b->work_edge);
    int64_t *bytes = calloc((size_t)n + 1, sizeof *bytes);
    MT_ASSERT(b->edge && b->work_edge && bytes);
    for (int64_t k = 1; k <= n; k++) {
        if (s->unit[b->unit].experts) {
            int64_t experts = expert_edge(s, b, k);
            b->edge[k] = experts * b->elements;
            b->work_edge[k] = experts * unit_bytes;
        } else if (k < n) cut_at(s, i, b->elements * k / n, &b->edge[k], &b->work_edge[k]);
        else b->edge[k] = b->elements, b->work_edge[k] = unit_bytes;
        bytes[k] = 4 * b->edge[k];
        if (b->edge[k] - b->edge[k - 1] > b->piece) b->piece = b->edge[k] - b->edge[k - 1];
        if (b->work_edge[k] - b->work_edge[k - 1] > b->work_piece) b->work_piece = b->work_edge[k] - b->work_edge[k - 1];
    }
    if (n > 1) {
        b->master_cut = mt_store_add_cut(s, n, bytes);
        b->work_cut = mt_store_add_cut(s, n, b->work_edge);
        if (b->work_bytes) {
            for (int64_t k = 0; k <= n; k++) bytes[k] = mt_dtype_bytes(s->dtype) * b->edge[k];
            mt_store_cut_content(s, b->work_cut, bytes);
        }
    }
    free(bytes);
}

/* ---- rows ---- */
static void bucket_name(const struct mt_store *s, int i, char name[24])
{
    const struct mt_unit *u = &s->unit[s->bucket[i].unit];
    snprintf(name, 24, "%s%s.%d", u->experts ? "experts" : u->layer < 0 ? "unit" : "layer", i == u->f32_bucket ? ".f32" : "",
             u->layer < 0 ? s->bucket[i].unit : u->layer);
}

static void state_rows(struct mt_store *s, int i, struct mt_ledger *g, bool inference)
{
    static const char *const what[] = {"master", "grad", "m", "v"};
    static const enum mt_row_class class_of[] = {MT_ROW_MASTER, MT_ROW_GRAD, MT_ROW_MOMENT, MT_ROW_MOMENT};
    struct mt_bucket *b = &s->bucket[i];
    char name[24];
    bucket_name(s, i, name);
    for (int w = 0; w < MT_N_STATES; w++) {
        bool keep = (!inference || w == MT_STATE_MASTER) && (w != MT_STATE_V || b->adamw);
        b->row[w] = keep ? mt_row_add(g, MT_DEVICE_ARENA, class_of[w], 4 * b->piece, "%s.%s", what[w], name) : -1;
    }
    if (b->work_bytes) b->work_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_WEIGHT, b->work_piece, "work.%s", name);
}

static void collective_rows(struct mt_store *s, int i, struct mt_ledger *g, bool inference)
{
    struct mt_bucket *b = &s->bucket[i];
    char name[24];
    int64_t bytes = b->work_bytes ? b->n * b->work_bytes : 4 * b->n * b->elements;
    bucket_name(s, i, name);
    b->full_row[MT_FORWARD] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, bytes, "full.f.%s", name);
    if (inference) return;
    b->full_row[MT_BACKWARD] = s->unit[b->unit].kept ? b->full_row[MT_FORWARD] : mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, bytes, "full.b.%s", name);
    b->grad_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->n * b->elements, "grad.full.%s", name);
    b->staging_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->members * b->piece, "stage.%s", name);
}

void mt_store_layout(struct mt_store *s, struct mt_ledger *g, bool inference)
{
    offsets(s);
    for (int i = 0; i < s->n_buckets; i++) {
        if (!s->bucket[i].elements) {
            for (int w = 0; w < MT_N_STATES; w++) s->bucket[i].row[w] = -1;
            continue;
        }
        cut_bucket(s, i);
        state_rows(s, i, g, inference);
        if (s->bucket[i].members > 1) collective_rows(s, i, g, inference);
    }
    for (int i = 0; i < s->n_matrices && !inference; i++) {
        struct mt_matrix *m = &s->matrix[i];
        if (m->form == MT_FORM_PACKED)
            m->turned_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED,
                                       s->bucket[m->bucket].n * mt_packed_bytes(s->target, s->dtype, MT_PACKED_NN, m->rows, m->cols), "turned.%d.%d", m->unit, i);
    }
}
