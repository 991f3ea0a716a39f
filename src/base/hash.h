/* hash.h: 64-bit hashes of plans and tables, for ranks to compare. Not for untrusted keys. */
#ifndef MT_BASE_HASH_H
#define MT_BASE_HASH_H
#include <stdint.h>

/* h with x added; the order of additions counts. */
static inline uint64_t mt_hash_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}
static inline uint64_t mt_hash_ints(uint64_t h, const int64_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = mt_hash_mix(h, (uint64_t)x[i]);
    return mt_hash_mix(h, (uint64_t)n);
}
#endif
