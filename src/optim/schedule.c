#include "optim/schedule.h"

#include <math.h>

double mt_lr_factor(int64_t s, int64_t total, int64_t warmup, double ratio, mt_choice_decay shape, double min)
{
    int64_t decay = llround((double)total * ratio), stable = total + 1 - warmup - decay;
    if (s < warmup) return (double)(s + 1) / (double)warmup;
    if (s + 1 <= warmup + stable || decay == 0) return 1;
    double p = (double)(s + 1 - warmup - stable) / (double)decay, f = 1 - p;
    if (shape == MT_DECAY_SQRT) f = 1 - sqrt(p);
    if (shape == MT_DECAY_COSINE) f = (1 + cos(3.14159265358979323846 * p)) / 2;
    return min + (1 - min) * f;
}
