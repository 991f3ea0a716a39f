/* rope.h: rotary positions of a configuration: their frequencies, and what YaRN makes of them. */
#ifndef MT_MODEL_ROPE_H
#define MT_MODEL_ROPE_H
#include "config/config.h"

/* Arguments of the op rope_table, and the factor that attention scores have besides A^-1/2. YaRN (arXiv 2309.00071, section 3.2,
 * equations 16 to 19): of R rotated dimensions pair i turns 2 pi / theta^(2i/R) in a position; low and high are the pairs that turn beta_fast
 * and beta_slow times in the original positions, rounded outwards. gain, scores: the temperature of section 3.4 as DeepSeek-V3 has it,
 * m(s, a) = 0.1 a ln s + 1: m(factor, mscale) / m(factor, mscale_all), and m(factor, mscale_all)^2. Without YaRN factor, gain and
 * scores are 1. */
struct mt_rope_form {
    double theta, factor, low, high, gain, scores;
};
struct mt_rope_form mt_rope_form_of(const mt_config *c);
#endif
