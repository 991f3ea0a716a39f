/* The exact sum of squares of gradients, and the clipping factor from it. */
#include <math.h>

#include "base/exact.h"
#include "device/cpu/kernels.h"

_Static_assert((int)MT_SUMSQ_WORDS == (int)MT_EXACT_WORDS, "op.h and exact.h state the same size");

/* Parts add to the words at the same time; integer sums commute, and every part adds below 2^32 to a digit.
 */
void mt_cpu_sumsq(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_sumsq *a = MT_ARGS(sumsq, c);
    int64_t sum[MT_EXACT_WORDS] = {0}, *acc = a->acc, first, last;
    (void)scratch, (void)dev;
    mt_share(c->bytes[1] / 4, 2048, part, parts, &first, &last);
    mt_exact_add(sum, (const float *)a->x + first, last - first);
    for (int i = 0; i < MT_EXACT_WORDS; i++)
        if (sum[i]) __atomic_fetch_add(&acc[i], sum[i], __ATOMIC_RELAXED);
}

void mt_cpu_clip(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_clip *a = MT_ARGS(clip, c);
    double max_norm = c->scalar[0].f, norm = sqrt(mt_exact_value(a->acc));
    (void)parts, (void)scratch, (void)dev;
    if (part != 0) return;
    double scale = max_norm / (norm + 1e-6);
    *(double *)a->norm = norm;
    *(float *)a->scale = max_norm == 0 || scale > 1 ? 1 : (float)scale; /* a NaN norm makes a NaN scale */
}
