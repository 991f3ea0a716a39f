/* schedule.h: warmup - stable - decay. */
#ifndef MT_OPTIM_SCHEDULE_H
#define MT_OPTIM_SCHEDULE_H
#include "config/config.h"

/* Factor on the base learning rate at 0-based step s of `total`: (s + 1) / warmup, then 1, then a fall over the last
 * round(total * ratio) steps to `min`; one virtual step more keeps the last one above it. Progress of the fall
 * p = (s + 1 - (W + S)) / D with S = total + 1 - W - D; shapes 1 - p, 1 - sqrt(p), (1 + cos(pi p)) / 2. */
double mt_lr_factor(int64_t s, int64_t total, int64_t warmup, double ratio, mt_choice_decay shape,
                    double min);
#endif
