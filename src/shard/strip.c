#include "shard/strip.h"

static int64_t width(const struct mt_matrix *m)
{
    return m->cols ? m->cols : 1;
}
static int64_t at_most(int64_t x, int64_t hi)
{
    return x < hi ? x : hi;
}
static const struct mt_matrix *matrix_of(const struct mt_store *s, int tensor)
{
    return &s->matrix[s->tensor[tensor].matrix];
}
static const struct mt_bucket *bucket_of(const struct mt_store *s, int tensor)
{
    return &s->bucket[matrix_of(s, tensor)->bucket];
}

/* ---- which rows ---- */
static int64_t strip_rows(const struct mt_store *s, const struct mt_matrix *m)
{
    int64_t step = mt_store_step(s, m), rows = s->offload.slot_bytes / 4 / width(m) / step * step;
    return rows > step ? rows : step;
}

/* Rows of the matrix that hold the tensor's rows of member k, at multiples of the step. */
static void reach(const struct mt_store *s, int tensor, int k, int64_t *first, int64_t *last)
{
    const struct mt_matrix *m = matrix_of(s, tensor);
    struct mt_local l = mt_store_local_of(s, tensor, k);
    int64_t step = mt_store_step(s, m), a = s->tensor[tensor].row0 + l.row0, b = a + l.rows;
    *first = a / step * step;
    *last = l.rows ? at_most((b + step - 1) / step * step, m->rows) : *first;
}

/* Strip i of the tensor as member k has it. */
static struct mt_strip strip_of(const struct mt_store *s, int tensor, int64_t i, int k)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    struct mt_local l = mt_store_local_of(s, tensor, k);
    struct mt_strip p = {.tensor = tensor, .i = i % t->strips, .part = l.part0 + i / t->strips};
    int64_t first, last, most = strip_rows(s, matrix_of(s, tensor)), a = t->row0 + l.row0, b = a + l.rows;
    if (i / t->strips >= l.parts) return p;
    reach(s, tensor, k, &first, &last);
    p.row0 = first + p.i * most;
    if (p.row0 >= last) return (struct mt_strip){.tensor = tensor, .i = p.i};
    p.rows = at_most(p.row0 + most, last) - p.row0;
    p.own0 = p.row0 > a ? p.row0 : a;
    p.own = at_most(p.row0 + p.rows, b) - p.own0;
    return p;
}

int64_t mt_strip_count(const struct mt_store *s, int tensor)
{
    return s->tensor[tensor].parts * s->tensor[tensor].strips;
}
int64_t mt_strip_per_part(const struct mt_store *s, int tensor)
{
    return s->tensor[tensor].strips;
}
struct mt_strip mt_strip_at(const struct mt_store *s, int tensor, int64_t i)
{
    return strip_of(s, tensor, i, bucket_of(s, tensor)->me);
}
bool mt_strip_shares(const struct mt_store *s, const struct mt_strip *p, int by)
{
    const struct mt_tensor *t = &s->tensor[p->tensor];
    const struct mt_matrix *m = matrix_of(s, p->tensor);
    int64_t step = mt_store_step(s, m), end = t->row0 + t->rows;
    if (by < 0) return p->i == 0 && t->row0 % step;
    bool last = p->i + 1 == t->strips || bucket_of(s, p->tensor)->members > 1;
    return last && end % step && end < m->rows;
}

/* ---- where ---- */
enum mt_arena mt_strip_side(const struct mt_store *s, int tensor)
{
    const struct mt_bucket *b = bucket_of(s, tensor);
    if (s->tensor[tensor].factor[0] || s->tensor[tensor].factor[1])
        return MT_DEVICE_ARENA; /* where factors are */
    bool exchanged = s->tensor[tensor].optimizer == MT_MUON && !s->unit[b->unit].experts && b->members > 1 &&
                     !b->dealt; /* owned whole */
    return s->offload.host_compute && b->work_bytes && !exchanged ? MT_HOST_ARENA : MT_DEVICE_ARENA;
}

bool mt_bucket_offloads(const struct mt_store *s, int bucket)
{
    const struct mt_bucket *b = &s->bucket[bucket];
    for (int w = 0; w < MT_N_STATES; w++)
        if (b->host[w]) return true;
    return s->offload.host_compute && b->work_bytes;
}

mt_view mt_strip_home(const struct mt_store *s, const struct mt_strip *p, enum mt_state what, bool own)
{
    const struct mt_matrix *m = matrix_of(s, p->tensor);
    const struct mt_bucket *b = bucket_of(s, p->tensor);
    int64_t row = own ? p->own0 : p->row0, w = width(m);
    if (!p->rows || b->row[what] < 0) return MT_NONE;
    int64_t off = b->at + p->part * b->elements + m->off + row * w - b->edge[b->me];
    return mt_view_of(b->row[what], MT_F32, 4 * off, own ? p->own : p->rows, w, 0);
}

mt_view mt_strip_work(const struct mt_store *s, const struct mt_strip *p, int32_t lane)
{
    const struct mt_matrix *m = matrix_of(s, p->tensor);
    const struct mt_bucket *b = bucket_of(s, p->tensor);
    int64_t row_bytes = m->form == MT_FORM_ROWS
                            ? m->cols * mt_dtype_bytes(s->dtype)
                            : mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, s->target->panel, m->cols) /
                                  s->target->panel;
    int64_t off = b->work_at + p->part * b->work_bytes + m->work_off + p->row0 * row_bytes -
                  b->work_edge[b->me];
    int32_t row = b->work_row < 0 ? lane : b->work_row;
    if (b->work_row < 0) off = 0;
    return m->form == MT_FORM_ROWS
               ? mt_view_of(row, s->dtype, off, p->rows, m->cols, 0)
               : mt_packed_view(s->target, row, s->dtype, MT_PACKED_NT, off, p->rows, m->cols);
}

mt_view mt_strip_wire(const struct mt_store *s, const struct mt_strip *p, int32_t lane)
{
    const struct mt_matrix *m = matrix_of(s, p->tensor);
    const struct mt_bucket *b = bucket_of(s, p->tensor);
    int64_t bytes = mt_fp8_form(s->target, s->dtype, p->rows, m->cols).bytes;
    if (b->wire_row < 0) return mt_view_of(lane, MT_U8, 0, bytes, 0, 0);
    int64_t band = mt_fp8_form(s->target, s->dtype, m->rows, m->cols).band_bytes;
    return mt_view_of(b->wire_row, MT_U8,
                      b->wire_at + p->part * b->wire_bytes + m->wire_off + p->row0 / MT_FP8_TILE * band -
                          b->wire_edge[b->me],
                      bytes, 0, 0);
}

/* ---- layout ---- */
/* Whether the tensor's strips need a lane of this kind on a side. */
static bool needs_lane(const struct mt_store *s, int tensor, enum mt_arena side, int lane)
{
    const struct mt_tensor *t = &s->tensor[tensor];
    const struct mt_bucket *b = bucket_of(s, tensor);
    if (!b->work_bytes) return false;
    if (lane == MT_LANE_FORM) return side == MT_DEVICE_ARENA && b->host[MT_STATE_MASTER] && b->fp8;
    if (b->host[lane] != (side == MT_DEVICE_ARENA)) return false; /* it lives on this side */
    if (lane == MT_STATE_MASTER && side == MT_DEVICE_ARENA)
        return true; /* to be packed, wherever it is changed */
    if (t->optimizer == MT_FROZEN || (lane == MT_STATE_V && !mt_optimizer_has(t->optimizer, MT_STATE_V)))
        return false;
    return mt_strip_side(s, tensor) == side;
}

static int64_t lane_bytes(const struct mt_store *s, const struct mt_strip *p, enum mt_arena side, int lane)
{
    const struct mt_matrix *m = matrix_of(s, p->tensor);
    if (lane != MT_LANE_FORM)
        return 4 * width(m) * (lane == MT_STATE_MASTER && side == MT_DEVICE_ARENA ? p->rows : p->own);
    return bucket_of(s, p->tensor)->members > 1
               ? mt_packed_bytes(s->target, s->dtype, MT_PACKED_NT, p->rows, m->cols)
               : mt_fp8_form(s->target, s->dtype, p->rows, m->cols).bytes;
}

/* Strips of the tensor on the member that has most. */
static void cut_tensor(struct mt_store *s, int tensor)
{
    struct mt_tensor *t = &s->tensor[tensor];
    const struct mt_bucket *b = bucket_of(s, tensor);
    int64_t most = strip_rows(s, matrix_of(s, tensor));
    for (int k = 0; k < b->members; k++) {
        int64_t first, last, parts = mt_store_local_of(s, tensor, k).parts;
        reach(s, tensor, k, &first, &last);
        int64_t strips = (last - first + most - 1) / most;
        if (parts > t->parts) t->parts = parts;
        if (strips > t->strips) t->strips = strips;
    }
}

static void widen_lanes(struct mt_store *s, int tensor)
{
    for (int k = 0; k < bucket_of(s, tensor)->members; k++)
        for (int64_t i = 0; i < s->tensor[tensor].strips; i++) { /* all parts are alike */
            struct mt_strip p = strip_of(s, tensor, i, k);
            for (int side = 0; side < MT_N_ARENAS && p.rows; side++)
                for (int lane = 0; lane < MT_N_LANES; lane++) {
                    if (!needs_lane(s, tensor, (enum mt_arena)side, lane)) continue;
                    int64_t bytes = lane_bytes(s, &p, (enum mt_arena)side, lane);
                    if (bytes > s->lane_bytes[side][lane]) s->lane_bytes[side][lane] = bytes;
                }
        }
}

void mt_strips_layout(struct mt_store *s, struct mt_ledger *g)
{
    static const char *const what[MT_N_LANES] = {"master", "grad", "m", "v", "form"};
    static const char *const where[MT_N_ARENAS] = {"", "host."};
    for (int t = 0; t < s->n_tensors; t++) {
        if (!mt_bucket_offloads(s, matrix_of(s, t)->bucket)) continue;
        cut_tensor(s, t);
        widen_lanes(s, t);
    }
    for (int side = 0; side < MT_N_ARENAS; side++)
        for (int k = 0; k < s->offload.slots; k++)
            for (int lane = 0; lane < MT_N_LANES; lane++) {
                int64_t bytes = s->lane_bytes[side][lane];
                s->lane_row[side][k][lane] = bytes ? mt_row_add(g, (enum mt_arena)side, MT_ROW_OPTIM, bytes,
                                                                "%slane.%d.%s", where[side], k, what[lane])
                                                   : -1;
            }
}
