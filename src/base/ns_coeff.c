#include "base/ns_coeff.h"

#include "base/status.h"

/* simple: the triple of the original Muon; it never converges, singular values end in [0.68, 1.13].
 * quintic: tuned step by step for five steps.
 * polar_express: greedy minimax polynomials on [1e-3, 1], safety factor 1.01 folded in; the last triple is
 *   the exact quintic Newton-Schulz step, so that more steps converge.
 * cans: Chebyshev-optimal polynomials for five steps, without a safety factor: for f32, since the rounding of
 *   bf16 leaves the interval on which they contract, and the iteration may diverge. */
static const struct {
    int64_t n;
    struct mt_ns_triple step[8];
} sets[MT_N_NS_SETS] = {
    [MT_NS_SIMPLE] = {1, {{3.4445, -4.7750, 2.0315}}},
    [MT_NS_QUINTIC] = {5,
                       {{4.0848, -6.8946, 2.9270},
                        {3.9505, -6.3029, 2.6377},
                        {3.7418, -5.5913, 2.3037},
                        {2.8769, -3.1427, 1.2046},
                        {2.8366, -3.0525, 1.2012}}},
    [MT_NS_POLAR_EXPRESS] = {8,
                             {{8.2051, -22.9019, 16.4607},
                              {4.0664, -2.8612, 0.5184},
                              {3.9096, -2.8234, 0.5250},
                              {3.2856, -2.4153, 0.4853},
                              {2.2779, -1.6198, 0.3985},
                              {1.8726, -1.2307, 0.3585},
                              {1.8564, -1.2132, 0.3568},
                              {1.8750, -1.2500, 0.3750}}},
    [MT_NS_CANS] = {5,
                    {{8.4703, -25.1081, 18.6293},
                     {4.1828, -3.1087, 0.5806},
                     {3.9619, -2.9541, 0.5630},
                     {3.2866, -2.4647, 0.5074},
                     {2.2737, -1.6447, 0.4162}}},
};

struct mt_ns_triple mt_ns_coeff(int set, int64_t step)
{
    MT_ASSERT(set >= 0 && set < MT_N_NS_SETS && step >= 0);
    return sets[set].step[step < sets[set].n ? step : sets[set].n - 1];
}
