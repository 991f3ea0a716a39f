/* QK-clip: the largest scores of heads, and what they do to rows of weights. */
#include <math.h>

#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

static float larger(float a, float b)
{
    return b > a ? b : a;
}

void mt_cpu_max_rows(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_max_rows *a = MT_ARGS(max_rows, c);
    int64_t first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'H'), 1, part, parts, &first, &last);
    for (int64_t h = first; h < last; h++) {
        const float *x = (const float *)a->x + h * c->ld[1];
        float top = ((float *)a->top)[h];
        for (int64_t n = 0; n < mt_dim(c, 'N'); n++) top = larger(top, x[n]);
        ((float *)a->top)[h] = top;
    }
}

void mt_cpu_max_parts(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_max_parts *a = MT_ARGS(max_parts, c);
    int64_t first, last;
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'W'), 16, part, parts, &first, &last);
    for (int64_t w = first; w < last; w++) {
        float top = -FLT_MAX;
        for (int64_t r = 0; r < mt_dim(c, 'R'); r++)
            top = larger(top, ((const float *)a->parts)[r * c->ld[1] + w]);
        ((float *)a->top)[w] = top;
    }
}

/* Of a row of weights. */
static float factor(const struct mt_scalars_qk_clip *s, const float *top, int64_t row)
{
    const int64_t head = row / s->width / s->per * s->of;
    float most = top[head];
    for (int64_t i = 1; i < s->of; i++) most = larger(most, top[head + i]);
    if (!(most > (float)s->tau)) return 1;
    const float g = (float)s->tau / most;
    return row % s->width < s->whole ? g : sqrtf(g);
}

MT_VEC void mt_cpu_qk_clip(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_qk_clip *a = MT_ARGS(qk_clip, c);
    const struct mt_scalars_qk_clip *s = MT_SCALARS(qk_clip, c);
    int64_t first, last, cols = mt_dim(c, 'C');
    (void)scratch, (void)dev;
    mt_share(mt_dim(c, 'R'), 1, part, parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *w = (float *)a->w + r * c->ld[0];
        const float by = factor(s, a->top, s->first + r);
        MT_VEC_LOOP
        for (int64_t i = 0; i < cols; i++) w[i] *= by;
    }
}
