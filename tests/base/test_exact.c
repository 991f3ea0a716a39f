/* The exact sum of squares against big integers, in any order and any grouping. */
#include "base/exact.h"

#include "check.h"
#include "device/cpu/isa.h"

/* The reference: a number of 640 bits at 2^-298, one bit a byte, added bit by bit. */
struct big {
    unsigned char bit[640];
};
static void big_add(struct big *b, uint64_t v, int at)
{
    unsigned carry = 0;
    for (int i = at; i < 640; i++, v >>= 1) {
        unsigned s = b->bit[i] + (unsigned)(v & 1) + carry;
        b->bit[i] = s & 1;
        carry = s >> 1;
    }
}
/* From the bits: arithmetic would flush denormals in some threads. */
static void big_square(struct big *b, float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    uint64_t e = u >> 23 & 0xff, m = (u & 0x7fffff) + (e ? 1u << 23 : 0);
    big_add(b, m * m, 2 * (int)(e ? e - 1 : 0));
}
/* Rounded to nearest even by its bits. */
static double big_value(const struct big *b)
{
    int top = 639;
    double v = 0;
    while (top >= 0 && !b->bit[top]) top--;
    int low = top - 52;
    if (low < 0) low = 0;
    for (int i = top; i >= low; i--) v = 2 * v + b->bit[i];
    bool half = low > 0 && b->bit[low - 1], more = false;
    for (int i = 0; i + 1 < low; i++) more |= b->bit[i];
    if (half && (more || b->bit[low])) v += 1;
    return ldexp(v, low - 298);
}

static uint64_t next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}
static float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static double sum_of(const float *x, int64_t n)
{
    int64_t acc[MT_EXACT_WORDS] = {0};
    mt_exact_add(acc, x, n);
    return mt_exact_value(acc);
}
static double reference(const float *x, int64_t n)
{
    static struct big b;
    memset(&b, 0, sizeof b);
    for (int64_t i = 0; i < n; i++) big_square(&b, x[i]);
    return big_value(&b);
}

enum { MAX_N = 5000 };

/* kinds: 0 any finite f32, 1 denormals too, 2 like gradients, 3 a wide range in every block, 4 bf16 values, 5
 * tiny */
static float make(int kind, uint64_t *s)
{
    uint64_t r = next(s);
    uint32_t u = (uint32_t)r, e = (u >> 23 & 0xff) % 0xff;
    if (kind == 0) return from_bits((u & 0x807fffff) | (e ? e : 1) << 23);
    if (kind == 1) return from_bits((u & 0x807fffff) | e % 4 << 23);
    if (kind == 3) return from_bits((u & 0x807fffff) | (127 - e % 60) << 23);
    if (kind == 4) return from_bits((u & 0x807f0000) | (127 - e % 8) << 23);
    if (kind == 5) return from_bits((u & 0x807fffff) | (1 + e % 40) << 23);
    return (float)((double)(int64_t)r * 0x1p-63) * 1e-3f;
}

static void check_kinds(void)
{
    static float x[MAX_N];
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 2048, 2049, MAX_N};
    uint64_t s = 88172645463325252u;
    for (int kind = 0; kind < 6; kind++)
        for (int k = 0; k < 8; k++) {
            for (int64_t i = 0; i < sizes[k]; i++) x[i] = make(kind, &s);
            double got = sum_of(x, sizes[k]), want = reference(x, sizes[k]);
            if (!CHECK(got == want))
                printf("  kind %d, %lld values: %a, %a\n", kind, (long long)sizes[k], got, want);
        }
}

/* First as a program starts, then as worker threads run. */
TEST(equals_big_integers)
{
    check_kinds();
}
TEST(equals_big_integers_when_denormals_are_flushed)
{
    check_kinds();
}

TEST(order_and_grouping_do_not_matter)
{
    static float x[MAX_N], y[MAX_N];
    uint64_t s = 1234567;
    for (int64_t i = 0; i < MAX_N; i++) x[i] = make(3, &s);
    double want = sum_of(x, MAX_N);
    memcpy(y, x, sizeof y);
    for (int64_t i = MAX_N - 1; i > 0; i--) {
        int64_t j = (int64_t)(next(&s) % (uint64_t)(i + 1));
        float t = y[i];
        y[i] = y[j];
        y[j] = t;
    }
    CHECK(sum_of(y, MAX_N) == want);
    int64_t sum[MT_EXACT_WORDS] = {0};
    for (int64_t at = 0, n = 1; at < MAX_N; at += n, n = n * 3 % 701 + 1) {
        int64_t part[MT_EXACT_WORDS] = {0};
        if (n > MAX_N - at) n = MAX_N - at;
        mt_exact_add(part, y + at, n);
        for (int w = 0; w < MT_EXACT_WORDS; w++) sum[w] += part[w];
    }
    CHECK(mt_exact_value(sum) == want);
}

/* The largest values there are, as many as fill digits beyond those of one square. */
TEST(range)
{
    static float x[MAX_N];
    for (int64_t i = 0; i < MAX_N; i++) x[i] = from_bits(0x7f7fffff);
    int64_t acc[MT_EXACT_WORDS] = {0};
    for (int i = 0; i < 100; i++) mt_exact_add(acc, x, MAX_N);
    double f = (double)x[0];
    CHECK(mt_exact_value(acc) ==
          f * f * (100.0 * MAX_N)); /* f * f has 48 bits, the factor 19 with 5 trailing zeros */
    x[0] = from_bits(1);
    CHECK(sum_of(x, 1) == 0x1p-298);
    /* A half of the last place rounds to even, unless the smallest square there is comes on top. */
    float more[] = {1, 0x1p-27f, 0x1p-27f, from_bits(1)};
    CHECK(sum_of(more, 3) == 1);
    CHECK(sum_of(more, 4) == 1 + 0x1p-52);
}

TEST(not_finite)
{
    static float x[3000];
    for (int64_t i = 0; i < 3000; i++) x[i] = 1;
    x[2999] = (float)INFINITY;
    CHECK(isinf(sum_of(x, 3000)));
    x[17] = (float)NAN;
    CHECK(isnan(sum_of(x, 3000)));
    x[2999] = -1;
    CHECK(isnan(sum_of(x, 3000)));
    x[17] = 1;
    CHECK(sum_of(x, 3000) == 3000);
}

int main(void)
{
    RUN(equals_big_integers);
    mt_cpu_thread_setup();
    RUN(equals_big_integers_when_denormals_are_flushed);
    RUN(order_and_grouping_do_not_matter);
    RUN(range);
    RUN(not_finite);
    return DONE();
}
