/* k_swiglu.c: SwiGLU of dense layers and of routed rows. u holds the gate's half, then the other: s = silu(u1) u2. */
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

MT_VEC_INLINE void fwd_row(const struct mt_call *c, void *s, const void *u, int64_t n)
{
    for (int64_t j = 0, F = mt_dim(c, 'F'); j < F; j += MT_CHUNK) {
        float b1[MT_CHUNK], b2[MT_CHUNK], ob[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, F - j), at = n * c->ld[1] + j;
        const float *u1 = mt_vec_in(u, c->dtype, at, m, b1), *u2 = mt_vec_in(u, c->dtype, at + F, m, b2);
        float *out = mt_vec_out(s, c->dtype, n * c->ld[0] + j, ob);
        MT_VEC_LOOP
        for (int64_t i = 0; i < m; i++) out[i] = u1[i] * mt_vec_sigmoid(u1[i]) * u2[i];
        mt_vec_put(s, c->dtype, n * c->ld[0] + j, ob, m);
    }
}

/* du of m elements at `at`, its halves F apart, from gate * ds */
MT_VEC_INLINE void bwd_chunk(void *du, const float *ds, const void *u, int dtype, float gate, int64_t at_du,
                             int64_t at_u, int64_t F, int64_t m)
{
    float b1[MT_CHUNK], b2[MT_CHUNK], o1[MT_CHUNK], o2[MT_CHUNK];
    const float *u1 = mt_vec_in(u, dtype, at_u, m, b1), *u2 = mt_vec_in(u, dtype, at_u + F, m, b2);
    float *d1 = mt_vec_out(du, dtype, at_du, o1), *d2 = mt_vec_out(du, dtype, at_du + F, o2);
    MT_VEC_LOOP
    for (int64_t i = 0; i < m; i++) {
        float x = u1[i], y = u2[i], d = gate * ds[i], g = mt_vec_sigmoid(x);
        d1[i] = d * y * (g * (1.0f + x * (1.0f - g)));
        d2[i] = d * (x * g);
    }
    mt_vec_put(du, dtype, at_du, o1, m);
    mt_vec_put(du, dtype, at_du + F, o2, m);
}

MT_VEC void mt_cpu_swiglu_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_swiglu_fwd *a = MT_ARGS(swiglu_fwd, c);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) fwd_row(c, a->s, a->u, n);
}

MT_VEC void mt_cpu_expert_swiglu_fwd(const struct mt_call *c, int part, int parts, void *scratch,
                                     const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_expert_swiglu_fwd *a = MT_ARGS(expert_swiglu_fwd, c);
    const struct mt_scalars_expert_swiglu_fwd *s = MT_SCALARS(expert_swiglu_fwd, c);
    int64_t lo, hi;
    mt_share(s->rows, 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) fwd_row(c, a->s, a->u, n);
}

MT_VEC void mt_cpu_swiglu_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_swiglu_bwd *a = MT_ARGS(swiglu_bwd, c);
    int64_t F = mt_dim(c, 'F'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++)
        for (int64_t j = 0; j < F; j += MT_CHUNK) {
            float buf[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, F - j);
            const float *ds = mt_vec_in(a->ds, c->dtype, n * c->ld[1] + j, m, buf);
            bwd_chunk(a->du, ds, a->u, c->dtype, 1.0f, n * c->ld[0] + j, n * c->ld[2] + j, F, m);
        }
}

/* Row i of the bounded buffers: returns <ds, s> and leaves gate * s in s. */
MT_VEC_INLINE float expert_row_bwd(const struct mt_call *c, const struct mt_args_expert_swiglu_bwd *a,
                                   int64_t row, float gate)
{
    double dot = 0;
    for (int64_t j = 0, F = mt_dim(c, 'F'); j < F; j += MT_CHUNK) {
        float db[MT_CHUNK], sb[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, F - j), at = row * c->ld[1] + j;
        const float *ds = mt_vec_in(a->ds, c->dtype, row * c->ld[3] + j, m, db);
        const float *s = mt_vec_in(a->s, c->dtype, at, m, sb);
        float *out = mt_vec_out(a->s, c->dtype, at, sb);
        dot += (double)mt_vec_dot(ds, s, m);
        MT_VEC_LOOP
        for (int64_t i = 0; i < m; i++) out[i] = gate * s[i];
        mt_vec_put(a->s, c->dtype, at, sb, m);
        bwd_chunk(a->du, ds, a->u, c->dtype, gate, row * c->ld[0] + j, row * c->ld[4] + j, F, m);
    }
    return (float)dot;
}

MT_VEC void mt_cpu_expert_swiglu_bwd(const struct mt_call *c, int part, int parts, void *scratch,
                                     const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_expert_swiglu_bwd *a = MT_ARGS(expert_swiglu_bwd, c);
    const struct mt_scalars_expert_swiglu_bwd *s = MT_SCALARS(expert_swiglu_bwd, c);
    const int32_t *order = a->order;
    int64_t K = mt_dim(c, 'K'), lo, hi;
    mt_share(s->rows, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int64_t from = order ? order[s->first + i] : s->first + i;
        float gate = ((const float *)a->gates)[from / K * c->ld[5] + from % K];
        ((float *)a->dgate)[s->first + i] = expert_row_bwd(c, a, i, gate);
    }
}
