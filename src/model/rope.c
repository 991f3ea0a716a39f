#include "model/rope.h"

#include <math.h>

/* The pair, as a fraction, that turns so many times in the original positions. */
static double pair_of(const mt_config *c, double turns)
{
    double R = (double)c->model_rotary_dims;
    return R * log((double)c->model_rope_original / (turns * 2 * M_PI)) / (2 * log(c->model_rope_theta));
}
static double temperature(double factor, double weight)
{
    return factor > 1 ? 0.1 * weight * log(factor) + 1 : 1;
}

struct mt_rope_form mt_rope_form_of(const mt_config *c)
{
    struct mt_rope_form f = {
        .theta = c->model_rope_theta, .factor = c->model_rope_factor, .high = 1, .gain = 1, .scores = 1};
    if (!(f.factor > 1)) return f;
    double all = temperature(f.factor, c->model_rope_mscale_all);
    f.low = fmax(floor(pair_of(c, c->model_rope_beta_fast)), 0);
    f.high = fmin(ceil(pair_of(c, c->model_rope_beta_slow)), (double)c->model_rotary_dims - 1);
    if (!(f.high > f.low)) f.high = f.low + 0.001;
    f.gain = temperature(f.factor, c->model_rope_mscale) / all;
    f.scores = all * all;
    return f;
}
