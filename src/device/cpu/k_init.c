/* k_init.c: initial weights. */
#include "base/rng.h"
#include "device/cpu/kernels.h"

void mt_cpu_init_normal(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_scalars_init_normal *s = MT_SCALARS(init_normal, c);
    int64_t lo, hi;
    mt_share(c->bytes[0] / 4, 1024, part, parts, &lo, &hi);
    if (hi > lo)
        mt_rng_fill_normal((float *)MT_ARGS(init_normal, c)->w + lo, (uint64_t)s->key, s->first + lo, hi - lo,
                           s->std);
}
