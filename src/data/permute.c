#include "data/permute.h"

enum { ROUNDS = 8 }; /* even, so that halves of unequal width end where they began */

/* The finaliser of splitmix64: a bijection of 64 bits in which every input bit moves about half the
 * output. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t encrypt(uint64_t key, uint64_t x, int left_bits, int right_bits)
{
    uint64_t left = x >> right_bits, right = x & ((UINT64_C(1) << right_bits) - 1);
    int bits = left_bits, other = right_bits;
    for (uint64_t r = 0; r < ROUNDS; r++) {
        uint64_t f = mix(mix(key + r * 0x9e3779b97f4a7c15u) ^ right);
        uint64_t next = left ^ (f & ((UINT64_C(1) << bits) - 1));
        left = right;
        right = next;
        int swap = bits;
        bits = other;
        other = swap;
    }
    return left << right_bits | right;
}

int64_t mt_permute(uint64_t seed, uint64_t epoch, int64_t i, int64_t n)
{
    int bits = n > 1 ? 64 - __builtin_clzll((uint64_t)(n - 1)) : 0;
    uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) + epoch), x = (uint64_t)i;
    do x = encrypt(key, x, bits / 2, bits - bits / 2);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
