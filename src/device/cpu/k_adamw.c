/* AdamW with decoupled decay and bias correction. */
#include <math.h>

#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

/* The factors of one step; computed in double, as the bias corrections of late steps need. */
struct adamw {
    float grad, keep, beta1, rest1, beta2, rest2, step, root, eps;
};

MT_VEC_INLINE void adamw_one(const struct adamw *k, float *w, float *m, float *v, float grad)
{
    float g = grad * k->grad;
    float mean = k->beta1 * *m + k->rest1 * g, square = k->beta2 * *v + k->rest2 * (g * g);
    *m = mean;
    *v = square;
    *w = *w * k->keep - k->step * (mean / (sqrtf(square) * k->root + k->eps));
}

MT_VEC void mt_cpu_adamw(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_adamw *a = MT_ARGS(adamw, c);
    const struct mt_scalars_adamw *s = MT_SCALARS(adamw, c);
    const double t = (double)s->step;
    const struct adamw k = {
        .grad = *(const float *)a->scale,
        .keep = (float)(1 - s->lr * s->wd),
        .beta1 = (float)s->beta1,
        .rest1 = (float)(1 - s->beta1),
        .beta2 = (float)s->beta2,
        .rest2 = (float)(1 - s->beta2),
        .step = (float)(s->lr / (1 - pow(s->beta1, t))),
        .root = (float)(1 / sqrt(1 - pow(s->beta2, t))),
        .eps = (float)s->eps,
    };
    float *w = a->w, *m = a->m, *v = a->v;
    const float *grad = a->grad;
    int64_t first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'N'), 64, part, parts, &first, &last);
    MT_VEC_LOOP
    for (int64_t i = first; i < last; i++) adamw_one(&k, w + i, m + i, v + i, grad[i]);
}
