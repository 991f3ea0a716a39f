/* keep.c: what a layer keeps from forward to backward, which of it goes to the host meanwhile, and its way there and back. */
#include <stdlib.h>

#include "model/buffers.h"

/* ---- what to keep ---- */
/* Weights between n1 and queries, keys and values. */
static double projection_weights(const struct mt_shape *s)
{
    double D = (double)s->D, q = (double)(s->H * s->A), Cq = (double)s->Cq, Ck = (double)s->Ck;
    if (!s->Ck) return D * (q + (double)(s->G * (s->A + s->B)));
    return (s->Cq ? Cq * (D + q) : D * q) + D * (Ck + (double)s->R) +
           Ck * (double)(s->H * (s->A - s->R + s->B));
}

/* What it takes to compute a class of results of layer l again, in bytes from or to memory; FLOPs count as the bytes that go by
 * in their time, of which there are about 200 to a byte on every machine this runs on. Only the ranking of classes depends on it. */
static double recomputed(const struct mt_model *m, int l, int keep)
{
    const struct mt_shape *s = &m->shape;
    const double flops_per_byte = 200, el = (double)mt_dtype_bytes(m->opt.dtype), N = (double)s->N,
                 D = (double)s->D, heads = (double)(s->H * s->A + s->G * (s->A + s->B)),
                 width = (double)(mt_is_moe(s, l) ? s->Fs : s->Fd), F = (double)s->F,
                 rows = (double)(s->C < s->M ? s->C : s->M), pairs = (double)mt_model_pairs(s, l),
                 H = (double)s->H;
    switch ((mt_choice_keep)keep) {
    case MT_KEEP_ATTN_NORM:
    case MT_KEEP_FFN_NORM: return 2 * N * D * el;
    case MT_KEEP_QKV:
        return 2 * N * projection_weights(s) / flops_per_byte + (3 * N * D + 3 * N * heads) * el;
    case MT_KEEP_ATTENTION:
        return 2 * pairs * H * (double)(s->A + s->B) / flops_per_byte +
               (N * heads + N * H * (double)s->B) * el;
    case MT_KEEP_ATTN_OUT:
        return 2 * N * H * (double)s->B * D / flops_per_byte + (2 * N * D + N * H * (double)s->B) * el;
    case MT_KEEP_FFN_UP: return 4 * N * D * width / flops_per_byte + (N * D + 2 * N * width) * el;
    case MT_KEEP_FFN_ACT: return 3 * N * width * el;
    case MT_KEEP_ROUTER: return 2 * N * D * (double)s->E / flops_per_byte + N * D * el;
    /* Over the links of a node a byte takes the time of eight in memory. */
    case MT_KEEP_DISPATCH: return (m->opt.mesh.ep > 1 ? 4 + 8 : 2) * rows * D * el;
    case MT_KEEP_EXPERT_UP: return 4 * rows * D * F / flops_per_byte + (rows * D + 2 * rows * F) * el;
    case MT_KEEP_EXPERT_ACT: return 3 * rows * F * el;
    }
    return 0;
}

struct choice {
    int layer;
    int keep;
    double gain; /* saved for each byte kept */
    int64_t bytes;
};
/* The largest gain first; of equal ones the last layer, whose results are kept for the shortest time. */
static int by_gain(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->gain > y->gain || x->gain < y->gain) return x->gain < y->gain ? 1 : -1;
    return x->layer != y->layer ? y->layer - x->layer : x->keep - y->keep;
}

void mt_keeps_choose(struct mt_model *m)
{
    int64_t room = m->opt.keep_memory, L = m->shape.L;
    struct choice *all = malloc((size_t)(L * MT_N_KEEPS) * sizeof *all);
    int n = 0;
    MT_ASSERT(all);
    for (int l = 0; l < (int)L; l++) {
        m->layer[l].offloaded = l < m->opt.offloaded;
        for (int k = 0; k < MT_N_KEEPS; k++) {
            int64_t bytes = m->opt.keeps >> k & 1 ? mt_keep_bytes(m, l, k) : 0;
            if (bytes) all[n++] = (struct choice){l, k, recomputed(m, l, k) / (double)bytes, bytes};
        }
    }
    qsort(all, (size_t)n, sizeof *all, by_gain);
    for (int i = 0; i < n; i++) {
        if (m->opt.keep_memory && all[i].bytes > room) continue;
        room -= all[i].bytes;
        m->layer[all[i].layer].keeps |= (uint32_t)1 << all[i].keep;
    }
    free(all);
}

bool mt_keeps_rounds(const struct mt_model *m)
{
    const uint32_t rounds = 1u << MT_KEEP_DISPATCH | 1u << MT_KEEP_EXPERT_UP | 1u << MT_KEEP_EXPERT_ACT;
    for (int l = 0; l < (int)m->shape.L; l++)
        if (m->layer[l].keeps & rounds) return true;
    return false;
}

/* ---- a pass over a block ---- */
static mt_view of_micro_batch(const struct mt_model *m, const struct mt_saved *s, enum mt_pass pass,
                              int64_t mb)
{
    return mt_view_part(s->at[pass], mb % m->opt.span * s->rows, s->rows);
}
mt_view mt_model_boundary(const struct mt_model *m, int64_t layer, enum mt_pass pass, int64_t mb)
{
    return of_micro_batch(m, &m->layer[layer].x, pass, mb);
}
mt_view mt_model_output(const struct mt_model *m, int64_t layer, int64_t mb)
{
    const struct mt_shape *s = &m->shape;
    bool last = layer + 1 >= mt_own_layers(s); /* of a depth */
    return last ? mt_model_span_part(m, m->depth[mt_depth_of(s, layer)].x, mb)
                : mt_model_boundary(m, layer + 1, MT_FORWARD, mb);
}

void mt_block_buffers(struct mt_rank *r, int l, enum mt_pass pass)
{
    const struct mt_layer *y = &r->m->layer[l];
    r->b = r->m->b;
    for (int i = 0; i < y->n_kept; i++)
        *(mt_view *)(void *)((char *)&r->b + y->kept[i].slot) =
            of_micro_batch(r->m, &y->kept[i], pass, r->mb);
}

/* ---- to the host and back ---- */
static void save(struct mt_rank *r, const struct mt_saved *v)
{
    struct mt_stream *s = &r->ctx->stream[MT_D2H];
    if (!mt_view_given(v->host)) return;
    mt_stream_wait(s, r->passed);
    mt_copy_d2h(s, v->host, v->at[MT_FORWARD]);
}
static void fetch(struct mt_rank *r, const struct mt_saved *v)
{
    if (mt_view_given(v->host)) mt_copy_h2d(&r->ctx->stream[MT_H2D], v->at[MT_BACKWARD], v->host);
}

void mt_layer_save_input(struct mt_rank *r, int l)
{
    const struct mt_model *m = r->m;
    int64_t before = l - m->opt.offload_prefetch;
    if (before >= 0) mt_stream_throttle(&r->ctx->stream[MT_COMPUTE], r->saved[before]);
    if (before > 0) mt_stream_throttle(&r->ctx->stream[MT_COMPUTE], r->kept[before - 1]);
    if (!m->layer[l].offloaded) return;
    save(r, &m->layer[l].x);
    r->saved[l] = mt_event_record(&r->ctx->stream[MT_D2H]);
}

void mt_layer_save_kept(struct mt_rank *r, int l)
{
    const struct mt_layer *y = &r->m->layer[l];
    if (!y->offloaded || !r->m->opt.keep_on_host) return;
    for (int i = 0; i < y->n_kept; i++) save(r, &y->kept[i]);
    r->kept[l] = mt_event_record(&r->ctx->stream[MT_D2H]);
}

void mt_layer_fetch(struct mt_rank *r, int l, mt_event after)
{
    const struct mt_layer *y = &r->m->layer[l];
    struct mt_stream *s = &r->ctx->stream[MT_H2D];
    if (!y->offloaded) return;
    mt_stream_throttle(s, after);
    mt_stream_wait(s, r->kept[l]);
    mt_stream_wait(s, r->saved[l]);
    fetch(r, &y->x);
    for (int i = 0; i < y->n_kept; i++) fetch(r, &y->kept[i]);
    r->fetched[l] = mt_event_record(s);
}

void mt_layer_use(struct mt_rank *r, int l)
{
    if (r->m->layer[l].offloaded) mt_stream_wait(&r->ctx->stream[MT_COMPUTE], r->fetched[l]);
}
