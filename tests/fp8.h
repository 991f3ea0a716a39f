/* fp8.h: e4m3fn and the quantisation of weights by their definitions, in double. */
#ifndef MT_TESTS_FP8_H
#define MT_TESTS_FP8_H
#include <math.h>
#include <stdint.h>

#include "base/dtype.h"

/* NaN for 0x7f and 0xff. */
static inline double fp8_value(int code)
{
    int e = code >> 3 & 15, f = code & 7;
    double m = e ? ldexp(1 + f / 8.0, e - 7) : ldexp(f / 8.0, -6);
    if ((code & 0x7f) == 0x7f) m = (double)NAN;
    return code & 0x80 ? -m : m;
}
/* The code nearest to x, of two equally near the even one; the largest for what is beyond. */
static inline int fp8_nearest(double x)
{
    int lo = 0, hi = 0x7e, sign = signbit(x) ? 0x80 : 0;
    double a = fabs(x);
    if (isnan(x)) return sign | 0x7f;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (fp8_value(mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    double below = a - fp8_value(lo), above = fp8_value(hi) - a;
    return sign | (below < above || (below == above && lo % 2 == 0) ? lo : hi);
}

static inline double fp8_round(mt_dtype t, double x)
{
    return t == MT_BF16 ? (double)mt_f32_of(mt_bf16_of((float)x)) : (double)(float)x;
}
/* w [O, I] -> what comes out of the wire as dtype t: tiles of 128 x 128 counted from the first element.
 * Quotients and products are those of f32: a double quotient of floats, rounded to float, is. */
static inline void fp8_reference(mt_dtype t, int64_t O, int64_t I, const double *w, double *out)
{
    for (int64_t o0 = 0; o0 < O; o0 += 128)
        for (int64_t i0 = 0; i0 < I; i0 += 128) {
            double top = 0;
            for (int64_t o = o0; o < o0 + 128 && o < O; o++)
                for (int64_t i = i0; i < i0 + 128 && i < I; i++) top = fmax(top, fabs(w[o * I + i]));
            double scale = (double)(float)(top / 448);
            if (!(scale >= 0x1p-100)) scale = 1;
            for (int64_t o = o0; o < o0 + 128 && o < O; o++)
                for (int64_t i = i0; i < i0 + 128 && i < I; i++) {
                    double q = (double)(float)(w[o * I + i] / scale);
                    out[o * I + i] = fp8_round(t, (double)(float)(fp8_value(fp8_nearest(q)) * scale));
                }
        }
}
#endif
