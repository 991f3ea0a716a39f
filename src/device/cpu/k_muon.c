/* Muon round its iteration: the momentum before it, the update after it. Matrices [B, R, C] lie apart by
 * strides. */
#include "device/cpu/kernels.h"

static inline void put(void *x, uint8_t t, int64_t i, float value)
{
    if (t == MT_F32)
        ((float *)x)[i] = value;
    else
        ((mt_bf16 *)x)[i] = mt_bf16_of(value);
}
static inline float get(const void *x, uint8_t t, int64_t i)
{
    return t == MT_F32 ? ((const float *)x)[i] : mt_f32_of(((const mt_bf16 *)x)[i]);
}

/* Row r of B R rows in argument i of the call. */
static inline void *row_of(const struct mt_call *c, int i, int64_t r, int64_t element)
{
    int64_t rows = mt_dim(c, 'R');
    return (char *)c->arg[i] + r / rows * c->stride[i] + r % rows * c->ld[i] * element;
}

void mt_cpu_muon_momentum(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_muon_momentum *a = MT_ARGS(muon_momentum, c);
    const struct mt_scalars_muon_momentum *s = MT_SCALARS(muon_momentum, c);
    const float scale = *(const float *)a->scale, mu = (float)s->mu, rest = (float)(1 - s->mu);
    int64_t first, last, cols = mt_dim(c, 'C');
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * mt_dim(c, 'R'), 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        void *u = row_of(c, 0, r, mt_dtype_bytes(c->dtype));
        float *m = row_of(c, 1, r, 4);
        const float *grad = row_of(c, 2, r, 4);
        for (int64_t i = 0; i < cols; i++) {
            float g = grad[i] * scale;
            m[i] = mu * m[i] + rest * g;
            put(u, c->dtype, i, s->nesterov ? rest * g + mu * m[i] : m[i]);
        }
    }
}

void mt_cpu_muon_apply(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_scalars_muon_apply *s = MT_SCALARS(muon_apply, c);
    const float keep = (float)(1 - s->lr * s->wd), step = (float)(s->lr * s->factor);
    int64_t first, last, cols = mt_dim(c, 'C');
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * mt_dim(c, 'R'), 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *w = row_of(c, 0, r, 4);
        const void *x = row_of(c, 1, r, mt_dtype_bytes(c->dtype));
        for (int64_t i = 0; i < cols; i++) w[i] = w[i] * keep - step * get(x, c->dtype, i);
    }
}
