#include "base/rng.h"
#include <math.h>

/* Multipliers and Weyl increments of Philox4x32 as published. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u
#define PHILOX_ROUNDS 10

/* Loops over pairs, whose iterations are independent, in clones for wider instruction sets. The clones and the machines give the
 * same bits: products and sums are never contracted, and the functions below are ours, not a libm's. The clones are chosen by an
 * ifunc, which runs before the sanitizers are ready. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define WIDE
#endif
#define INLINE static inline __attribute__((always_inline))

struct block {
    uint32_t x0, x1, x2, x3;
};
INLINE struct block rounds(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * x0;
        uint64_t p1 = (uint64_t)PHILOX_M1 * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    return (struct block){x0, x1, x2, x3};
}

void mt_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    struct block r = rounds(counter[0], counter[1], counter[2], counter[3], key);
    out[0] = r.x0;
    out[1] = r.x1;
    out[2] = r.x2;
    out[3] = r.x3;
}

static uint64_t fnv1a64(const char *s)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001B3u;
    return h;
}

/* One step of SplitMix64: neighbouring seeds get unrelated keys. */
static uint64_t splitmix64(uint64_t x)
{
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t mt_rng_key(uint64_t seed, const char *name)
{
    return splitmix64(fnv1a64(name) ^ splitmix64(seed));
}

/* The top 53 bits of two words, at the middles of their intervals: never 0, so the logarithm is finite. */
INLINE double uniform53(uint64_t bits)
{
    return ((double)(int64_t)(bits >> 11) + 0.5) * 0x1p-53;
}

/* log(u), 0 < u < 1 and normal, to 2 ulp: u = 2^e m with m between sqrt(1/2) and sqrt(2), log m = 2 artanh((m - 1) / (m + 1)) by its
 * power series, whose argument is at most 0.172: what is left off is below 2^-57. */
INLINE double log_of(double u)
{
    int64_t bits, root = 0x3FE6A09E667F3BCD; /* sqrt(1/2) */
    double m, sum = 0;
    __builtin_memcpy(&bits, &u, sizeof bits); /* as in base/dtype.h */
    int64_t e = (bits - root) >> 52;
    bits -= (int64_t)((uint64_t)e << 52);
    __builtin_memcpy(&m, &bits, sizeof m);
    double t = (m - 1) / (m + 1), t2 = t * t;
    for (int k = 23; k > 1; k -= 2) sum = (sum + 1.0 / k) * t2;
    return (double)e * M_LN2 + (2 * t + 2 * t * sum);
}

/* cos and sin of 2 pi v, 0 < v < 1, to 1e-16: v is brought within an eighth of a turn of a quarter, where the power series of both
 * are left off below 2^-57. */
INLINE void cos_sin_of_turn(double *c, double *s, double v)
{
    int64_t quarter = (int64_t)(4 * v + 0.5);
    double x = 2 * M_PI * (v - 0.25 * (double)quarter), x2 = x * x, even = 1, odd = 1;
    for (int k = 18; k > 0; k -= 2) even = 1 - x2 * (1.0 / (k * (k - 1))) * even;
    for (int k = 17; k > 1; k -= 2) odd = 1 - x2 * (1.0 / (k * (k - 1))) * odd;
    odd *= x;
    double a = quarter & 1 ? odd : even, b = quarter & 1 ? even : odd;
    *c = (quarter + 1) & 2 ? -a : a;
    *s = quarter & 2 ? -b : b;
}

enum { PAIRS = 64 };

/* Elements 2 * pair and 2 * pair + 1 by Box-Muller, for n <= PAIRS pairs. */
WIDE static void normal_pairs(double *restrict z, uint64_t key, uint64_t pair, int64_t n)
{
    const uint32_t words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint64_t first[PAIRS], second[PAIRS];
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = pair + (uint64_t)i;
        struct block r = rounds((uint32_t)at, (uint32_t)(at >> 32), 0, 0, words);
        first[i] = (uint64_t)r.x1 << 32 | r.x0;
        second[i] = (uint64_t)r.x3 << 32 | r.x2;
    }
    for (int64_t i = 0; i < n; i++) {
        double c, s, radius = sqrt(-2 * log_of(uniform53(first[i])));
        cos_sin_of_turn(&c, &s, uniform53(second[i]));
        z[2 * i] = radius * c;
        z[2 * i + 1] = radius * s;
    }
}

double mt_rng_normal(uint64_t key, int64_t index)
{
    double z[2];
    normal_pairs(z, key, (uint64_t)index >> 1, 1);
    return z[index & 1];
}

void mt_rng_fill_normal(float *out, uint64_t key, int64_t first, int64_t n, double std)
{
    double z[2 * PAIRS];
    for (int64_t i = 0; i < n;) {
        int64_t skip = (first + i) & 1, left = n - i + skip, m = left < 2 * PAIRS ? left : 2 * PAIRS;
        normal_pairs(z, key, (uint64_t)(first + i) >> 1, (m + 1) / 2);
        for (int64_t j = skip; j < m; j++) out[i++] = (float)(std * z[j]);
    }
}
