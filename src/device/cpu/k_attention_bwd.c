/* Attention backward. Probabilities come back from the scores and lse. Two independent passes, so that
 * neither needs sums that others write: dk and dv of a key block over all queries that see it, dq of a query
 * tile over its keys. With P the probabilities, dP = dO V^T and delta = <dO, O>:  dS = P (dP - delta) scale,
 * dV = P^T dO,  dK = dS^T Q, dQ = dS K. Delta is computed for each tile where it is used, which costs less
 * than waiting for a pass of its own; the argument delta is left alone. */
#include "device/cpu/attention.h"

struct bwd {
    struct mt_att_bwd a;
    void *k_nt, *v_nt, *k_nn; /* a packed key block */
    void *q, *dout, *p, *ds;  /* rows of the tile */
    float *s, *dp, *dq, *delta, *mixed;
    float *dk, *dv; /* of the key block */
};

static void bwd_layout(struct bwd *f)
{
    struct mt_att *t = &f->a.t;
    int64_t lda = mt_att_ld(t, t->a), ldb = mt_att_ld(t, t->b);
    int64_t row = (lda + ldb + 2 * ATT_KEYS) * t->size + 2 * ATT_KEYS * 4 + t->a * 4 + 4;
    f->k_nt = mt_att_take(t, mt_att_nt_bytes(t, t->a));
    f->v_nt = mt_att_take(t, mt_att_nt_bytes(t, t->b));
    f->k_nn = mt_att_take(t, mt_att_nn_bytes(t, t->a));
    f->dk = mt_att_take(t, ATT_KEYS * t->a * 4);
    f->dv = mt_att_take(t, ATT_KEYS * t->b * 4);
    f->mixed = mt_att_take(t, mt_att_mix_bytes(t->a));
    mt_att_set_tile(t, row);
    int64_t rows = t->tile * t->per;
    f->q = mt_att_take(t, rows * lda * t->size);
    f->dout = mt_att_take(t, rows * ldb * t->size);
    f->p = mt_att_take(t, rows * ATT_KEYS * t->size);
    f->ds = mt_att_take(t, rows * ATT_KEYS * t->size);
    f->s = mt_att_take(t, rows * ATT_KEYS * 4);
    f->dp = mt_att_take(t, rows * ATT_KEYS * 4);
    f->dq = mt_att_take(t, rows * t->a * 4);
    f->delta = mt_att_take(t, rows * 4);
}

MT_VEC static void load_tile(struct bwd *f, int64_t g, int64_t t0, int64_t t1)
{
    const struct mt_att *t = &f->a.t;
    float *delta = f->delta;
    mt_att_gather(t, f->q, &f->a.q, g, t0, t1);
    mt_att_gather(t, f->dout, &f->a.dout, g, t0, t1);
    for (int64_t i = t0; i < t1; i++)
        for (int64_t h = g * t->per; h < (g + 1) * t->per; h++) {
            const void *dout = f->a.dout.at + i * f->a.dout.token + h * f->a.dout.head;
            const void *o = f->a.o.at + i * f->a.o.token + h * f->a.o.head;
            float x[MT_CHUNK], y[MT_CHUNK], sum = 0;
            for (int64_t j = 0; j < t->b; j += MT_CHUNK) {
                int64_t n = mt_min64(MT_CHUNK, t->b - j);
                sum += mt_vec_dot(mt_vec_in(dout, t->dtype, j, n, x), mt_vec_in(o, t->dtype, j, n, y), n);
            }
            *delta++ = sum;
        }
}

/* p and ds of one row. whole: every key of the block is seen, and mask is not looked at. */
MT_VEC_INLINE void gradient_row(float p[ATT_KEYS], float ds[ATT_KEYS], const float *s, const float *dp,
                                float base, float delta, float scale, const uint32_t *mask, bool whole)
{
    for (int j = 0; j < ATT_KEYS; j++) {
        float e = mt_vec_exp(s[j] * scale - base), d = e * (dp[j] - delta) * scale;
        p[j] = whole ? e : mt_att_masked(e, mask[j]);
        ds[j] = whole ? d : mt_att_masked(d, mask[j]);
    }
}

/* p and ds of the rows from `row` on, from s and dp */
MT_VEC static void gradients(struct bwd *f, int64_t g, const struct mt_att_range *r, int64_t row)
{
    const struct mt_att *t = &f->a.t;
    for (int64_t i = r->lo; i < r->hi; i++) {
        uint32_t mask[ATT_KEYS];
        bool whole = mt_att_whole(t, i, r->ks);
        if (!whole) mt_att_mask(t, i, r->ks, mask);
        for (int64_t h = 0; h < t->per; h++, row++) {
            const float *s = f->s + row * ATT_KEYS, *dp = f->dp + row * ATT_KEYS;
            float p[ATT_KEYS], ds[ATT_KEYS];
            float base = f->a.lse[(g * t->per + h) * t->tokens + i], delta = f->delta[row];
            if (whole)
                gradient_row(p, ds, s, dp, base, delta, t->scale, NULL, true);
            else
                gradient_row(p, ds, s, dp, base, delta, t->scale, mask, false);
            mt_att_put_row(t, f->p, row, p);
            mt_att_put_row(t, f->ds, row, ds);
        }
    }
}

/* p and ds of range r; the tile begins at token t0 */
static void tile_gradients(struct bwd *f, int64_t g, const struct mt_att_range *r, int64_t t0)
{
    const struct mt_att *t = &f->a.t;
    int64_t row = (r->lo - t0) * t->per, rows = (r->hi - r->lo) * t->per;
    const char *q = (char *)f->q + row * mt_att_ld(t, t->a) * t->size;
    const char *dout = (char *)f->dout + row * mt_att_ld(t, t->b) * t->size;
    mt_att_scores(t, f->s + row * ATT_KEYS, q, f->k_nt, rows, r, t->a);
    mt_att_scores(t, f->dp + row * ATT_KEYS, dout, f->v_nt, rows, r, t->b);
    gradients(f, g, r, row);
}

/* acc[keys][width] += p[rows][keys]^T x[rows][width] */
static void add_outer(const struct bwd *f, float *acc, const void *p, const void *x, int64_t rows,
                      const struct mt_att_range *r, int64_t width)
{
    const struct mt_gemm_tn g = {.dw = acc,
                                 .dy = p,
                                 .x = x,
                                 .m = rows,
                                 .o = r->ke - r->ks,
                                 .i = width,
                                 .lddw = width,
                                 .lddy = ATT_KEYS,
                                 .ldx = mt_att_ld(&f->a.t, width),
                                 .accumulate = true};
    f->a.t.gemm->mul_tn(&g, 0, 1, f->a.t.scratch);
}

static void keys_pass(struct bwd *f, int64_t g, int64_t ks)
{
    const struct mt_att *t = &f->a.t;
    struct mt_att_range all = mt_att_seen(t, ks, t->tokens, ks);
    mt_att_pack(t, f->k_nt, &f->a.k, g, &all);
    mt_att_pack(t, f->v_nt, &f->a.v, g, &all);
    memset(f->dk, 0, (size_t)(ATT_KEYS * t->a * 4));
    memset(f->dv, 0, (size_t)(ATT_KEYS * t->b * 4));
    for (int64_t t0 = all.lo; t0 < all.hi; t0 += t->tile) {
        struct mt_att_range r = {t0, mt_min64(t0 + t->tile, all.hi), all.ks, all.ke};
        int64_t rows = (r.hi - r.lo) * t->per;
        load_tile(f, g, r.lo, r.hi);
        tile_gradients(f, g, &r, t0);
        add_outer(f, f->dv, f->p, f->dout, rows, &r, t->b);
        add_outer(f, f->dk, f->ds, f->q, rows, &r, t->a);
    }
    mt_att_spread(t, &f->a.dk, f->dk, NULL, 1, g, all.ks, all.ke);
    mt_att_spread(t, &f->a.dv, f->dv, NULL, 1, g, all.ks, all.ke);
}

static void queries_pass(struct bwd *f, int64_t g, int64_t t0, int64_t t1)
{
    const struct mt_att *t = &f->a.t;
    load_tile(f, g, t0, t1);
    memset(f->dq, 0, (size_t)((t1 - t0) * t->per * t->a * 4));
    for (int64_t ks = mt_att_block(t->begin[t0]); ks < t1; ks += ATT_KEYS) {
        struct mt_att_range r = mt_att_seen(t, t0, t1, ks);
        int64_t row = (r.lo - t0) * t->per, rows = (r.hi - r.lo) * t->per;
        if (rows <= 0) continue;
        mt_att_pack(t, f->k_nt, &f->a.k, g, &r);
        mt_att_pack(t, f->v_nt, &f->a.v, g, &r);
        mt_att_turn(t, f->k_nn, f->k_nt, &r, t->a);
        tile_gradients(f, g, &r, t0);
        mt_att_mix(t, f->dq + row * t->a, NULL, (char *)f->ds + row * ATT_KEYS * t->size, f->k_nn, rows, &r,
                   t->a, f->mixed);
    }
    mt_att_spread(t, &f->a.dq, f->dq, NULL, t->per, g, t0, t1);
}

static void bwd_args(struct mt_att_bwd *f, const struct mt_call *c)
{
    int64_t a = f->t.a, b = f->t.b;
    f->dq = mt_att_arg(c, 0, a);
    f->dk = mt_att_arg(c, 1, a);
    f->dv = mt_att_arg(c, 2, b);
    f->dout = mt_att_arg(c, 3, b);
    f->o = mt_att_arg(c, 4, b);
    f->q = mt_att_arg(c, 6, a);
    f->k = mt_att_arg(c, 7, a);
    f->v = mt_att_arg(c, 8, b);
}

void mt_cpu_attention_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_attention_bwd *a = MT_ARGS(attention_bwd, c);
    struct bwd f = {.a = {.lse = a->lse}};
    struct mt_att *t = &f.a.t;
    mt_att_init(t, c, scratch, dev);
    bwd_args(&f.a, c);
    t->begin = a->begin;
    t->scale = (float)MT_SCALARS(attention_bwd, c)->scale;
    const struct mt_att_kernels *own = mt_att_own(t);
    if (own) {
        own->bwd(&f.a, part, parts);
        return;
    }
    bwd_layout(&f);
    int64_t tiles = (t->tokens + t->tile - 1) / t->tile, blocks = (t->tokens + ATT_KEYS - 1) / ATT_KEYS;
    for (int64_t u = part; u < t->groups * (tiles + blocks); u += parts) {
        int64_t g = u % t->groups, i = u / t->groups;
        if (i < blocks)
            keys_pass(&f, g, i * ATT_KEYS);
        else
            queries_pass(&f, g, (i - blocks) * t->tile, mt_min64((i - blocks + 1) * t->tile, t->tokens));
    }
}
