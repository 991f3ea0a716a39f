#include "shard/store.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

void mt_store_init(struct mt_store *s, mt_dtype dtype, const struct mt_target *t, const struct mt_mesh *mesh,
                   int rank)
{
    *s = (struct mt_store){.dtype = dtype, .target = t, .mesh = *mesh, .rank = rank};
    int n = mt_mesh_place(mesh, MT_GROUP_SHARD, rank).n;
    if (!mt_mesh_near(mesh, MT_GROUP_SHARD)) return;
    s->shard_piece = calloc((size_t)n, sizeof *s->shard_piece);
    MT_ASSERT(s->shard_piece);
    for (int i = 0; i < n; i++) s->shard_piece[i] = mt_mesh_piece(mesh, MT_GROUP_SHARD, i);
}

void mt_store_release(struct mt_store *s)
{
    for (int i = 0; i < s->n_buckets; i++) {
        free(s->bucket[i].edge);
        free(s->bucket[i].work_edge);
        free(s->bucket[i].wire_edge);
    }
    for (int i = 0; i < s->n_cuts; i++) {
        free(s->cut[i].at);
        free(s->cut[i].content);
    }
    free(s->unit);
    free(s->bucket);
    free(s->matrix);
    free(s->tensor);
    free(s->cut);
    free(s->shard_piece);
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
    s->unit[s->n_units] = (struct mt_unit){.layer = layer, .experts = n_experts > 0, .n_experts = n_experts};
    return s->n_units++;
}

int mt_store_add_matrix(struct mt_store *s, int kind, int layer, enum mt_form form, int64_t cols,
                        int64_t block)
{
    int u = s->n_units - 1;
    s->matrix = grown(s->matrix, s->n_matrices, &s->cap_matrices, sizeof *s->matrix);
    s->matrix[s->n_matrices] =
        (struct mt_matrix){.unit = u,
                           .bucket = -1,
                           .kind = kind,
                           .layer = layer,
                           .form = form,
                           .cols = cols,
                           .block = block,
                           .placement = s->unit[u].experts ? MT_PLACED_OWNED : MT_PLACED_FLAT,
                           .owner = -1,
                           .piece = -1,
                           .turned_row = -1};
    return s->n_matrices++;
}

int mt_store_add_tensor(struct mt_store *s, int kind, int layer, int64_t rows, double init_std)
{
    struct mt_matrix *m = &s->matrix[s->n_matrices - 1];
    s->tensor = grown(s->tensor, s->n_tensors, &s->cap_tensors, sizeof *s->tensor);
    s->tensor[s->n_tensors] = (struct mt_tensor){.matrix = s->n_matrices - 1,
                                                 .kind = kind,
                                                 .layer = layer,
                                                 .row0 = m->rows,
                                                 .rows = rows,
                                                 .init_std = init_std,
                                                 .lr_scale = 1};
    m->rows += rows;
    return s->n_tensors++;
}

static int64_t *copy_of(const int64_t *x, int64_t n)
{
    int64_t *copy = malloc((size_t)n * sizeof *copy);
    MT_ASSERT(copy);
    return memcpy(copy, x, (size_t)n * sizeof *copy);
}

int mt_store_add_cut(struct mt_store *s, int64_t n, const int64_t *at, const int32_t *of)
{
    s->cut = grown(s->cut, s->n_cuts, &s->cap_cuts, sizeof *s->cut);
    struct mt_cut *c = &s->cut[s->n_cuts];
    *c = (struct mt_cut){.n = n, .at = copy_of(at, n + 1), .of = of, .hash = mt_hash_ints(0, at, n + 1)};
    for (int64_t i = 0; i < n && of; i++) c->hash = mt_hash_mix(c->hash, (uint64_t)of[i]);
    return s->n_cuts++;
}

void mt_store_cut_content(struct mt_store *s, int cut, const int64_t *content)
{
    s->cut[cut].content = copy_of(content, s->cut[cut].n + 1);
}

static int64_t width(const struct mt_matrix *m)
{
    return m->cols ? m->cols : 1;
}

int64_t mt_store_expert(const struct mt_store *s, int64_t part)
{
    int64_t n = 1;
    for (int i = 0; i < s->n_units; i++)
        if (s->unit[i].experts) n = s->unit[i].n_experts;
    return mt_mesh_place(&s->mesh, MT_GROUP_EP, s->rank).me * n + part;
}

/* The least common multiple. */
static int64_t multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t left = x % y;
        x = y;
        y = left;
    }
    return a / x * b;
}
/* Rows at whose multiples a matrix may be cut: a panel, a block and an fp8 tile each have one owner. */
struct mt_blocks mt_store_blocks(const struct mt_store *s, int tensor)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    struct mt_blocks b = {t->heads.n ? t->heads.n : 1, t->rows, width(&s->matrix[t->matrix])};
    if (t->heads.columns)
        b.cols /= b.n;
    else
        b.rows /= b.n;
    return b;
}

int64_t mt_store_step(const struct mt_store *s, const struct mt_matrix *m)
{
    const struct mt_bucket *b = &s->bucket[m->bucket];
    int64_t step = m->form == MT_FORM_PACKED ? s->target->panel : 1;
    if (b->fp8) step = multiple(step, MT_FP8_TILE);
    return b->placement == MT_PLACED_BLOCK ? multiple(step, m->block) : step;
}

/* ---- views of what is whole ---- */
static mt_view stacked(const struct mt_store *s, const struct mt_matrix *m, mt_view v, int64_t stride)
{
    return s->unit[m->unit].experts ? mt_view_stack(v, s->bucket[m->bucket].n, stride) : v;
}
static mt_view f32_matrix(const struct mt_store *s, const struct mt_matrix *m, int32_t row)
{
    return stacked(s, m, mt_view_of(row, MT_F32, 4 * m->off, m->rows, m->cols, 0),
                   4 * s->bucket[m->bucket].elements);
}

mt_view mt_store_work(const struct mt_store *s, int matrix, enum mt_pass pass)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    int32_t row = b->members > 1           ? b->full_row[pass]
                  : m->form == MT_FORM_F32 ? b->row[MT_STATE_MASTER]
                                           : b->work_row;
    if (m->form == MT_FORM_F32) return f32_matrix(s, m, row);
    if (m->form == MT_FORM_ROWS) return mt_view_of(row, s->dtype, m->work_off, m->rows, m->cols, 0);
    return stacked(s, m,
                   mt_packed_view(s->target, row, s->dtype, MT_PACKED_NT, m->work_off, m->rows, m->cols),
                   b->work_bytes);
}

mt_view mt_store_turned(const struct mt_store *s, int matrix)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    if (m->form == MT_FORM_PACKED && s->target->one_form) {
        mt_view v = mt_store_work(s, matrix, MT_BACKWARD);
        v.format = MT_PACKED_NN;
        return v;
    }
    if (m->turned_row < 0) return MT_NONE;
    mt_view one = mt_packed_view(s->target, m->turned_row, s->dtype, MT_PACKED_NN, 0, m->rows, m->cols);
    return stacked(s, m, one, one.bytes);
}

mt_view mt_store_grad(const struct mt_store *s, int matrix)
{
    const struct mt_bucket *b = &s->bucket[s->matrix[matrix].bucket];
    return f32_matrix(s, &s->matrix[matrix], b->grad_row >= 0 ? b->grad_row : b->row[MT_STATE_GRAD]);
}

/* ---- views of what is here ---- */
static int64_t at_least(int64_t x, int64_t lo)
{
    return x > lo ? x : lo;
}
static int64_t at_most(int64_t x, int64_t hi)
{
    return x < hi ? x : hi;
}

/* Rows [row0, row0 + rows) of a matrix, as far as a member's piece reaches. */
static struct mt_local local_rows(const struct mt_store *s, const struct mt_matrix *m, int64_t row0,
                                  int64_t rows, int member)
{
    const struct mt_bucket *b = &s->bucket[m->bucket];
    int64_t lo = b->edge[member], hi = b->edge[member + 1], w = width(m);
    if (s->unit[m->unit].experts)
        return (struct mt_local){lo / b->elements, (hi - lo) / b->elements, 0, rows};
    int64_t first = at_least((lo - m->off) / w, row0), last = at_most((hi - m->off) / w, row0 + rows);
    if (lo < m->off) first = row0;
    if (hi <= m->off || last <= first) return (struct mt_local){0, 0, 0, 0};
    return (struct mt_local){0, 1, first - row0, last - first};
}

struct mt_local mt_store_local_of(const struct mt_store *s, int tensor, int member)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    return local_rows(s, &s->matrix[t->matrix], t->row0, t->rows, member);
}
struct mt_local mt_store_local(const struct mt_store *s, int tensor)
{
    return mt_store_local_of(s, tensor, s->bucket[s->matrix[s->tensor[tensor].matrix].bucket].me);
}

static mt_view local_state(const struct mt_store *s, const struct mt_matrix *m, struct mt_local l,
                           int64_t row0, enum mt_state what)
{
    const struct mt_bucket *b = &s->bucket[m->bucket];
    if (!l.parts || b->row[what] < 0) return MT_NONE;
    int64_t off = l.part0 * b->elements + m->off + (row0 + l.row0) * width(m) - b->edge[b->me] + b->at;
    return mt_view_stack(mt_view_of(b->row[what], MT_F32, 4 * off, l.rows, width(m), 0), l.parts,
                         4 * b->elements);
}

mt_view mt_store_local_state(const struct mt_store *s, int tensor, enum mt_state what)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    return local_state(s, &s->matrix[t->matrix], mt_store_local(s, tensor), t->row0, what);
}

bool mt_store_local_work(const struct mt_store *s, int matrix, mt_view *master, mt_view *work)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    struct mt_local l = local_rows(s, m, 0, m->rows, b->me);
    if (!l.parts || m->form == MT_FORM_F32) return false;
    *master = local_state(s, m, l, 0, MT_STATE_MASTER);
    int64_t row_bytes = m->form == MT_FORM_ROWS
                            ? m->cols * mt_dtype_bytes(s->dtype)
                            : mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, s->target->panel, m->cols) /
                                  s->target->panel;
    int64_t off = l.part0 * b->work_bytes + m->work_off + l.row0 * row_bytes - b->work_edge[b->me] +
                  b->work_at;
    *work = m->form == MT_FORM_ROWS
                ? mt_view_of(b->work_row, s->dtype, off, l.rows, m->cols, 0)
                : mt_packed_view(s->target, b->work_row, s->dtype, MT_PACKED_NT, off, l.rows, m->cols);
    if (s->unit[m->unit].experts)
        *work = mt_view_stack(*work, l.parts, b->work_bytes);
    else
        *master = mt_view_as(*master, l.rows, m->cols, 0);
    return true;
}

static int64_t wire_bytes(const struct mt_store *s, int64_t rows, int64_t cols)
{
    return mt_fp8_form(s->target, s->dtype, rows, cols).bytes;
}
static mt_view wire_view(const struct mt_store *s, const struct mt_matrix *m, int32_t row, int64_t off,
                         int64_t parts, int64_t bytes)
{
    const struct mt_bucket *b = &s->bucket[m->bucket];
    if (!s->unit[m->unit].experts) return mt_view_of(row, MT_U8, off, bytes, 0, 0);
    mt_view v = mt_view_of(row, MT_U8, off, parts, bytes, 0);
    v.ld = b->wire_bytes;
    v.bytes = (parts - 1) * v.ld + bytes;
    return v;
}

mt_view mt_store_local_wire(const struct mt_store *s, int matrix)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    struct mt_local l = local_rows(s, m, 0, m->rows, b->me);
    if (!l.parts || !b->fp8) return MT_NONE;
    MT_ASSERT(l.row0 % MT_FP8_TILE == 0);
    int64_t off = l.part0 * b->wire_bytes + m->wire_off +
                  l.row0 / MT_FP8_TILE * mt_fp8_form(s->target, s->dtype, m->rows, m->cols).band_bytes;
    return wire_view(s, m, b->wire_row, off - b->wire_edge[b->me] + b->wire_at, l.parts,
                     wire_bytes(s, l.rows, m->cols));
}
mt_view mt_store_wire(const struct mt_store *s, int matrix)
{
    const struct mt_matrix *m = &s->matrix[matrix];
    const struct mt_bucket *b = &s->bucket[m->bucket];
    return wire_view(s, m, b->wire_full_row, m->wire_off, b->n, wire_bytes(s, m->rows, m->cols));
}

/* ---- buffers of collectives ---- */
mt_view mt_store_passing(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    if (!b->fp8 || b->host[MT_STATE_MASTER]) return MT_NONE; /* in a slot, strip by strip */
    return b->members > 1 ? mt_view_of(b->work_row, MT_U8, 0, b->work_piece, 0, 0)
                          : mt_view_of(b->wire_row, MT_U8, 0, b->wire_piece, 0, 0);
}
/* The pieces [first, first + n) of this rank's rail, of which it has one; all of them in one level. */
struct rail {
    int first, n;
};
static struct rail rail_of(const struct mt_bucket *b)
{
    int n = b->near ? b->members / b->near : b->members;
    return (struct rail){b->me / n * n, n};
}
static int64_t region_elements(const struct mt_bucket *b)
{
    struct rail r = rail_of(b);
    return b->edge[r.first + r.n] - b->edge[r.first];
}
/* edge: of the pieces, in units of `size` bytes; at: where this rank's begins in its row, likewise. */
static struct mt_gathering gathering(const struct mt_bucket *b, int32_t row, int32_t full_row,
                                     const int64_t *edge, int64_t size, int64_t at, struct mt_cuts cut)
{
    struct rail r = rail_of(b);
    int64_t fetched = size * (edge[r.first + r.n] - edge[r.first]);
    bool apart = b->region_row >= 0;
    return (struct mt_gathering){
        .mine = mt_view_of(row, MT_U8, size * at, size * (edge[b->me + 1] - edge[b->me]), 0, 0),
        .whole = mt_view_of(full_row, MT_U8, 0, size * edge[b->members], 0, 0),
        .fetched = mt_view_of(apart ? b->region_row : full_row, MT_U8, apart ? 0 : size * edge[r.first],
                              fetched, 0, 0),
        .apart = apart ? mt_view_of(b->region_row, MT_U8, 0, b->region_bytes, 0, 0) : MT_NONE,
        .host = b->host_row >= 0 ? mt_view_of(b->host_row, MT_U8, 0, fetched, 0, 0) : MT_NONE,
        .host_row = b->host_row >= 0 ? mt_view_of(b->host_row, MT_U8, 0, b->region_bytes, 0, 0) : MT_NONE,
        .cut = cut};
}
struct mt_gathering mt_store_gathering(const struct mt_store *s, int bucket, enum mt_pass pass)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    if (b->fp8) return gathering(b, b->wire_row, b->wire_full_row, b->wire_edge, 1, b->wire_at, b->wire_cut);
    if (b->work_bytes)
        return gathering(b, b->work_row, b->full_row[pass], b->work_edge, 1, b->work_at, b->work_cut);
    return gathering(b, b->row[MT_STATE_MASTER], b->full_row[pass], b->edge, 4, b->at, b->master_cut);
}
mt_view mt_store_grad_wire(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return mt_view_of(b->grad_wire_row, b->grad_wire, 0, region_elements(b), 0, 0);
}
mt_view mt_store_grad_region(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    int64_t n = region_elements(b), off = 4 * b->edge[rail_of(b).first];
    return mt_view_of(b->grad_row, n ? MT_F32 : MT_U8, off, n, 0, 0);
}

mt_view mt_store_piece(const struct mt_store *s, int bucket, enum mt_state what)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    int64_t n = b->edge[b->me + 1] - b->edge[b->me];
    return n && b->row[what] >= 0 ? mt_view_of(b->row[what], MT_F32, 4 * b->at, n, 0, 0) : MT_NONE;
}
mt_view mt_store_piece_bytes(const struct mt_store *s, int bucket, enum mt_state what)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return mt_view_of(b->row[what], MT_U8, 4 * b->at, 4 * (b->edge[b->me + 1] - b->edge[b->me]), 0, 0);
}
mt_view mt_store_full(const struct mt_store *s, int bucket, enum mt_pass pass)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return mt_view_of(b->full_row[pass], MT_U8, 0,
                      b->work_bytes ? b->n * b->work_bytes : 4 * b->n * b->elements, 0, 0);
}
mt_view mt_store_full_grad(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return mt_view_of(b->grad_row, MT_F32, 0, b->n * b->elements, 0, 0);
}
mt_view mt_store_staging_bytes(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return mt_view_of(b->staging_row, MT_U8, 0, mt_dtype_bytes(b->grad_wire) * rail_of(b).n * b->piece, 0, 0);
}
/* n elements from each of `rows`, ld elements apart. */
static mt_view strided(int32_t row, mt_dtype t, int64_t rows, int64_t n, int64_t ld)
{
    mt_view v = mt_view_of(row, t, 0, rows, n, 0);
    v.ld = ld;
    v.bytes = mt_dtype_bytes(t) * ((rows - 1) * ld + n);
    return v;
}
mt_view mt_store_staging(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    int64_t mine = b->edge[b->me + 1] - b->edge[b->me];
    return strided(b->staging_row, b->grad_wire, rail_of(b).n, mine, b->piece);
}
mt_view mt_store_node_staging_bytes(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return mt_view_of(b->node_staging_row, MT_U8, 0, 4 * b->near * b->region, 0, 0);
}
mt_view mt_store_node_staging(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    return strided(b->node_staging_row, MT_F32, b->near, region_elements(b), b->region);
}
