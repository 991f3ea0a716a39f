#include "base/rng.h"
#include <math.h>

/* Multipliers and Weyl increments of Philox4x32 as published. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u
#define PHILOX_ROUNDS 10

void mt_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
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
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
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
static double uniform53(uint32_t lo, uint32_t hi)
{
    uint64_t bits = ((uint64_t)hi << 32 | lo) >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

/* Elements 2*pair and 2*pair+1 by Box-Muller. */
static void normal_pair(double z[2], uint64_t key, uint64_t pair)
{
    const uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), 0, 0};
    const uint32_t words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t r[4];
    mt_philox4x32(r, counter, words);
    double radius = sqrt(-2 * log(uniform53(r[0], r[1])));
    double angle = 2 * M_PI * uniform53(r[2], r[3]);
    z[0] = radius * cos(angle);
    z[1] = radius * sin(angle);
}

double mt_rng_normal(uint64_t key, int64_t index)
{
    double z[2];
    normal_pair(z, key, (uint64_t)index >> 1);
    return z[index & 1];
}

void mt_rng_fill_normal(float *out, uint64_t key, int64_t first, int64_t n, double std)
{
    int64_t i = 0;
    if (n > 0 && (first & 1)) out[i++] = (float)(std * mt_rng_normal(key, first));
    for (; i + 2 <= n; i += 2) {
        double z[2];
        normal_pair(z, key, (uint64_t)(first + i) >> 1);
        out[i] = (float)(std * z[0]);
        out[i + 1] = (float)(std * z[1]);
    }
    if (i < n) out[i] = (float)(std * mt_rng_normal(key, first + i));
}
