/* Products of f32 matrices [B, R, C] with square ones, by rows of the result; a sum runs over its terms in order. */
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

/* Row i of matrix b of argument a. */
MT_VEC_INLINE float *row_of(const struct mt_call *c, int a, int64_t b, int64_t i)
{
    return (float *)(void *)((char *)c->arg[a] + b * c->stride[a]) + i * c->ld[a];
}

/* Terms that are summed before they are added to the others: long sums keep their last bits. */
enum { TERMS = 32 };
/* A row of the result: sum over k of factor[k step] lines[k], n elements, chunk by chunk; old: what is kept of it. */
MT_VEC_INLINE void combine(float *to, float keep, float share, const float *factor, int64_t step,
                           const float *lines, int64_t ld, int64_t terms, int64_t n)
{
    for (int64_t j = 0; j < n; j += MT_CHUNK) {
        float sum[MT_CHUNK] = {0};
        int64_t w = mt_min64(MT_CHUNK, n - j);
        for (int64_t k0 = 0; k0 < terms; k0 += TERMS) {
            float some[MT_CHUNK] = {0};
            for (int64_t k = k0; k < mt_min64(k0 + TERMS, terms); k++) {
                const float f = factor[k * step], *x = lines + k * ld + j;
                MT_VEC_LOOP
                for (int64_t i = 0; i < w; i++) some[i] += f * x[i];
            }
            MT_VEC_LOOP
            for (int64_t i = 0; i < w; i++) sum[i] += some[i];
        }
        MT_VEC_LOOP
        for (int64_t i = 0; i < w; i++)
            to[j + i] = keep == 0 && share == 1 ? sum[i] : keep * to[j + i] + share * sum[i];
    }
}
MT_VEC_INLINE float dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j += MT_CHUNK)
        sum += (double)mt_vec_dot(x + j, y + j, mt_min64(MT_CHUNK, n - j));
    return (float)sum;
}

MT_VEC void mt_cpu_turn_left(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const bool turned = MT_SCALARS(turn_left, c)->turned;
    int64_t R = mt_dim(c, 'R'), C = mt_dim(c, 'C'), first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * R, 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int64_t b = r / R, i = r % R;
        const float *q = turned ? row_of(c, 1, b, 0) + i : row_of(c, 1, b, i);
        combine(row_of(c, 0, b, i), 0, 1, q, turned ? c->ld[1] : 1, row_of(c, 2, b, 0), c->ld[2], R, C);
    }
}

MT_VEC void mt_cpu_turn_right(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const bool turned = MT_SCALARS(turn_right, c)->turned;
    int64_t R = mt_dim(c, 'R'), C = mt_dim(c, 'C'), first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * R, 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int64_t b = r / R, i = r % R;
        float *y = row_of(c, 0, b, i);
        const float *x = row_of(c, 1, b, i);
        if (!turned) combine(y, 0, 1, x, 1, row_of(c, 2, b, 0), c->ld[2], C, C);
        for (int64_t j = 0; turned && j < C; j++) y[j] = dot(x, row_of(c, 2, b, j), C);
    }
}

MT_VEC void mt_cpu_gram_left(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const double beta = MT_SCALARS(gram_left, c)->beta;
    const float keep = (float)beta, share = (float)(1 - beta);
    int64_t R = mt_dim(c, 'R'), C = mt_dim(c, 'C'), first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * R, 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int64_t b = r / R, i = r % R;
        float *acc = row_of(c, 0, b, i);
        const float *x = row_of(c, 1, b, i);
        for (int64_t j = 0; j < R; j++) acc[j] = keep * acc[j] + share * dot(x, row_of(c, 1, b, j), C);
    }
}

MT_VEC void mt_cpu_gram_right(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const double beta = MT_SCALARS(gram_right, c)->beta;
    int64_t R = mt_dim(c, 'R'), C = mt_dim(c, 'C'), first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * C, 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int64_t b = r / C, i = r % C;
        const float *x = row_of(c, 1, b, 0);
        combine(row_of(c, 0, b, i), (float)beta, (float)(1 - beta), x + i, c->ld[1], x, c->ld[1], R, C);
    }
}
