/* rng.h: counter-based random numbers for initial weights.
 *
 * A value depends only on (seed, parameter name, row-major index in the whole canonical tensor), never on how
 * many ranks there are, what they own or in which order they fill it. The generator is Philox4x32-10 (Salmon
 * et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011); tests/oracle computes the same numbers. */
#ifndef MT_BASE_RNG_H
#define MT_BASE_RNG_H
#include <stdint.h>

/* Ten rounds of Philox4x32: one block of 128 random bits from a 128-bit counter and a 64-bit key. */
void mt_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* The key of one tensor's stream. */
uint64_t mt_rng_key(uint64_t seed, const char *name);

/* Element `index` (>= 0) of the standard normal stream of `key`; 2i and 2i+1 share one Philox block. */
double mt_rng_normal(uint64_t key, int64_t index);

/* out[i] = (float)(std * normal(key, first + i)), i < n; the same bits however a tensor is cut into calls. */
void mt_rng_fill_normal(float *out, uint64_t key, int64_t first, int64_t n, double std);
#endif
