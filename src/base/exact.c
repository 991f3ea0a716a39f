#include "base/exact.h"
#include "base/dtype.h"

#include <math.h>
#include <string.h>

__extension__ typedef __int128 i128;

/* Exact in any order, so wider registers give the same sums. The choice is made by an ifunc, which runs before the sanitizers are
 * ready. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define WIDE
#endif

/* Elements whose lane sums stay exact: 8 lanes of 256 terms of at most 2^40 quanta each. */
enum { BLOCK = 2048, LANES = 8, LOWEST = -298, LEVEL_BITS = 40 };

typedef double vd __attribute__((vector_size(64)));
typedef int64_t vi __attribute__((vector_size(64)));

/* digits += v 2^bit, carrying nothing */
static void add_at(int64_t *digit, int64_t v, int bit)
{
    int d = bit / 32;
    i128 t = (i128)v * ((i128)1 << bit % 32);
    digit[d] += (int64_t)(t & 0xffffffff);
    t >>= 32;
    digit[d + 1] += (int64_t)(t & 0xffffffff);
    digit[d + 2] += (int64_t)(t >> 32);
}

/* Digits to [0, 2^32), but for the last one. */
static void carry(int64_t *digit, int n)
{
    for (int i = 0; i + 1 < n; i++) {
        digit[i + 1] += digit[i] >> 32;
        digit[i] &= 0xffffffff;
    }
}

/* By integers alone: any f32. */
static void add_one(int64_t *acc, float x)
{
    uint32_t u = mt_bits_of_f32(x);
    uint32_t e = u >> 23 & 0xff, m = u & 0x7fffff;
    if (e == 0xff) {
        acc[m ? MT_EXACT_NAN : MT_EXACT_INF]++;
        return;
    }
    int64_t full = e ? m | 0x800000 : m;
    if (full) add_at(acc, full * full, 2 * (int)(e ? e - 1 : 0));
}

/* A double whose bits all lie at 2^LOWEST or above. */
static void add_rest(int64_t *acc, double r)
{
    int e;
    double f = frexp(r, &e);
    int64_t v = (int64_t)ldexp(f, 53);
    int bit = e - 53 - LOWEST;
    if (bit < 0)
        add_at(acc, v / ((int64_t)1 << -bit), 0); /* exact: the low bits are zeros */
    else
        add_at(acc, v, bit);
}

/* The exponent e with every |x| < 2^e if all of the block can go the fast way, or 0x7fffffff: nothing
 * infinite or NaN, no denormal (a thread may flush them), and the largest not so small that quanta would lie
 * below 2^LOWEST. */
WIDE static int block_exponent(const float *x, int64_t n)
{
    typedef uint32_t vu __attribute__((vector_size(64)));
    vu most = {0}, least = ~most;
    for (int64_t i = 0; i < n; i += 16) {
        vu u;
        memcpy(&u, x + i, sizeof u);
        u &= 0x7fffffff;
        vu up = (vu)(u > most), low = (vu)(u - 1 < least); /* zero becomes the greatest */
        most = (u & up) | (most & ~up);
        least = ((u - 1) & low) | (least & ~low);
    }
    uint32_t hi = 0, lo = 0xffffffff;
    for (int i = 0; i < 16; i++) {
        if (most[i] > hi) hi = most[i];
        if (least[i] < lo) lo = least[i];
    }
    if (!hi) return 0;
    int e = (int)(hi >> 23) - 126;
    return hi >= 0x7f800000 || lo < 0x7fffff || e < -100 ? 0x7fffffff : e;
}

/* Squares are exact in double. Each is split, as error-free extraction does, into a multiple of 2^(2e-40), a
 * multiple of 2^(2e-80) and a rest, which is zero unless the value is some 2^17 times smaller than the
 * largest. */
static void add_rests(int64_t *acc, const float *x, int64_t n, double m1, double m2)
{
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i] * (double)x[i];
        v -= (v + m1) - m1;
        v -= (v + m2) - m2;
        if (v != 0) add_rest(acc, v);
    }
}

/* Sums of the first and second parts of eight squares, and whether there were rests. */
struct parts {
    vd first, second;
    vi rests;
};
static inline __attribute__((always_inline)) void add_eight(struct parts *p, const float *x, const vd *m1,
                                                            const vd *m2)
{
    typedef float v8 __attribute__((vector_size(32)));
    v8 f;
    memcpy(&f, x, sizeof f);
    vd v = __builtin_convertvector(f, vd);
    v *= v;
    vd a = (v + *m1) - *m1;
    v -= a;
    vd b = (v + *m2) - *m2;
    p->first += a;
    p->second += b;
    p->rests |= (vi)(v - b); /* equal numbers leave +0 */
}

/* Rests are few, and most blocks have none: they are added in a pass of their own. The lines of the next block
 * are fetched meanwhile. */
WIDE static void add_block(int64_t *acc, const float *x, int64_t n, int e)
{
    const double q1 = ldexp(1, 2 * e - LEVEL_BITS), q2 = ldexp(1, 2 * e - 2 * LEVEL_BITS);
    const vd m1 = (vd){0} + 0x1.8p52 * q1, m2 = (vd){0} + 0x1.8p52 * q2;
    struct parts p = {0}, o = {0};
    for (int64_t i = 0; i < n; i += 2 * LANES) { /* n is a multiple of 16 */
        add_eight(&p, x + i, &m1, &m2);
        add_eight(&o, x + i + LANES, &m1, &m2);
        __builtin_prefetch(x + i + BLOCK, 0, 3);
    }
    p.first += o.first;
    p.second += o.second;
    p.rests |= o.rests;
    int64_t n1 = 0, n2 = 0, any = 0;
    for (int j = 0; j < LANES; j++) {
        n1 += (int64_t)(p.first[j] / q1);
        n2 += (int64_t)(p.second[j] / q2);
        any |= p.rests[j];
    }
    add_at(acc, n1, 2 * e - LEVEL_BITS - LOWEST);
    add_at(acc, n2, 2 * e - 2 * LEVEL_BITS - LOWEST);
    if (any) add_rests(acc, x, n, m1[0], m2[0]);
}

void mt_exact_add(int64_t *acc, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK, whole = m / 16 * 16;
        int e = block_exponent(x + i, whole);
        if (e == 0x7fffffff)
            whole = 0;
        else
            add_block(acc, x + i, whole, e);
        for (int64_t j = whole; j < m; j++) add_one(acc, x[i + j]);
        carry(acc, MT_EXACT_DIGITS);
    }
}

double mt_exact_value(const int64_t *acc)
{
    int64_t digit[MT_EXACT_DIGITS + 2] = {0};
    if (acc[MT_EXACT_NAN]) return (double)NAN;
    if (acc[MT_EXACT_INF]) return (double)INFINITY;
    memcpy(digit, acc, MT_EXACT_DIGITS * sizeof *digit);
    carry(digit, MT_EXACT_DIGITS + 2);
    int top = MT_EXACT_DIGITS + 1;
    while (top > 0 && !digit[top]) top--;
    if (top < 2) return ldexp((double)((uint64_t)digit[1] << 32 | (uint64_t)digit[0]), LOWEST);
    /* The leading 64 bits, and whether anything follows: enough to round once. */
    unsigned shift = (unsigned)__builtin_clz((uint32_t)digit[top]);
    uint64_t high = (uint64_t)digit[top] << 32 | (uint64_t)digit[top - 1], low = (uint64_t)digit[top - 2];
    uint64_t lead = high << shift | (shift ? low >> (32 - shift) : 0);
    uint64_t rest = low << shift & 0xffffffff;
    for (int i = top - 3; i >= 0; i--) rest |= (uint64_t)digit[i];
    return ldexp((double)(lead | (rest != 0)), 32 * (top - 1) - (int)shift + LOWEST);
}
