/* k_rope.c: rotary positions. */
#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

/* Angles are f64, since positions go to millions. */
void mt_cpu_rope_table(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_scalars_rope_table *s = MT_SCALARS(rope_table, c);
    float *table = MT_ARGS(rope_table, c)->table;
    double *speed = scratch;
    int64_t R = mt_dim(c, 'R'), half = R / 2, lo, hi;
    MT_ASSERT(half * 8 <= MT_SCRATCH_BYTES);
    mt_share(mt_dim(c, 'S'), 1, part, parts, &lo, &hi);
    for (int64_t i = 0; i < half; i++) {
        double t = fmin(fmax(((double)i - s->low) / (s->high - s->low), 0), 1);
        speed[i] = pow(s->theta, -2.0 * (double)i / (double)R) * ((1 - t) + t / s->factor);
    }
    for (int64_t p = lo; p < hi; p++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)p * speed[i];
            table[p * c->ld[0] + i] = (float)(s->gain * cos(angle));
            table[p * c->ld[0] + half + i] = (float)(s->gain * sin(angle));
        }
}

/* One head of one token: elements at and half further on make a pair. */
MT_VEC_INLINE void turn(void *x, int dtype, int64_t at, const float *cosine, const float *sine, float sign,
                        int64_t half)
{
    for (int64_t j = 0; j < half; j += MT_CHUNK) {
        float b1[MT_CHUNK], b2[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, half - j);
        const float *x1 = mt_vec_in(x, dtype, at + j, m, b1), *x2 = mt_vec_in(x, dtype, at + half + j, m, b2);
        float *y1 = mt_vec_out(x, dtype, at + j, b1), *y2 = mt_vec_out(x, dtype, at + half + j, b2);
        const float *co = cosine + j, *si = sine + j;
        MT_VEC_LOOP
        for (int64_t i = 0; i < m; i++) {
            float p = x1[i], q = x2[i], s = si[i] * sign;
            y1[i] = p * co[i] - q * s;
            y2[i] = q * co[i] + p * s;
        }
        mt_vec_put(x, dtype, at + j, b1, m);
        mt_vec_put(x, dtype, at + half + j, b2, m);
    }
}

MT_VEC void mt_cpu_rope(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_rope *a = MT_ARGS(rope, c);
    const int32_t *pos = a->pos;
    const struct mt_scalars_rope *s = MT_SCALARS(rope, c);
    int64_t H = mt_dim(c, 'H'), half = mt_dim(c, 'R') / 2, lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        MT_ASSERT(pos[n] >= 0 && pos[n] < mt_dim(c, 'S'));
        const float *row = (const float *)a->table + pos[n] * c->ld[2];
        void *x = (char *)a->x + n * c->stride[0];
        for (int64_t h = 0; h < H; h++)
            turn(x, c->dtype, h * c->ld[0], row, row + half, (float)s->sign, half);
    }
}
