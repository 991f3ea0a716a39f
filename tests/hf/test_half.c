/* Every half-precision number, by its definition. */
#include <math.h>

#include "check.h"
#include "hf/half.h"

TEST(all_numbers)
{
    int wrong = 0;
    for (int h = 0; h < 1 << 16; h++) {
        int exp = h >> 10 & 31, frac = h & 1023;
        double size = exp == 31 ? (frac ? (double)NAN : (double)INFINITY)
                      : exp     ? ldexp(1024 + frac, exp - 25)
                                : ldexp(frac, -24);
        double want = h >> 15 ? -size : size, got = (double)mt_f32_of_half((uint16_t)h);
        if (isnan(want) ? !isnan(got) : !(got >= want && got <= want) || !signbit(got) != !signbit(want))
            wrong++;
    }
    CHECK_INT(wrong, 0);
}

int main(void)
{
    RUN(all_numbers);
    return DONE();
}
