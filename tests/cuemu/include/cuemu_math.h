/* cuemu_math.h: the device's maths and bit intrinsics, by the host's. Included by cuemu.h. */
#ifndef CUEMU_MATH_H
#define CUEMU_MATH_H
#include <cmath>
#include <cstdint>
#include <cstring>

inline float __expf(float x)
{
    return expf(x);
}
inline float __exp10f(float x)
{
    return powf(10.f, x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __log2f(float x)
{
    return log2f(x);
}
inline float __log10f(float x)
{
    return log10f(x);
}
inline float __powf(float x, float y)
{
    return powf(x, y);
}
inline float __sinf(float x)
{
    return sinf(x);
}
inline float __cosf(float x)
{
    return cosf(x);
}
inline float __tanf(float x)
{
    return tanf(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __frcp_rn(float x)
{
    return 1.f / x;
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __frsqrt_rn(float x)
{
    return 1.f / sqrtf(x);
}
inline float __fadd_rn(float x, float y)
{
    volatile float r = x + y;
    return r;
}
inline float __fsub_rn(float x, float y)
{
    volatile float r = x - y;
    return r;
}
inline float __fmul_rn(float x, float y)
{
    volatile float r = x * y;
    return r;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline float __saturatef(float x)
{
    return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f;
}
inline float rsqrtf(float x)
{
    return 1.f / sqrtf(x);
}
inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
namespace cuemu
{
template <class D, class S> inline D bits(S s)
{
    static_assert(sizeof(D) == sizeof(S), "bit cast size");
    D d;
    memcpy(&d, &s, sizeof d);
    return d;
}
} // namespace cuemu
inline int __float_as_int(float x)
{
    return cuemu::bits<int>(x);
}
inline unsigned __float_as_uint(float x)
{
    return cuemu::bits<unsigned>(x);
}
inline float __int_as_float(int x)
{
    return cuemu::bits<float>(x);
}
inline float __uint_as_float(unsigned x)
{
    return cuemu::bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return cuemu::bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return cuemu::bits<double>(x);
}
inline int __float2int_rn(float x)
{
    return (int)nearbyintf(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r = r << 1 | (x >> i & 1);
    return r;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    uint64_t v = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(v >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s)
{
    s &= 31;
    return s ? hi << s | lo >> (32 - s) : hi;
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s)
{
    s &= 31;
    return s ? lo >> s | hi << (32 - s) : lo;
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
#define CUEMU_MINMAX(T)       \
    inline T min(T a, T b)    \
    {                         \
        return b < a ? b : a; \
    }                         \
    inline T max(T a, T b)    \
    {                         \
        return a < b ? b : a; \
    }
/* clang-format off */
CUEMU_MINMAX(int)
CUEMU_MINMAX(unsigned)
CUEMU_MINMAX(long)
CUEMU_MINMAX(unsigned long)
CUEMU_MINMAX(long long)
CUEMU_MINMAX(unsigned long long)
/* clang-format on */
#undef CUEMU_MINMAX
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}
inline long long clock64()
{
    static long long c;
    return c += 100;
}

#endif
