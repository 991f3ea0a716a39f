/* Muon round its iteration: the momentum before it, the update after it. Matrices [B, R, C] lie apart by
 * strides. */
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

/* Row r of B R rows in argument i of the call. */
MT_VEC_INLINE void *row_of(const struct mt_call *c, int i, int64_t r, int64_t element)
{
    int64_t rows = mt_dim(c, 'R');
    return (char *)c->arg[i] + r / rows * c->stride[i] + r % rows * c->ld[i] * element;
}

MT_VEC void mt_cpu_muon_momentum(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
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
        for (int64_t j = 0; j < cols; j += MT_CHUNK) {
            float buf[MT_CHUNK], *to = mt_vec_out(u, c->dtype, j, buf), *mj = m + j;
            int64_t n = mt_min64(MT_CHUNK, cols - j);
            MT_VEC_LOOP
            for (int64_t i = 0; i < n; i++) {
                float g = grad[j + i] * scale, mean = mu * mj[i] + rest * g;
                mj[i] = mean;
                to[i] = s->nesterov ? rest * g + mu * mean : mean;
            }
            mt_vec_put(u, c->dtype, j, buf, n);
        }
    }
}

MT_VEC void mt_cpu_muon_apply(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_scalars_muon_apply *s = MT_SCALARS(muon_apply, c);
    const float keep = (float)(1 - s->lr * s->wd), step = (float)(s->lr * s->factor);
    int64_t first, last, cols = mt_dim(c, 'C');
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'B') * mt_dim(c, 'R'), 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *w = row_of(c, 0, r, 4);
        const void *x = row_of(c, 1, r, mt_dtype_bytes(c->dtype));
        for (int64_t j = 0; j < cols; j += MT_CHUNK) {
            float buf[MT_CHUNK], *wj = w + j;
            int64_t n = mt_min64(MT_CHUNK, cols - j);
            const float *xj = mt_vec_in(x, c->dtype, j, n, buf);
            MT_VEC_LOOP
            for (int64_t i = 0; i < n; i++) wj[i] = wj[i] * keep - step * xj[i];
        }
    }
}
