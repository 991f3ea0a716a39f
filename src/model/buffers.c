#include "model/buffers.h"

#include <stddef.h>
#include <stdio.h>

/* Elements between rows of d1 elements: a target may want rows whose bytes are a multiple of 512 to be longer. */
int64_t mt_padded(const struct mt_target *t, mt_dtype dtype, int64_t d1)
{
    int64_t el = mt_dtype_bytes(dtype);
    return d1 + (d1 * el % 512 == 0 ? t->row_pad_bytes / el : 0);
}

int mt_buffers_of(const struct mt_model *m, int l, bool backward, struct mt_buffer_info out[MT_MAX_BUFFERS])
{
    const struct mt_shape *s = &m->shape;
    const bool any_dense = l < 0 ? s->first_dense > 0 : !mt_is_moe(s, l),
               any_moe = l < 0 ? s->E > 0 : mt_is_moe(s, l);
    const int64_t N = s->N, D = s->D, H = s->H, G = s->G, A = s->A, B = s->B, E = s->E, K = s->K, F = s->F,
                  Fd = s->Fd, Fs = s->Fs, R = s->R, Ck = s->Ck, Cq = s->Cq, mla = Ck > 0,
                  C = any_moe ? s->C : 0, M = any_moe ? s->M : 0, drop = any_moe && s->capacity > 0,
                  qk = s->qk_norm, dense = any_dense, moe = any_moe, shared = any_moe && Fs > 0,
                  far = any_moe && m->opt.mesh.ep > 1, aux = any_moe && mt_aux_any(m), tops = m->opt.tops,
                  span = m->opt.span;
    const mt_dtype T = m->opt.dtype, F32 = MT_F32, I32 = MT_I32;
    int n = 0;
#define ACT(name, keep, t, d0, d1) \
    out[n++] =                     \
        (struct mt_buffer_info){#name, offsetof(struct mt_buffers, name), MT_KEEP_##keep, t, d0, d1, 0};
#define PAD(name, keep, d0, d1)                                                           \
    out[n++] = (struct mt_buffer_info){                                                   \
        #name, offsetof(struct mt_buffers, name), MT_KEEP_##keep, T, (d1) > 0 ? (d0) : 0, \
        d1,    mt_padded(m->store.target, T, d1)};
    MT_LAYER_BUFFERS(ACT, PAD)
    if (backward) {
        MT_BACKWARD_BUFFERS(ACT, PAD)
    } else {
        /* Two boundaries are enough where nothing is kept for backward. */
        ACT(dxa, NEVER, T, N, D)
        ACT(dxb, NEVER, T, N, D)
    }
#undef ACT
#undef PAD
    MT_ASSERT(n <= MT_MAX_BUFFERS);
    return n;
}

static int64_t bytes_of(const struct mt_buffer_info *i)
{
    int64_t row = i->ld ? i->ld : i->d1 ? i->d1 : 1;
    return i->d0 * row * mt_dtype_bytes(i->dtype);
}
int64_t mt_keep_bytes(const struct mt_model *m, int l, int keep)
{
    struct mt_buffer_info info[MT_MAX_BUFFERS];
    int64_t bytes = 0;
    for (int i = mt_buffers_of(m, l, false, info); i-- > 0;)
        if (info[i].keep == keep) bytes += bytes_of(&info[i]) * m->opt.span;
    return bytes;
}

static mt_view row_for(const struct mt_buffer_info *i, int64_t times, struct mt_ledger *g,
                       enum mt_arena arena, enum mt_row_class c, const char *name)
{
    if (i->ld) return mt_tensor_add_ld(g, arena, c, i->dtype, times * i->d0, i->d1, i->ld, name);
    return mt_tensor_add(g, arena, c, i->dtype, times * i->d0, i->d1, 0, "%s", name);
}

/* Rounds behind the first use the shared rows, whatever is kept. */
static bool in_rounds(int keep)
{
    return keep == MT_KEEP_DISPATCH || keep == MT_KEEP_EXPERT_UP || keep == MT_KEEP_EXPERT_ACT;
}
/* Whether some layer that has the buffer does not keep it. */
static bool some_share(const struct mt_model *m, int index, const struct mt_buffer_info *shared)
{
    struct mt_buffer_info info[MT_MAX_BUFFERS];
    if (shared->keep == MT_KEEP_NEVER || in_rounds(shared->keep)) return true;
    for (int l = 0; l < (int)m->shape.L; l++) {
        mt_buffers_of(m, l, false, info);
        if (info[index].d0 > 0 && !(m->layer[l].keeps >> shared->keep & 1)) return true;
    }
    return false;
}

void mt_buffers_rows(struct mt_model *m, struct mt_ledger *g)
{
    struct mt_buffer_info info[MT_MAX_BUFFERS];
    int n = mt_buffers_of(m, -1, !m->opt.inference, info);
    for (int i = 0; i < n; i++) {
        mt_view *to = (mt_view *)(void *)((char *)&m->b + info[i].slot);
        *to = info[i].d0 > 0 && some_share(m, i, &info[i])
                  ? row_for(&info[i], 1, g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, info[i].name)
                  : MT_NONE;
    }
}

static struct mt_saved saved_rows(const struct mt_model *m, struct mt_ledger *g, int l,
                                  const struct mt_buffer_info *i, bool host)
{
    char name[40];
    struct mt_saved s = {.slot = i->slot, .rows = i->d0, .host = MT_NONE};
    snprintf(name, sizeof name, "%s.%d", i->name, l);
    s.at[MT_FORWARD] = s.at[MT_BACKWARD] =
        row_for(i, m->opt.span, g, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, name);
    if (!host) return s;
    snprintf(name, sizeof name, "%s.back.%d", i->name, l);
    s.at[MT_BACKWARD] = row_for(i, m->opt.span, g, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, name);
    snprintf(name, sizeof name, "host.%s.%d", i->name, l);
    s.host = row_for(i, m->opt.span, g, MT_HOST_ARENA, MT_ROW_ACTIVATION, name);
    return s;
}

void mt_saved_rows(struct mt_model *m, struct mt_ledger *g, int l)
{
    struct mt_buffer_info info[MT_MAX_BUFFERS],
        x = {.name = "x", .keep = MT_KEEP_NEVER, .dtype = m->opt.dtype, .d0 = m->shape.N, .d1 = m->shape.D};
    struct mt_layer *y = &m->layer[l];
    if (m->opt.inference) {
        mt_view at = l % 2 ? m->b.dxb : m->b.dxa;
        y->x = (struct mt_saved){.at = {at, at}, .host = MT_NONE, .rows = m->shape.N};
        return;
    }
    y->x = saved_rows(m, g, l, &x, y->offloaded);
    int n = mt_buffers_of(m, l, false, info);
    for (int i = 0; i < n; i++)
        if (info[i].d0 > 0 && info[i].keep != MT_KEEP_NEVER && y->keeps >> info[i].keep & 1) {
            MT_ASSERT(y->n_kept < MT_MAX_SAVED);
            y->kept[y->n_kept++] = saved_rows(m, g, l, &info[i], y->offloaded && m->opt.keep_on_host);
        }
}
