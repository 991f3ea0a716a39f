#include "shard/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mt_store_init(struct mt_store *s, mt_dtype dtype, const struct mt_target *t)
{
    *s = (struct mt_store){.dtype = dtype, .target = t};
}

void mt_store_release(struct mt_store *s)
{
    free(s->unit);
    free(s->bucket);
    free(s->matrix);
    free(s->tensor);
    *s = (struct mt_store){0};
}

static void *grown(void *p, int n, int *cap, size_t size)
{
    if (n < *cap) return p;
    *cap = *cap ? 2 * *cap : 64;
    p = realloc(p, (size_t)*cap * size);
    MT_ASSERT(p);
    return p;
}

int mt_store_add_unit(struct mt_store *s, int layer, int64_t n_experts)
{
    s->unit = grown(s->unit, s->n_units, &s->cap_units, sizeof *s->unit);
    s->unit[s->n_units] = (struct mt_unit){.layer = layer, .experts = n_experts > 0, .dense_bucket = -1, .f32_bucket = -1};
    for (int f32 = 0; f32 < 2; f32++) {
        s->bucket = grown(s->bucket, s->n_buckets, &s->cap_buckets, sizeof *s->bucket);
        s->bucket[s->n_buckets++] = (struct mt_bucket){.unit = s->n_units, .n = n_experts > 0 ? n_experts : 1, .work_row = -1};
    }
    s->unit[s->n_units].dense_bucket = s->n_buckets - 2;
    s->unit[s->n_units].f32_bucket = s->n_buckets - 1;
    return s->n_units++;
}

int mt_store_add_matrix(struct mt_store *s, int kind, int layer, enum mt_form form, int64_t cols)
{
    int u = s->n_units - 1;
    s->matrix = grown(s->matrix, s->n_matrices, &s->cap_matrices, sizeof *s->matrix);
    s->matrix[s->n_matrices] = (struct mt_matrix){.unit = u, .kind = kind, .layer = layer, .form = form, .cols = cols, .turned_row = -1,
        .bucket = form == MT_FORM_F32 ? s->unit[u].f32_bucket : s->unit[u].dense_bucket};
    return s->n_matrices++;
}

int mt_store_add_tensor(struct mt_store *s, int kind, int layer, int64_t rows, double init_std)
{
    struct mt_matrix *m = &s->matrix[s->n_matrices - 1];
    s->tensor = grown(s->tensor, s->n_tensors, &s->cap_tensors, sizeof *s->tensor);
    s->tensor[s->n_tensors] = (struct mt_tensor){.matrix = s->n_matrices - 1, .kind = kind, .layer = layer, .row0 = m->rows,
        .rows = rows, .v_off = -1, .init_std = init_std, .lr_scale = 1};
    m->rows += rows;
    return s->n_tensors++;
}

/* ---- layout ---- */
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
    for (int i = 0; i < s->n_tensors; i++) {
        struct mt_tensor *t = &s->tensor[i];
        struct mt_bucket *b = &s->bucket[s->matrix[t->matrix].bucket];
        if (t->optimizer != MT_ADAMW) continue;
        t->v_off = b->v_elements;
        b->v_elements += t->rows * width(&s->matrix[t->matrix]);
    }
}

static void bucket_rows(struct mt_store *s, int i, struct mt_ledger *g, bool inference)
{
    static const char *const what[] = {"master", "grad", "m", "v"};
    static const enum mt_row_class class_of[] = {MT_ROW_MASTER, MT_ROW_GRAD, MT_ROW_MOMENT, MT_ROW_MOMENT};
    struct mt_bucket *b = &s->bucket[i];
    char name[24];
    const struct mt_unit *u = &s->unit[b->unit];
    snprintf(name, sizeof name, "%s%s.%d", u->experts ? "experts" : u->layer < 0 ? "unit" : "layer",
             i == u->f32_bucket ? ".f32" : "", u->layer < 0 ? b->unit : u->layer);
    for (int w = 0; w < MT_N_STATES; w++) {
        int64_t n = b->n * (w == MT_STATE_V ? b->v_elements : b->elements);
        bool keep = n && (!inference || w == MT_STATE_MASTER);
        b->row[w] = keep ? mt_row_add(g, MT_DEVICE_ARENA, class_of[w], 4 * n, "%s.%s", what[w], name) : -1;
    }
    if (b->work_bytes) b->work_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_WEIGHT, b->n * b->work_bytes, "work.%s", name);
}

static int64_t turned_bytes(const struct mt_store *s, const struct mt_matrix *m)
{
    return mt_packed_bytes(s->target, s->dtype, MT_PACKED_NN, m->rows, m->cols);
}
static void turned_rows(struct mt_store *s, struct mt_ledger *g)
{
    for (int i = 0; i < s->n_matrices; i++) {
        struct mt_matrix *m = &s->matrix[i];
        if (m->form == MT_FORM_PACKED)
            m->turned_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, s->bucket[m->bucket].n * turned_bytes(s, m), "turned.%d.%d", m->unit, i);
    }
}

void mt_store_layout(struct mt_store *s, struct mt_ledger *g, bool inference)
{
    offsets(s);
    for (int i = 0; i < s->n_buckets; i++)
        if (s->bucket[i].elements) bucket_rows(s, i, g, inference);
    if (!inference) turned_rows(s, g);
}

/* ---- views ---- */
static mt_view stacked(const struct mt_store *s, const struct mt_matrix *m, mt_view v, int64_t stride)
{
    return s->unit[m->unit].experts ? mt_view_stack(v, s->bucket[m->bucket].n, stride) : v;
}

mt_view mt_store_work(const struct mt_store *s, int matrix)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    if (m->form == MT_FORM_F32) return mt_store_matrix_state(s, matrix, MT_STATE_MASTER);
    if (m->form == MT_FORM_ROWS) return mt_view_of(b->work_row, s->dtype, m->work_off, m->rows, m->cols, 0);
    return stacked(s, m, mt_packed_view(s->target, b->work_row, s->dtype, MT_PACKED_NT, m->work_off, m->rows, m->cols), b->work_bytes);
}

mt_view mt_store_turned(const struct mt_store *s, int matrix)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    if (m->turned_row < 0) return MT_NONE;
    return stacked(s, m, mt_packed_view(s->target, m->turned_row, s->dtype, MT_PACKED_NN, 0, m->rows, m->cols), turned_bytes(s, m));
}

mt_view mt_store_matrix_state(const struct mt_store *s, int matrix, enum mt_state what)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    MT_ASSERT(what != MT_STATE_V);
    return stacked(s, m, mt_view_of(b->row[what], MT_F32, 4 * m->off, m->rows, m->cols, 0), 4 * b->elements);
}

static mt_view tensor_first(const struct mt_store *s, int tensor, enum mt_state what, int64_t *stride)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    const struct mt_matrix *m = &s->matrix[t->matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    int64_t off = what == MT_STATE_V ? t->v_off : m->off + t->row0 * width(m);
    *stride = 4 * (what == MT_STATE_V ? b->v_elements : b->elements);
    if (off < 0 || b->row[what] < 0) return MT_NONE;
    return mt_view_of(b->row[what], MT_F32, 4 * off, t->rows, m->cols, 0);
}

mt_view mt_store_tensor_state(const struct mt_store *s, int tensor, enum mt_state what)
{
    int64_t stride;
    mt_view v = tensor_first(s, tensor, what, &stride);
    return mt_view_given(v) ? stacked(s, &s->matrix[s->tensor[tensor].matrix], v, stride) : v;
}

mt_view mt_store_tensor_stack(const struct mt_store *s, int tensor, enum mt_state what)
{
    int64_t stride;
    mt_view v = tensor_first(s, tensor, what, &stride);
    if (!mt_view_given(v)) return v;
    if (v.nd == 1) v = mt_view_as(v, v.dim[0], 1, 0);
    return mt_view_stack(v, mt_store_parts(s, tensor), stride);
}

mt_view mt_store_bucket_state(const struct mt_store *s, int bucket, enum mt_state what)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return b->row[what] < 0 || !b->elements ? MT_NONE
        : mt_view_of(b->row[what], MT_F32, 0, b->n * (what == MT_STATE_V ? b->v_elements : b->elements), 0, 0);
}

int64_t mt_store_parts(const struct mt_store *s, int tensor) { return s->bucket[s->matrix[s->tensor[tensor].matrix].bucket].n; }

int64_t mt_store_tensor_count(const struct mt_store *s, int tensor)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    return mt_store_parts(s, tensor) * t->rows * width(&s->matrix[t->matrix]);
}
