/* exact.h: the exact sum of squares of f32 values, in fixed point.
 *
 * Every square of a finite f32 is a multiple of 2^-298 below 2^256. The accumulator is 18 digits to base 2^32
 * (digit i counts 2^(32 i - 298)), each in an int64_t of its own, and two counters: of infinities and of
 * NaNs. Adding two accumulators word by word adds their values, without any rounding: the sum does not depend
 * on order or placement. Words are not unique (digits carry lazily): compare values, not words.
 *
 * Headroom: mt_exact_add leaves all digits but the last below 2^32, so 2^31 of its results may be added word
 * by word; the last digit holds sums to 2^309, which is 2^53 squares of the largest f32. */
#ifndef MT_BASE_EXACT_H
#define MT_BASE_EXACT_H
#include <stdint.h>

enum { MT_EXACT_DIGITS = 18, MT_EXACT_INF = 18, MT_EXACT_NAN = 19, MT_EXACT_WORDS = 20 };

/* acc[MT_EXACT_WORDS] += squares of x[0..n); acc must be zeros or come from mt_exact_add. Right whether or
 * not the thread flushes denormals. */
void mt_exact_add(int64_t *acc, const float *x, int64_t n);

/* The value rounded to nearest even. NaN if a NaN was added, else infinity if an infinity was. */
double mt_exact_value(const int64_t *acc);
#endif
