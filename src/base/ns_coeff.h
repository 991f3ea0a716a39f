/* ns_coeff.h: named coefficient sets of the Newton-Schulz iteration X <- aX + b(XX^T)X + c(XX^T)^2 X. */
#ifndef MT_BASE_NS_COEFF_H
#define MT_BASE_NS_COEFF_H
#include <stdint.h>

/* The values are those of the scalar `set` of the op newton_schulz and of the option muon.coefficients. */
enum mt_ns_set { MT_NS_SIMPLE, MT_NS_QUINTIC, MT_NS_POLAR_EXPRESS, MT_NS_CANS, MT_N_NS_SETS };

struct mt_ns_triple {
    double a, b, c;
};
/* The triple of step 0, 1, ...; a set shorter than the run repeats its last one. set must be one of
 * mt_ns_set. */
struct mt_ns_triple mt_ns_coeff(int set, int64_t step);
#endif
