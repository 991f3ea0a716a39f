/* Causal attention inside documents, blockwise, forward: a row keeps its maximum, its sum of exponentials and its
 * output so far, all relative to the maximum, and key blocks are added one after another. */
#include "device/cpu/attention.h"

struct fwd {
    struct mt_att t;
    struct mt_att_arg out, q_arg, k, v;
    float *lse;
    void *k_nt, *v_nt, *v_nn; /* a packed key block */
    void *q, *p;              /* rows of the tile */
    float *s, *acc, *top, *sum;
};

static void fwd_layout(struct fwd *f)
{
    struct mt_att *t = &f->t;
    int64_t ldq = mt_att_ld(t, t->a), row = ldq * t->size + ATT_KEYS * (4 + t->size) + t->b * 4 + 8;
    f->k_nt = mt_att_take(t, mt_att_nt_bytes(t, t->a));
    f->v_nt = mt_att_take(t, mt_att_nt_bytes(t, t->b));
    f->v_nn = mt_att_take(t, mt_att_nn_bytes(t, t->b));
    mt_att_set_tile(t, row, 0);
    int64_t rows = t->tile * t->per;
    f->q = mt_att_take(t, rows * ldq * t->size);
    f->p = mt_att_take(t, rows * ATT_KEYS * t->size);
    f->s = mt_att_take(t, rows * ATT_KEYS * 4);
    f->acc = mt_att_take(t, rows * t->b * 4);
    f->top = mt_att_take(t, rows * 4);
    f->sum = mt_att_take(t, rows * 4);
}

/* One row of scores to probabilities relative to the row's maximum; returns the factor for what was summed before. */
MT_VEC_INLINE float softmax_row(float *s, float scale, int c0, int c1, float *top, float *sum)
{
    float most = *top;
    for (int j = 0; j < ATT_KEYS; j++) s[j] = j >= c0 && j < c1 ? s[j] * scale : -FLT_MAX;
    float here = mt_vec_max(s, ATT_KEYS);
    most = here > most ? here : most;
    for (int j = 0; j < ATT_KEYS; j++) {
        float e = mt_vec_exp(s[j] - most);
        s[j] = j >= c0 && j < c1 ? e : 0;
    }
    float fade = mt_vec_exp(*top - most);
    *sum = *sum * fade + mt_vec_sum(s, ATT_KEYS);
    *top = most;
    return fade;
}

MT_VEC static void softmax(struct fwd *f, const struct mt_att_range *r, int64_t row)
{
    const struct mt_att *t = &f->t;
    for (int64_t i = r->lo; i < r->hi; i++) {
        int c0, c1;
        mt_att_columns(t, i, r->ks, &c0, &c1);
        for (int64_t h = 0; h < t->per; h++, row++) {
            float *s = f->s + row * ATT_KEYS, *acc = f->acc + row * t->b;
            float fade = softmax_row(s, t->scale, c0, c1, f->top + row, f->sum + row);
            if (fade != 1)
                for (int64_t j = 0; j < t->b; j++) acc[j] *= fade;
            if (t->dtype == MT_F32) memcpy((float *)f->p + row * ATT_KEYS, s, ATT_KEYS * sizeof *s);
            else
                for (int j = 0; j < ATT_KEYS; j++) ((mt_bf16 *)f->p)[row * ATT_KEYS + j] = mt_bf16_of(s[j]);
        }
    }
}

static void add_keys(struct fwd *f, int64_t g, int64_t t0, int64_t t1, int64_t ks)
{
    const struct mt_att *t = &f->t;
    struct mt_att_range r = mt_att_seen(t, t0, t1, ks);
    int64_t row = (r.lo - t0) * t->per, rows = (r.hi - r.lo) * t->per, ldq = mt_att_ld(t, t->a);
    if (rows <= 0) return;
    mt_att_pack(t, f->k_nt, &f->k, g, &r);
    mt_att_pack(t, f->v_nt, &f->v, g, &r);
    mt_att_turn(t, f->v_nn, f->v_nt, &r, t->b);
    mt_att_scores(t, f->s + row * ATT_KEYS, (char *)f->q + row * ldq * t->size, f->k_nt, rows, &r, t->a);
    softmax(f, &r, row);
    mt_att_mix(t, f->acc + row * t->b, (char *)f->p + row * ATT_KEYS * t->size, f->v_nn, rows, &r, t->b);
}

static void fwd_tile(struct fwd *f, int64_t g, int64_t t0, int64_t t1)
{
    const struct mt_att *t = &f->t;
    int64_t rows = (t1 - t0) * t->per;
    mt_att_gather(t, f->q, &f->q_arg, g, t0, t1);
    memset(f->acc, 0, (size_t)(rows * t->b * 4));
    for (int64_t r = 0; r < rows; r++) {
        f->top[r] = -FLT_MAX;
        f->sum[r] = 0;
    }
    for (int64_t ks = mt_att_block(t->begin[t0]); ks < t1; ks += ATT_KEYS) add_keys(f, g, t0, t1, ks);
    for (int64_t r = 0; r < rows; r++) {
        int64_t token = t0 + r / t->per, head = g * t->per + r % t->per;
        f->lse[head * t->tokens + token] = f->top[r] + logf(f->sum[r]);
        f->sum[r] = 1 / f->sum[r];
    }
    mt_att_spread(t, &f->out, f->acc, f->sum, t->per, g, t0, t1);
}

void mt_cpu_attention_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_attention_fwd *a = MT_ARGS(attention_fwd, c);
    struct fwd f = {.lse = a->lse};
    mt_att_init(&f.t, c, scratch, dev);
    f.out = mt_att_arg(c, 0, f.t.b);
    f.q_arg = mt_att_arg(c, 2, f.t.a);
    f.k = mt_att_arg(c, 3, f.t.a);
    f.v = mt_att_arg(c, 4, f.t.b);
    f.t.begin = a->begin;
    f.t.scale = (float)MT_SCALARS(attention_fwd, c)->scale;
    fwd_layout(&f);
    int64_t tiles = (f.t.tokens + f.t.tile - 1) / f.t.tile;
    /* Dealt in turn: later tiles see more keys. */
    for (int64_t u = part; u < f.t.groups * tiles; u += parts) {
        int64_t t0 = u / f.t.groups * f.t.tile;
        fwd_tile(&f, u % f.t.groups, t0, mt_min64(t0 + f.t.tile, f.t.tokens));
    }
}
