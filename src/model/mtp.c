/* mtp.c: modules that learn to predict further tokens (DeepSeek-V3, arXiv 2412.19437, section 2.2).
 *
 *   h'_i = M [norm_e(Emb(t_{i+k})); norm_h(h^{k-1}_i)]    h^k = norm_k(block(h'))    logits = head(h^k), for token t_{i+k+1}
 *
 * Embedding and head are the model's. h^0 is the model's own output, and each h^k is taken behind the norm in front of the head:
 * the paper's figure leaves that open; what serves the published weights does so. The embedding comes first in M's columns, as in
 * the published eh_proj. */
#include <stdio.h>

#include "model/buffers.h"

/* ---- tokens and labels ---- */
void mt_mtp_batch(const struct mt_ctx *c, const struct mt_model *m)
{
    int64_t n = m->host.tokens.dim[0], S = m->shape.S;
    const int32_t *tokens = mt_address(c, m->host.tokens), *first = mt_address(c, m->host.labels),
                  *begin = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos), *before = first;
    for (int64_t k = 1; k <= m->shape.mtp; k++) {
        int32_t *t = (int32_t *)mt_address(c, m->mtp.host_tokens) + (k - 1) * n,
                *l = (int32_t *)mt_address(c, m->mtp.host_labels) + (k - 1) * n;
        for (int64_t i = 0; i < n; i++) {
            bool next = i % S + 1 < S && first[i] >= 0 && begin[i + 1] == begin[i] &&
                        pos[i + 1] == pos[i] + 1;
            t[i] = i % S + k < S ? tokens[i + k] : 0;
            l[i] = next ? before[i + 1] : -1;
        }
        before = l;
    }
}

void mt_mtp_batch_in(struct mt_rank *r)
{
    const struct mt_mtp *p = &r->m->mtp;
    struct mt_stream *in = &r->ctx->stream[MT_H2D];
    if (!r->m->shape.mtp) return;
    mt_copy_h2d(in, p->tokens, p->host_tokens);
    mt_copy_h2d(in, p->labels, p->host_labels);
}

/* Of tokens or labels of all modules, module k's of the micro-batch. */
static mt_view of_module(const struct mt_rank *r, mt_view v, int k)
{
    int64_t N = r->m->shape.N;
    return mt_view_part(v, (k - 1) * r->m->opt.micro_batches * N + r->mb * N, N);
}
mt_view mt_mtp_labels(const struct mt_rank *r, int depth)
{
    return depth ? of_module(r, r->m->mtp.labels, depth) : mt_model_batch(r->m, r->mb).labels;
}

/* ---- rows ---- */
static mt_view wide(struct mt_model *m, struct mt_ledger *g, enum mt_row_class c, int64_t rows, int64_t cols,
                    const char *name, int k)
{
    char full[24];
    snprintf(full, sizeof full, "mtp.%s.%d", name, k);
    return mt_tensor_add_ld(g, MT_DEVICE_ARENA, c, m->opt.dtype, rows, cols,
                            mt_padded(m->store.target, m->opt.dtype, cols), full);
}

static void batch_rows(struct mt_model *m, struct mt_ledger *g)
{
    struct mt_mtp *p = &m->mtp;
    int64_t n = m->shape.mtp * m->opt.micro_batches * m->shape.N;
    p->host_tokens = mt_tensor_add(g, MT_HOST_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "host.mtp.tokens");
    p->host_labels = mt_tensor_add(g, MT_HOST_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "host.mtp.labels");
    p->tokens = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "mtp.tokens");
    p->labels = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_BATCH, MT_I32, n, 0, 0, "mtp.labels");
}

static void module_rows(struct mt_model *m, struct mt_ledger *g)
{
    struct mt_mtp *p = &m->mtp;
    int64_t N = m->shape.N, D = m->shape.D, all = m->opt.span * N;
    batch_rows(m, g);
    p->eh = wide(m, g, MT_ROW_SCRATCH, N, 2 * D, "eh", 0);
    p->deh = wide(m, g, MT_ROW_SCRATCH, N, 2 * D, "deh", 0);
    p->rstd_e = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, N, 0, 0, "mtp.rstd_e");
    p->rstd_h = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, N, 0, 0, "mtp.rstd_h");
    p->dh = wide(m, g, MT_ROW_SCRATCH, all, D, "dh", 0);
    for (int k = 0; k <= m->shape.mtp; k++) {
        struct mt_depth *d = &m->depth[k];
        if (k < m->shape.mtp) {
            d->h = wide(m, g, MT_ROW_ACTIVATION, all, D, "h", k);
            d->rstd =
                mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, MT_F32, all, 0, 0, "mtp.rstd.%d", k);
        }
        if (!k) continue;
        d->e = wide(m, g, MT_ROW_ACTIVATION, all, D, "e", k);
        d->de = wide(m, g, MT_ROW_ACTIVATION, all, D, "de", k);
    }
}

void mt_mtp_rows(struct mt_model *m, struct mt_ledger *g)
{
    const struct mt_shape *s = &m->shape;
    m->mtp = (struct mt_mtp){MT_NONE, MT_NONE, MT_NONE, MT_NONE, MT_NONE, MT_NONE, MT_NONE, MT_NONE, MT_NONE};
    MT_ASSERT(s->mtp < MT_MAX_DEPTHS);
    for (int k = 0; k < MT_MAX_DEPTHS; k++)
        m->depth[k] = (struct mt_depth){MT_NONE, MT_NONE, MT_NONE, MT_NONE, MT_NONE};
    m->depth[0].x = mt_own_layers(s) % 2 ? m->b.dxb : m->b.dxa; /* two boundaries are enough for inference */
    if (m->opt.inference) return;
    for (int k = 0; k <= s->mtp; k++)
        m->depth[k].x = mt_tensor_add(g, MT_DEVICE_ARENA, MT_ROW_ACTIVATION, m->opt.dtype, m->opt.span * s->N,
                                      s->D, 0, "x.last.%d", k);
    if (s->mtp) module_rows(m, g);
}

/* ---- weights ---- */
static const struct mt_layer *block_of(const struct mt_model *m, int depth)
{
    return &m->layer[mt_own_layers(&m->shape) + depth - 1];
}
mt_view mt_mtp_gain(const struct mt_model *m, int depth, enum mt_pass pass)
{
    /* The head is gathered for backward alone. */
    return depth ? block_of(m, depth)->w[pass].mtp_norm : m->w[MT_BACKWARD].norm;
}
mt_view mt_mtp_gain_grad(const struct mt_model *m, int depth)
{
    return depth ? block_of(m, depth)->g.mtp_norm : m->g.norm;
}

/* ---- passes ---- */
static mt_view here(const struct mt_rank *r, mt_view v)
{
    return mt_model_span_part(r->m, v, r->mb);
}
/* The embedding's columns of [N, 2 D], or those of what came before. */
static mt_view half(mt_view v, int right)
{
    int64_t el = mt_dtype_bytes((mt_dtype)v.dtype), D = v.dim[1] / 2;
    v.dim[1] = D;
    v.off += right * D * el;
    v.bytes -= D * el;
    return v;
}

void mt_mtp_embed_forward(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    for (int k = 1; k <= m->shape.mtp; k++)
        mt_embed_fwd(&r->ctx->stream[MT_COMPUTE], here(r, m->depth[k].e), of_module(r, m->mtp.tokens, k),
                     m->w[MT_FORWARD].embed);
}
void mt_mtp_embed_backward(struct mt_rank *r)
{
    const struct mt_model *m = r->m;
    for (int k = 1; k <= m->shape.mtp; k++)
        mt_embed_bwd(&r->ctx->stream[MT_COMPUTE], m->g.embed, here(r, m->depth[k].de),
                     of_module(r, m->mtp.tokens, k));
}

void mt_mtp_norm(struct mt_rank *r, int depth, enum mt_pass pass)
{
    const struct mt_depth *d = &r->m->depth[depth];
    mt_rmsnorm_fwd(&r->ctx->stream[MT_COMPUTE], here(r, d->h), here(r, d->rstd), here(r, d->x),
                   mt_mtp_gain(r->m, depth, pass), r->m->opt.eps);
}

/* Both inputs of the projection, which backward computes again. */
static void inputs(struct mt_rank *r, int depth, enum mt_pass pass)
{
    const struct mt_model *m = r->m;
    const struct mt_mtp *p = &m->mtp;
    const union mt_weights *w = &block_of(m, depth)->w[pass];
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    mt_fresh(s, p->eh);
    mt_rmsnorm_fwd(s, half(p->eh, 0), p->rstd_e, here(r, m->depth[depth].e), w->enorm, m->opt.eps);
    mt_rmsnorm_fwd(s, half(p->eh, 1), p->rstd_h, here(r, m->depth[depth - 1].h), w->hnorm, m->opt.eps);
}

void mt_mtp_forward(struct mt_rank *r, int depth)
{
    const struct mt_model *m = r->m;
    int64_t l = block_of(m, depth) - m->layer;
    inputs(r, depth, MT_FORWARD);
    mt_linear_fwd(&r->ctx->stream[MT_COMPUTE], mt_model_boundary(m, l, MT_FORWARD, r->mb), m->mtp.eh,
                  m->layer[l].w[MT_FORWARD].eh_proj, MT_NONE, MT_NONE);
}

void mt_mtp_backward(struct mt_rank *r, int depth, mt_view dx)
{
    const struct mt_model *m = r->m;
    const struct mt_mtp *p = &m->mtp;
    const struct mt_layer *y = block_of(m, depth);
    const union mt_weights *w = &y->w[MT_BACKWARD];
    struct mt_stream *s = &r->ctx->stream[MT_COMPUTE];
    inputs(r, depth, MT_BACKWARD);
    mt_linear_bwdw(s, y->g.eh_proj, dx, p->eh);
    mt_linear_bwdx(s, p->deh, dx, y->t.eh_proj, MT_NONE);
    mt_rmsnorm_bwd(s, here(r, p->dh), m->b.gain, half(p->deh, 1), here(r, m->depth[depth - 1].h), p->rstd_h,
                   w->hnorm, MT_NONE);
    mt_sum_rows(s, y->g.hnorm, m->b.gain);
    mt_rmsnorm_bwd(s, here(r, m->depth[depth].de), m->b.gain, half(p->deh, 0), here(r, m->depth[depth].e),
                   p->rstd_e, w->enorm, MT_NONE);
    mt_sum_rows(s, y->g.enorm, m->b.gain);
}
