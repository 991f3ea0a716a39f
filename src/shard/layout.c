/* layout.c: where everything of a store lies: offsets inside buckets, cuts over their groups, rows in the ledger. */
#include <stdio.h>
#include <stdlib.h>

#include "shard/buckets.h"
#include "shard/factors.h"
#include "shard/owners.h"
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

/* Matrices in the order in which they lie in their buckets: dealt ones by owner. */
static int by_piece(const void *x, const void *y)
{
    const struct mt_matrix *a = *(struct mt_matrix *const *)x, *b = *(struct mt_matrix *const *)y;
    return a->piece != b->piece ? a->piece - b->piece : (a > b) - (a < b);
}

static void offset(const struct mt_store *s, struct mt_matrix *m)
{
    struct mt_bucket *b = &s->bucket[m->bucket];
    m->off = b->elements;
    b->elements += m->rows * width(m);
    if (m->form == MT_FORM_F32) return;
    m->work_off = b->work_bytes;
    b->work_bytes += work_bytes(s, m);
    if (!b->fp8) return;
    m->wire_off = b->wire_bytes;
    b->wire_bytes += mt_fp8_form(s->target, s->dtype, m->rows, m->cols).bytes;
}

static void offsets(struct mt_store *s)
{
    struct mt_matrix **order = malloc(((size_t)s->n_matrices + 1) * sizeof *order);
    MT_ASSERT(order);
    for (int i = 0; i < s->n_matrices; i++) order[i] = &s->matrix[i];
    qsort(order, (size_t)s->n_matrices, sizeof *order, by_piece);
    for (int i = 0; i < s->n_matrices; i++) offset(s, order[i]);
    free(order);
    for (int i = 0; i < s->n_tensors; i++)
        if (mt_optimizer_has(s->tensor[i].optimizer, MT_STATE_V))
            s->bucket[s->matrix[s->tensor[i].matrix].bucket].second = true;
}

/* ---- cuts ---- */
/* Among the matrices [first, last), those of a bucket. */
struct range {
    int first, last;
};
static struct range range_of(const struct mt_store *s, int bucket)
{
    struct range r = {s->n_matrices, 0};
    for (int i = 0; i < s->n_matrices; i++) {
        if (s->matrix[i].bucket != bucket) continue;
        if (i < r.first) r.first = i;
        r.last = i + 1;
    }
    return r;
}

/* The cut of a dense bucket nearest below `want` elements: at a band, a panel, a row, or an element of a vector; also in bytes
 * of the working copy and of its fp8 form. */
static void cut_at(const struct mt_store *s, int bucket, struct range in, int64_t want, int64_t *elements,
                   int64_t *bytes, int64_t *wire)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    *elements = *bytes = *wire = 0;
    for (int i = in.first; i < in.last; i++) {
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

/* First expert of piece k: from layer to layer the larger pieces go round. */
static int64_t expert_edge(const struct mt_store *s, const struct mt_bucket *b, int64_t k)
{
    return mt_owners_turn(b->n, b->members, s->unit[b->unit].layer, k);
}

/* Where the matrices of each owner end. */
static void cut_by_owner(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    for (int i = 0; i < s->n_matrices; i++) {
        const struct mt_matrix *m = &s->matrix[i];
        if (m->bucket != bucket) continue;
        b->edge[m->piece + 1] += m->rows * width(m);
        b->work_edge[m->piece + 1] += b->work_bytes ? work_bytes(s, m) : 4 * m->rows * width(m);
        if (b->fp8) b->wire_edge[m->piece + 1] += mt_fp8_form(s->target, s->dtype, m->rows, m->cols).bytes;
    }
    for (int k = 0; k < b->members; k++) {
        b->edge[k + 1] += b->edge[k];
        b->work_edge[k + 1] += b->work_edge[k];
        b->wire_edge[k + 1] += b->wire_edge[k];
    }
}

/* Of n pieces, the largest run of `step` that begins at a multiple of it. */
static int64_t largest(const int64_t *edge, int64_t n, int64_t step)
{
    int64_t most = 0;
    for (int64_t k = 0; k < n; k += step)
        if (edge[k + step] - edge[k] > most) most = edge[k + step] - edge[k];
    return most;
}
/* Of n pieces, each `step` of those that begin at edge[], in elements of `size` bytes. held: where the content of pieces
 * begins, in elements of `held_size`, if not all of it is; NULL: all. */
struct measure {
    const int64_t *edge, *held;
    int64_t size, held_size;
};
static int add_cut(struct mt_store *s, int64_t n, int64_t first, int64_t step, struct measure m)
{
    int64_t *bytes = calloc((size_t)n + 1, sizeof *bytes);
    MT_ASSERT(bytes);
    for (int64_t k = 0; k <= n; k++) bytes[k] = m.size * (m.edge[first + k * step] - m.edge[first]);
    int cut = mt_store_add_cut(s, n, bytes, NULL);
    for (int64_t k = 0; k <= n && m.held; k++) bytes[k] = m.held_size * m.held[first + k * step];
    if (m.held) mt_store_cut_content(s, cut, bytes);
    free(bytes);
    return cut;
}
static int64_t rail_members(const struct mt_bucket *b)
{
    return b->near ? b->members / b->near : b->members;
}
/* size_node: of what moves inside the node, where it differs. */
static struct mt_cuts add_cuts(struct mt_store *s, const struct mt_bucket *b, struct measure m,
                               int64_t size_node)
{
    int64_t rail = rail_members(b);
    if (!b->near) return (struct mt_cuts){add_cut(s, b->members, 0, 1, m), -1, -1};
    struct mt_cuts c = {-1, add_cut(s, rail, b->me / rail * rail, 1, m), -1};
    m.size = size_node;
    c.node = add_cut(s, b->near, 0, rail, m);
    return c;
}

/* What the collectives of a bucket move. */
struct measures {
    struct measure masters, grads, work, wire;
};
static struct measures measures_of(const struct mt_store *s, const struct mt_bucket *b)
{
    struct measures m = {.masters = {.edge = b->edge, .size = 4},
                         .grads = {.edge = b->edge, .size = mt_dtype_bytes(b->grad_wire)},
                         .work = {.edge = b->work_edge, .size = 1},
                         .wire = {.edge = b->wire_edge, .size = 1}};
    if (b->work_bytes) m.work.held = b->edge, m.work.held_size = mt_dtype_bytes(s->dtype);
    return m;
}
static void bucket_cuts(struct mt_store *s, struct mt_bucket *b)
{
    struct measures m = measures_of(s, b);
    b->master_cut = add_cuts(s, b, m.masters, 4);
    b->work_cut = add_cuts(s, b, m.work, 1);
    b->grad_cut = b->grad_wire == MT_F32 ? b->master_cut : add_cuts(s, b, m.grads, 4);
    if (b->fp8) b->wire_cut = add_cuts(s, b, m.wire, 1);
}

/* A rail's cut is of its own region: made anew in its place. */
static void turn_rail(struct mt_store *s, const struct mt_bucket *b, int cut, struct measure m)
{
    int64_t rail = rail_members(b);
    int again = add_cut(s, rail, b->me / rail * rail, 1, m);
    struct mt_cut old = s->cut[cut];
    s->cut[cut] = s->cut[again];
    free(old.at);
    free(old.content);
    s->n_cuts--;
}
void mt_store_turn(struct mt_store *s, int rank)
{
    s->rank = rank;
    for (int i = 0; i < s->n_buckets; i++) {
        struct mt_bucket *b = &s->bucket[i];
        struct measures m = measures_of(s, b);
        int64_t rail = rail_members(b), was = b->me / rail;
        b->me = mt_mesh_piece(&s->mesh, b->group, mt_mesh_place(&s->mesh, b->group, rank).me);
        if (!b->near || b->members == 1 || b->me / rail == was) continue;
        turn_rail(s, b, b->master_cut.rail, m.masters);
        turn_rail(s, b, b->work_cut.rail, m.work);
        if (b->grad_wire != MT_F32) turn_rail(s, b, b->grad_cut.rail, m.grads);
        if (b->fp8) turn_rail(s, b, b->wire_cut.rail, m.wire);
    }
    mt_store_shared_places(s);
    mt_factors_places(s);
}

static void cut_bucket(struct mt_store *s, int i)
{
    struct mt_bucket *b = &s->bucket[i];
    int64_t n = b->members, unit_bytes = b->work_bytes ? b->work_bytes : 4 * b->elements;
    b->edge = calloc((size_t)n + 1, sizeof *b->edge);
    b->work_edge = calloc((size_t)n + 1, sizeof *b->work_edge);
    b->wire_edge = calloc((size_t)n + 1, sizeof *b->wire_edge);
    MT_ASSERT(b->edge && b->work_edge && b->wire_edge);
    struct range in = range_of(s, i);
    if (b->dealt) cut_by_owner(s, i);
    for (int64_t k = 1; k <= n && !b->dealt; k++) {
        if (s->unit[b->unit].experts) {
            int64_t experts = expert_edge(s, b, k);
            b->edge[k] = experts * b->elements;
            b->work_edge[k] = experts * unit_bytes;
            b->wire_edge[k] = experts * b->wire_bytes;
        } else if (k < n)
            cut_at(s, i, in, b->elements * k / n, &b->edge[k], &b->work_edge[k], &b->wire_edge[k]);
        else
            b->edge[k] = b->elements, b->work_edge[k] = unit_bytes, b->wire_edge[k] = b->wire_bytes;
    }
    b->piece = largest(b->edge, n, 1);
    b->work_piece = largest(b->work_edge, n, 1);
    b->wire_piece = largest(b->wire_edge, n, 1);
    b->region = largest(b->edge, n, rail_members(b));
    if (n > 1) bucket_cuts(s, b);
}

/* ---- rows ---- */
enum { NAME = 32 };
static void bucket_name(const struct mt_store *s, int i, char name[NAME])
{
    static const char *const placement[] = {"", ".block", ".owned"};
    const struct mt_bucket *b = &s->bucket[i];
    const struct mt_unit *u = &s->unit[b->unit];
    snprintf(name, NAME, "%s%s%s%s.%d",
             u->experts     ? "experts"
             : u->layer < 0 ? "unit"
                            : "layer",
             b->f32 ? ".f32" : "", u->experts ? "" : placement[b->placement], b->fp8 ? ".fp8" : "",
             u->layer < 0 ? b->unit : u->layer);
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
const struct mt_state_row mt_state_rows[MT_N_STATES] = {
    {"master", MT_ROW_MASTER}, {"grad", MT_ROW_GRAD}, {"m", MT_ROW_MOMENT}, {"v", MT_ROW_MOMENT}};

static void state_rows(struct mt_store *s, int i, struct mt_ledger *g, bool inference)
{
    struct mt_bucket *b = &s->bucket[i];
    char name[NAME];
    bucket_name(s, i, name);
    for (int w = 0; w < MT_N_STATES; w++) {
        bool keep = (!inference || w == MT_STATE_MASTER) && (w != MT_STATE_V || b->second);
        b->host[w] = keep && b->work_bytes && s->offload.host[w];
        if (b->shared) continue; /* in a row with others */
        b->row[w] = keep ? mt_row_add(g, b->host[w] ? MT_HOST_ARENA : MT_DEVICE_ARENA,
                                      mt_state_rows[w].row_class, 4 * b->piece, "%s.%s",
                                      mt_state_rows[w].name, name)
                         : -1;
    }
    offload_rows(b, g, name);
    /* Of the working copy and its fp8 form one is kept from step to step: what operations read, or what the others gather; of
     * buckets with uneven pieces in a row that they share. The other one is made strip by strip where the masters come that way. */
    bool shard = b->members > 1, whole = !b->host[MT_STATE_MASTER];
    if (b->work_bytes && (b->fp8 ? whole || !shard : !b->shared))
        b->work_row = mt_row_add(g, MT_DEVICE_ARENA, b->fp8 && shard ? MT_ROW_OPTIM : MT_ROW_WEIGHT,
                                 b->work_piece, "work.%s", name);
    if (b->fp8 && !b->shared && (whole || shard))
        b->wire_row = mt_row_add(g, MT_DEVICE_ARENA, shard ? MT_ROW_WEIGHT : MT_ROW_OPTIM, b->wire_piece,
                                 "fp8.%s", name);
}

/* What is gathered once for several passes: as it travels. */
static void kept_rows(struct mt_store *s, struct mt_bucket *b, struct mt_ledger *g, const char *name)
{
    const struct mt_unit *u = &s->unit[b->unit];
    int64_t n = b->members, rail = rail_members(b);
    b->region_bytes = b->fp8          ? largest(b->wire_edge, n, rail)
                      : b->work_bytes ? largest(b->work_edge, n, rail)
                                      : 4 * b->region;
    if (u->kept == MT_KEPT_REGION && b->near)
        b->region_row = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, b->region_bytes, "region.%s", name);
    if (u->in_host)
        b->host_row = mt_row_add(g, MT_HOST_ARENA, MT_ROW_GATHERED, b->region_bytes, "host.%s", name);
}

static void collective_rows(struct mt_store *s, int i, struct mt_ledger *g, bool inference)
{
    struct mt_bucket *b = &s->bucket[i];
    char name[NAME];
    int64_t bytes = b->work_bytes ? b->n * b->work_bytes : 4 * b->n * b->elements;
    bucket_name(s, i, name);
    b->full_row[MT_FORWARD] = mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, bytes, "full.f.%s", name);
    if (b->fp8)
        b->wire_full_row =
            mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, b->n * b->wire_bytes, "fp8.full.%s", name);
    if (inference) return;
    b->full_row[MT_BACKWARD] =
        s->unit[b->unit].kept == MT_KEPT_ALL
            ? b->full_row[MT_FORWARD]
            : mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_GATHERED, bytes, "full.b.%s", name);
    kept_rows(s, b, g, name);
    b->grad_row =
        mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->n * b->elements, "grad.full.%s", name);
    int64_t el = mt_dtype_bytes(b->grad_wire);
    if (b->grad_wire != MT_F32)
        b->grad_wire_row =
            mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, el * b->region, "grad.wire.%s", name);
    if (b->near)
        b->node_staging_row =
            mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, 4 * b->near * b->region, "stage.node.%s", name);
    b->staging_row =
        mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_STAGING, el * rail_members(b) * b->piece, "stage.%s", name);
}

void mt_store_layout(struct mt_store *s, struct mt_ledger *g, bool inference)
{
    mt_store_form_buckets(s);
    offsets(s);
    if (inference) s->offload = (struct mt_offload){0};
    for (int i = 0; i < s->n_buckets; i++) {
        cut_bucket(s, i);
        state_rows(s, i, g, inference);
        if (s->bucket[i].members > 1) collective_rows(s, i, g, inference);
    }
    mt_store_shared_rows(s, g, inference);
    for (int i = 0; i < s->n_matrices && !inference; i++) {
        struct mt_matrix *m = &s->matrix[i];
        if (m->form == MT_FORM_PACKED && !s->target->one_form)
            m->turned_row = mt_row_add(
                g, MT_DEVICE_ARENA, MT_ROW_GATHERED,
                s->bucket[m->bucket].n * mt_packed_bytes(s->target, s->dtype, MT_PACKED_NN, m->rows, m->cols),
                "turned.%d.%d", m->unit, i);
    }
    mt_strips_layout(s, g);
    mt_factors_layout(s, g);
}
