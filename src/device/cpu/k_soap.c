/* SOAP round its turns: the mean of gradients before them, Adam between them; and Shampoo's graft. Matrices [B, R, C], f32, lie apart by strides. */
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

MT_VEC_INLINE float *row_of(const struct mt_call *c, int a, int64_t r)
{
    int64_t rows = mt_dim(c, 'R');
    return (float *)(void *)((char *)c->arg[a] + r / rows * c->stride[a]) + r % rows * c->ld[a];
}

MT_VEC void mt_cpu_soap_moment(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const double beta = MT_SCALARS(soap_moment, c)->beta;
    const float scale = *(const float *)MT_ARGS(soap_moment, c)->scale, keep = (float)beta,
                rest = (float)(1 - beta);
    int64_t first, last, cols = mt_dim(c, 'C');
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * mt_dim(c, 'R'), 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *g = row_of(c, 0, r), *u = row_of(c, 1, r), *m = row_of(c, 2, r);
        const float *grad = row_of(c, 3, r);
        MT_VEC_LOOP
        for (int64_t i = 0; i < cols; i++) {
            g[i] = grad[i] * scale;
            m[i] = keep * m[i] + rest * g[i];
            u[i] = m[i];
        }
    }
}

MT_VEC void mt_cpu_soap_adam(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_scalars_soap_adam *s = MT_SCALARS(soap_adam, c);
    const double t = (double)s->step;
    const float keep = (float)s->beta2, rest = (float)(1 - s->beta2), eps = (float)s->eps,
                lift = (float)(1 / (1 - pow(s->beta1, t))),
                root = s->beta2 < 1 ? (float)(1 / sqrt(1 - pow(s->beta2, t))) : 1;
    int64_t first, last, cols = mt_dim(c, 'C');
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * mt_dim(c, 'R'), 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *v = row_of(c, 0, r), *u = row_of(c, 1, r);
        const float *g = row_of(c, 2, r);
        MT_VEC_LOOP
        for (int64_t i = 0; i < cols; i++) {
            v[i] = keep * v[i] + rest * (g[i] * g[i]);
            u[i] = lift * u[i] / (sqrtf(v[i]) * root + eps);
        }
    }
}

MT_VEC static double square_of(const float *x, int64_t n)
{
    double lane[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; l < 8; l++) sum += lane[l];
    return sum;
}
/* A part has whole matrices. */
MT_VEC void mt_cpu_graft(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const int64_t rows = mt_dim(c, 'R'), cols = mt_dim(c, 'C');
    const bool takes = MT_SCALARS(graft, c)->takes;
    int64_t first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B'), 1, part, parts, &first, &last);
    for (int64_t b = first; b < last; b++) {
        double x2 = 0, like2 = 0;
        for (int64_t r = b * rows; r < (b + 1) * rows; r++) {
            x2 += square_of(row_of(c, 0, r), cols);
            like2 += square_of(row_of(c, 1, r), cols);
        }
        const float by = x2 != 0 ? (float)(sqrt(like2) / sqrt(x2)) : 0;
        for (int64_t r = b * rows; r < (b + 1) * rows; r++) {
            float *x = row_of(c, 0, r);
            const float *like = row_of(c, 1, r);
            MT_VEC_LOOP
            for (int64_t i = 0; i < cols; i++) x[i] = takes ? x[i] * by : like[i];
        }
    }
}
