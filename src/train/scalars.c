#include "train/scalars.h"

#include <math.h>

void mt_scalars_none(struct mt_scalars *s, int64_t step)
{
    s->step = step;
    for (int i = 0; i < MT_N_SCALARS; i++) s->x[i] = NAN;
}
