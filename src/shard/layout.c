/* layout.c: where everything of a store lies: offsets inside buckets, cuts over their groups, rows in the ledger. */
#include <stdio.h>
#include <stdlib.h>

#include "shard/strip.h"

static int64_t width(const struct mt_matrix *m)
{
    return m->cols ? m->cols : 1;
}

static int64_t work_bytes(const struct mt_store *s, const struct mt_matrix *m)
{
    if (m->form == MT_FORM_PACKED)
        return mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, m->rows, m->cols);
    int64_t a = s->target->align;
    return (m->rows * width(m) * mt_dtype_bytes(s->dtype) + a - 1) / a * a;
}

/* Blocks' matrices may travel as fp8; the embedding and the head, which the loss feels most, do not. */
static bool as_fp8(const struct mt_store *s, int bucket)
{
    const struct mt_unit *u = &s->unit[s->bucket[bucket].unit];
    return bucket == u->dense_bucket &&
           (u->experts ? s->formats.fp8_experts : s->formats.fp8_dense && u->layer >= 0);
}

static void offsets(struct mt_store *s)
{
    for (int i = 0; i < s->n_buckets; i++) {
        s->bucket[i].fp8 = as_fp8(s, i);
        s->bucket[i].grad_wire = i == s->unit[s->bucket[i].unit].dense_bucket ? s->formats.reduce : MT_F32;
    }
    for (int i = 0; i < s->n_matrices; i++) {
        struct mt_matrix *m = &s->matrix[i];
        struct mt_bucket *b = &s->bucket[m->bucket];
        m->off = b->elements;
        b->elements += m->rows * width(m);
        if (m->form == MT_FORM_F32) continue;
        m->work_off = b->work_bytes;
        b->work_bytes += work_bytes(s, m);
        if (!b->fp8) continue;
        MT_ASSERT(m->form == MT_FORM_PACKED);
        m->wire_off = b->wire_bytes;
        b->wire_bytes += mt_fp8_form(s->target, s->dtype, m->rows, m->cols).bytes;
    }
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensor[i].optimizer == MT_ADAMW) s->bucket[s->matrix[s->tensor[i].matrix].bucket].adamw = true;
}

/* ---- cuts ---- */
/* An fp8 tile has one owner. */
int64_t mt_store_step(const struct mt_store *s, const struct mt_matrix *m)
{
    return s->bucket[m->bucket].fp8 ? MT_FP8_TILE : m->form == MT_FORM_PACKED ? s->target->panel : 1;
}
/* The cut of a dense bucket nearest below `want` elements: at a band, a panel, a row, or an element of a vector; also in bytes
 * of the working copy and of its fp8 form. */
static void cut_at(const struct mt_store *s, int bucket, int64_t want, int64_t *elements, int64_t *bytes,
                   int64_t *wire)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    *elements = *bytes = *wire = 0;
    for (int i = 0; i < s->n_matrices; i++) {
        const struct mt_matrix *m = &s->matrix[i];
        if (m->bucket != bucket || want < m->off) continue;
        int64_t step = mt_store_step(s, m), row = (want - m->off) / width(m) / step * step;
        if (row >= m->rows) row = m->rows;
        *elements = m->off + row * width(m);
        *bytes = row == m->rows ? m->work_off + work_bytes(s, m)
                 : m->form == MT_FORM_PACKED
                     ? m->work_off +
                           row * (mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, step, m->cols) / step)
                     : m->work_off + row * width(m) * mt_dtype_bytes(s->dtype);
        if (!b->fp8) continue;
        struct mt_fp8_form f = mt_fp8_form(s->target, s->dtype, m->rows, m->cols);
        *wire = m->wire_off + (row == m->rows ? f.bytes : row / MT_FP8_TILE * f.band_bytes);
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

static int64_t largest(const int64_t *edge, int64_t n)
{
    int64_t most = 0;
    for (int64_t k = 0; k < n; k++)
        if (edge[k + 1] - edge[k] > most) most = edge[k + 1] - edge[k];
    return most;
}
/* edge: in elements of `size` bytes. */
static int add_cut(struct mt_store *s, int64_t n, const int64_t *edge, int64_t size)
{
    int64_t *bytes = malloc((size_t)(n + 1) * sizeof *bytes);
    MT_ASSERT(bytes);
    for (int64_t k = 0; k <= n; k++) bytes[k] = size * edge[k];
    int cut = mt_store_add_cut(s, n, bytes);
    free(bytes);
    return cut;
}

/* What a cut of working copies holds besides padding: its elements. */
static void content(struct mt_store *s, const struct mt_bucket *b)
{
    int64_t *bytes = calloc((size_t)b->members + 1, sizeof *bytes);
    MT_ASSERT(bytes);
    for (int k = 0; k <= b->members; k++) bytes[k] = mt_dtype_bytes(s->dtype) * b->edge[k];
    mt_store_cut_content(s, b->work_cut, bytes);
    free(bytes);
}

static void cut_bucket(struct mt_store *s, int i)
{
    struct mt_bucket *b = &s->bucket[i];
    int64_t n = b->members, unit_bytes = b->work_bytes ? b->work_bytes : 4 * b->elements;
    b->edge = calloc((size_t)n + 1, sizeof *b->edge);
    b->work_edge = calloc((size_t)n + 1, sizeof *b->work_edge);
    b->wire_edge = calloc((size_t)n + 1, sizeof *b->wire_edge);
    MT_ASSERT(b->edge && b->work_edge && b->wire_edge);
    for (int64_t k = 1; k <= n; k++) {
        if (s->unit[b->unit].experts) {
            int64_t experts = expert_edge(s, b, k);
            b->edge[k] = experts * b->elements;
            b->work_edge[k] = experts * unit_bytes;
            b->wire_edge[k] = experts * b->wire_bytes;
        } else if (k < n)
            cut_at(s, i, b->elements * k / n, &b->edge[k], &b->work_edge[k], &b->wire_edge[k]);
        else
            b->edge[k] = b->elements, b->work_edge[k] = unit_bytes, b->wire_edge[k] = b->wire_bytes;
    }
    b->piece = largest(b->edge, n);
    b->work_piece = largest(b->work_edge, n);
    b->wire_piece = largest(b->wire_edge, n);
    if (n == 1) return;
    b->master_cut = add_cut(s, n, b->edge, 4);
    b->work_cut = add_cut(s, n, b->work_edge, 1);
    if (b->work_bytes) content(s, b);
    b->grad_cut = b->grad_wire == MT_F32 ? b->master_cut
                                         : add_cut(s, n, b->edge, mt_dtype_bytes(b->grad_wire));
    if (b->fp8) b->wire_cut = add_cut(s, n, b->wire_edge, 1);
}

/* ---- rows ---- */
static void bucket_name(const struct mt_store *s, int i, char name[24])
{
    const struct mt_unit *u = &s->unit[s->bucket[i].unit];
    snprintf(name, 24, "%s%s.%d",
             u->experts     ? "experts"
             : u->layer < 0 ? "unit"
                            : "layer",
             i == u->f32_bucket ? ".f32" : "", u->layer < 0 ? s->bucket[i].unit : u->layer);
}

/* Accumulators in host memory: where they are while pieces are added; a group of one adds the products themselves. */
static void offload_rows(struct mt_bucket *b, struct mt_ledger *g, const char *name)
{
    if (!b->host[MT_STATE_GRAD]) return;
    if (b->members > 1)
        b->acc_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->piece, "acc.%s", name);
    else
        b->grad_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->piece, "grad.full.%s", name);
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
        b->host[w] = keep && b->work_bytes && s->offload.host[w];
        b->row[w] = keep ? mt_row_add(g, b->host[w] ? MT_HOST_ARENA : MT_DEVICE_ARENA, class_of[w],
                                      4 * b->piece, "%s.%s", what[w], name)
                         : -1;
    }
    offload_rows(b, g, name);
    /* Of the working copy and its fp8 form one is kept from step to step: what operations read, or what the others gather. */
    bool shard = b->members > 1, whole = !b->host[MT_STATE_MASTER];
    if (b->work_bytes && (whole || !b->fp8 || !shard))
        b->work_row = mt_row_add(g, MT_DEVICE_ARENA, b->fp8 && shard ? MT_ROW_OPTIM : MT_ROW_WEIGHT,
                                 b->work_piece, "work.%s", name);
    if (b->fp8 && (whole || shard))
        b->wire_row = mt_row_add(g, MT_DEVICE_ARENA, shard ? MT_ROW_WEIGHT : MT_ROW_OPTIM, b->wire_piece,
                                 "fp8.%s", name);
}

static void collective_rows(struct mt_store *s, int i, struct mt_ledger *g, bool inference)
{
    struct mt_bucket *b = &s->bucket[i];
    char name[24];
    int64_t bytes = b->work_bytes ? b->n * b->work_bytes : 4 * b->n * b->elements;
    bucket_name(s, i, name);
    b->full_row[MT_FORWARD] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, bytes, "full.f.%s", name);
    if (b->fp8)
        b->wire_full_row =
            mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, b->n * b->wire_bytes, "fp8.full.%s", name);
    if (inference) return;
    b->full_row[MT_BACKWARD] =
        s->unit[b->unit].kept ? b->full_row[MT_FORWARD]
                              : mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, bytes, "full.b.%s", name);
    b->grad_row =
        mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->n * b->elements, "grad.full.%s", name);
    int64_t el = mt_dtype_bytes(b->grad_wire);
    if (b->grad_wire != MT_F32)
        b->grad_wire_row =
            mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, el * b->n * b->elements, "grad.wire.%s", name);
    b->staging_row =
        mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, el * b->members * b->piece, "stage.%s", name);
}

void mt_store_layout(struct mt_store *s, struct mt_ledger *g, bool inference)
{
    offsets(s);
    if (inference) s->offload = (struct mt_offload){0};
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
        if (m->form == MT_FORM_PACKED && !s->target->one_form)
            m->turned_row = mt_row_add(
                g, MT_DEVICE_ARENA, MT_ROW_GATHERED,
                s->bucket[m->bucket].n * mt_packed_bytes(s->target, s->dtype, MT_PACKED_NN, m->rows, m->cols),
                "turned.%d.%d", m->unit, i);
    }
    mt_strips_layout(s, g);
}
