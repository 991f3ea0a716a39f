/* Causal attention inside documents, blockwise, forward: a row keeps its maximum, its sum of exponentials and
 * its output so far, all relative to the maximum, and key blocks are added one after another. */
#include "device/cpu/attention.h"

struct fwd {
    struct mt_att_fwd a;
    void *k_nt, *v_nt, *v_nn; /* a packed key block */
    void *q, *p;              /* rows of the tile */
    float *s, *acc, *top, *sum, *fade, *mixed;
};

static void fwd_layout(struct fwd *f)
{
    struct mt_att *t = &f->a.t;
    int64_t ldq = mt_att_ld(t, t->a), row = ldq * t->size + ATT_KEYS * (4 + t->size) + t->b * 4 + 12;
    f->k_nt = mt_att_take(t, mt_att_nt_bytes(t, t->a));
    f->v_nt = mt_att_take(t, mt_att_nt_bytes(t, t->b));
    f->v_nn = mt_att_take(t, mt_att_nn_bytes(t, t->b));
    f->mixed = mt_att_take(t, mt_att_mix_bytes(t->b));
    mt_att_set_tile(t, row);
    int64_t rows = t->tile * t->per;
    f->q = mt_att_take(t, rows * ldq * t->size);
    f->p = mt_att_take(t, rows * ATT_KEYS * t->size);
    f->s = mt_att_take(t, rows * ATT_KEYS * 4);
    f->acc = mt_att_take(t, rows * t->b * 4);
    f->top = mt_att_take(t, rows * 4);
    f->sum = mt_att_take(t, rows * 4);
    f->fade = mt_att_take(t, rows * 4);
}

/* NaNs are passed over. */
MT_VEC_INLINE float greatest(const float s[ATT_KEYS])
{
    float lane[MT_LANES];
    for (int j = 0; j < MT_LANES; j++) lane[j] = -FLT_MAX;
    for (int i = 0; i < ATT_KEYS; i += MT_LANES) mt_vec_raise(lane, s + i);
    return mt_vec_top(lane);
}

/* One row of scores to probabilities p relative to the row's maximum; returns the factor for what was summed
 * before. whole: every key of the block is seen, and mask is not looked at. */
MT_VEC_INLINE float softmax_row(float p[ATT_KEYS], const float *s, float scale, const uint32_t mask[ATT_KEYS],
                                bool whole, float *top, float *sum)
{
    const uint32_t low = mt_bits_of_f32(-FLT_MAX);
    for (int j = 0; j < ATT_KEYS; j++)
        p[j] = whole ? s[j] * scale
                     : mt_f32_of_bits((mt_bits_of_f32(s[j] * scale) & mask[j]) | (low & ~mask[j]));
    float here = greatest(p), before = *top, most = here > before ? here : before;
    for (int j = 0; j < ATT_KEYS; j++)
        p[j] = whole ? mt_vec_exp(p[j] - most) : mt_att_masked(mt_vec_exp(p[j] - most), mask[j]);
    float fade = here > before ? mt_vec_exp(before - here) : 1;
    *sum = *sum * fade + mt_vec_sum(p, ATT_KEYS);
    *top = most;
    return fade;
}

MT_VEC static void softmax(struct fwd *f, const struct mt_att_range *r, int64_t row)
{
    const struct mt_att *t = &f->a.t;
    for (int64_t i = r->lo; i < r->hi; i++) {
        uint32_t mask[ATT_KEYS];
        bool whole = mt_att_whole(t, i, r->ks);
        if (!whole) mt_att_mask(t, i, r->ks, mask);
        for (int64_t h = 0; h < t->per; h++, row++) {
            float p[ATT_KEYS], *top = f->top + row, *sum = f->sum + row;
            const float *s = f->s + row * ATT_KEYS;
            f->fade[row] = whole ? softmax_row(p, s, t->scale, NULL, true, top, sum)
                                 : softmax_row(p, s, t->scale, mask, false, top, sum);
            mt_att_put_row(t, f->p, row, p);
        }
    }
}

static void add_keys(struct fwd *f, int64_t g, int64_t t0, int64_t t1, int64_t ks)
{
    const struct mt_att *t = &f->a.t;
    struct mt_att_range r = mt_att_seen(t, t0, t1, ks);
    int64_t row = (r.lo - t0) * t->per, rows = (r.hi - r.lo) * t->per, ldq = mt_att_ld(t, t->a);
    if (rows <= 0) return;
    mt_att_pack(t, f->k_nt, &f->a.k, g, &r);
    mt_att_pack(t, f->v_nt, &f->a.v, g, &r);
    mt_att_turn(t, f->v_nn, f->v_nt, &r, t->b);
    mt_att_scores(t, f->s + row * ATT_KEYS, (char *)f->q + row * ldq * t->size, f->k_nt, rows, &r, t->a);
    softmax(f, &r, row);
    mt_att_mix(t, f->acc + row * t->b, f->fade + row, (char *)f->p + row * ATT_KEYS * t->size, f->v_nn, rows,
               &r, t->b, f->mixed);
}

static void fwd_tile(struct fwd *f, int64_t g, int64_t t0, int64_t t1)
{
    const struct mt_att *t = &f->a.t;
    int64_t rows = (t1 - t0) * t->per;
    mt_att_gather(t, f->q, &f->a.q, g, t0, t1);
    memset(f->acc, 0, (size_t)(rows * t->b * 4));
    for (int64_t r = 0; r < rows; r++) {
        f->top[r] = -FLT_MAX;
        f->sum[r] = 0;
    }
    for (int64_t ks = mt_att_block(t->begin[t0]); ks < t1; ks += ATT_KEYS) add_keys(f, g, t0, t1, ks);
    for (int64_t r = 0; r < rows; r++) {
        int64_t token = t0 + r / t->per, head = g * t->per + r % t->per;
        f->a.lse[head * t->tokens + token] = f->top[r] + logf(f->sum[r]);
        if (f->a.most) f->a.most[head * t->tokens + token] = f->top[r];
        f->sum[r] = 1 / f->sum[r];
    }
    mt_att_spread(t, &f->a.out, f->acc, f->sum, t->per, g, t0, t1);
}

void mt_cpu_window_begin(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_window_begin *a = MT_ARGS(window_begin, c);
    int64_t N = mt_dim(c, 'N'), window = MT_SCALARS(window_begin, c)->window, lo, hi;
    mt_share(mt_dim(c, 'R'), 1, part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        const int32_t *begin = (const int32_t *)a->begin + r * c->ld[1];
        int32_t *near = (int32_t *)a->near + r * c->ld[0];
        for (int64_t i = 0; i < N; i++) {
            int64_t first = i - window + 1;
            near[i] = begin[i] > first ? begin[i] : (int32_t)first;
        }
    }
}

/* Of attention_fwd, or of attention_fwd_top, which has one argument more. */
static void forward(const struct mt_call *c, int part, int parts, void *scratch, const void *dev, float *most)
{
    const struct mt_args_attention_fwd *a = MT_ARGS(attention_fwd, c);
    struct fwd f = {.a = {.lse = a->lse, .most = most}};
    struct mt_att *t = &f.a.t;
    mt_att_init(t, c, scratch, dev);
    f.a.out = mt_att_arg(c, 0, t->b);
    f.a.q = mt_att_arg(c, 2, t->a);
    f.a.k = mt_att_arg(c, 3, t->a);
    f.a.v = mt_att_arg(c, 4, t->b);
    t->begin = a->begin;
    t->scale = (float)MT_SCALARS(attention_fwd, c)->scale;
    const struct mt_att_kernels *own = mt_att_own(t);
    if (own) {
        own->fwd(&f.a, part, parts);
        return;
    }
    fwd_layout(&f);
    int64_t tiles = (t->tokens + t->tile - 1) / t->tile;
    /* Dealt in turn: later tiles see more keys. */
    for (int64_t u = part; u < t->groups * tiles; u += parts) {
        int64_t t0 = u / t->groups * t->tile;
        fwd_tile(&f, u % t->groups, t0, mt_min64(t0 + t->tile, t->tokens));
    }
}
void mt_cpu_attention_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    forward(c, part, parts, scratch, dev, NULL);
}
void mt_cpu_attention_fwd_top(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    forward(c, part, parts, scratch, dev, MT_ARGS(attention_fwd_top, c)->top);
}
