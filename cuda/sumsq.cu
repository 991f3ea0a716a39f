/* The exact sum of squares of gradients (base/exact.h: 18 digits to base 2^32, the lowest counting 2^-298), and the
 * clipping factor from it. Integers throughout: no order changes a bit.
 *
 * A block takes RUN elements. The square of one fills three digits at most; those near the top of the block's largest
 * square are added up in registers, the few below in shared memory. */
#include "mt_kernel.cuh"

#include <cfloat>

#include "base/exact.h"

namespace
{
constexpr int THREADS = 256, EACH = 8, RUN = THREADS * EACH, WINDOW = 5, LOWEST = -298;

/* Lowest digit that the square of |x| = bits touches, for a finite x: it is m m 2^(2 (e - 1)) quanta. */
MT_DEVICE int digit_of(uint32_t bits)
{
    const int e = (int)(bits >> 23 & 0xff);
    return 2 * (e ? e - 1 : 0) / 32;
}
/* Its three pieces, each below 2^32, for that digit and the two above. */
MT_DEVICE void pieces_of(uint32_t bits, uint64_t (&p)[3])
{
    const uint32_t e = bits >> 23 & 0xff, m = e ? (bits & 0x7fffff) | 0x800000 : bits & 0x7fffff;
    const int shift = 2 * (e ? (int)e - 1 : 0) % 32;
    const uint64_t square = (uint64_t)m * m, low = (square & 0xffffffffu) << shift,
                   high = (square >> 32) << shift;
    p[0] = low & 0xffffffffu;
    p[1] = (low >> 32) + (high & 0xffffffffu);
    p[2] = (high >> 32) + (p[1] >> 32);
    p[1] &= 0xffffffffu;
}
MT_DEVICE void add_to(int64_t *word, uint64_t v)
{
    if (v) atomicAdd(reinterpret_cast<unsigned long long *>(word), (unsigned long long)v);
}

/* Adds x to the window's digits from `base` on, or to the block's. */
MT_DEVICE void add_one(float x, int base, uint64_t (&window)[WINDOW], int64_t *word)
{
    const uint32_t bits = __float_as_uint(x) & 0x7fffffff;
    uint64_t p[3];
    if (bits >= 0x7f800000) {
        add_to(&word[bits > 0x7f800000 ? MT_EXACT_NAN : MT_EXACT_INF], 1);
        return;
    }
    const int at = digit_of(bits) - base;
    pieces_of(bits, p);
    if (at < 0) {
        for (int k = 0; k < 3; k++) add_to(&word[base + at + k], p[k]);
        return;
    }
#pragma unroll
    for (int d = 0; d < WINDOW; d++)
#pragma unroll
        for (int k = 0; k < 3; k++) window[d] += d == at + k ? p[k] : 0;
}
/* Digits to [0, 2^32), but for the last one: a word by word sum may then take 2^31 blocks. */
MT_DEVICE void carry(int64_t *digit)
{
    for (int i = 0; i + 1 < MT_EXACT_DIGITS; i++) {
        digit[i + 1] += digit[i] >> 32;
        digit[i] &= 0xffffffff;
    }
}

__global__ void __launch_bounds__(THREADS) sum_kernel(int64_t *acc, const float *x, int64_t n)
{
    MT_SHARED(word, int64_t[MT_EXACT_WORDS]);
    if (threadIdx.x < MT_EXACT_WORDS) word[threadIdx.x] = 0;
    const int64_t first = (int64_t)blockIdx.x * RUN + threadIdx.x;
    float f[EACH], most = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        f[k] = first + k * THREADS < n ? x[first + k * THREADS] : 0;
        const float size = fabsf(f[k]);
        if (size <= FLT_MAX && size > most) most = size; /* infinities and NaNs are passed over */
    }
    const int top = digit_of(__float_as_uint(mt_block_max<THREADS>(most))),
              base = top > WINDOW - 3 ? top - (WINDOW - 3) : 0;
    uint64_t window[WINDOW] = {0};
#pragma unroll
    for (int k = 0; k < EACH; k++) add_one(f[k], base, window, word);
#pragma unroll
    for (int d = 0; d < WINDOW; d++) {
        const uint64_t sum = mt_warp_add(window[d]);
        if (threadIdx.x % 32 == 0 && base + d < MT_EXACT_DIGITS) add_to(&word[base + d], sum);
    }
    __syncthreads();
    if (threadIdx.x == 0) carry(word);
    __syncthreads();
    if (threadIdx.x < MT_EXACT_WORDS) add_to(&acc[threadIdx.x], (uint64_t)word[threadIdx.x]);
}

/* The value rounded to nearest even: the leading 64 bits, and whether anything follows. */
MT_DEVICE double value_of(const int64_t *acc)
{
    int64_t digit[MT_EXACT_DIGITS + 2];
    if (acc[MT_EXACT_NAN]) return (double)NAN;
    if (acc[MT_EXACT_INF]) return (double)INFINITY;
    int64_t over = 0;
    for (int i = 0; i < MT_EXACT_DIGITS + 2; i++) {
        const int64_t v = (i < MT_EXACT_DIGITS ? acc[i] : 0) + over;
        digit[i] = v & 0xffffffff;
        over = v >> 32;
    }
    int top = MT_EXACT_DIGITS + 1;
    while (top > 0 && !digit[top]) top--;
    if (top < 2) return ldexp((double)((uint64_t)digit[1] << 32 | (uint64_t)digit[0]), LOWEST);
    const unsigned shift = (unsigned)__clz((int)(uint32_t)digit[top]);
    const uint64_t high = (uint64_t)digit[top] << 32 | (uint64_t)digit[top - 1],
                   low = (uint64_t)digit[top - 2];
    const uint64_t lead = high << shift | (shift ? low >> (32 - shift) : 0);
    uint64_t rest = low << shift & 0xffffffff;
    for (int i = top - 3; i >= 0; i--) rest |= (uint64_t)digit[i];
    return ldexp((double)(lead | (rest != 0)), 32 * (top - 1) - (int)shift + LOWEST);
}
__global__ void clip_kernel(float *scale, double *norm, const int64_t *acc, double max_norm)
{
    const double n = sqrt(value_of(acc)), s = max_norm / (n + 1e-6);
    *norm = n;
    *scale = max_norm == 0 || s > 1 ? 1 : (float)s; /* a NaN norm makes a NaN scale */
}
} // namespace

extern "C" cudaError_t mt_cuda_sumsq(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t n = c->bytes[1] / 4;
    if (!n) return cudaSuccess;
    return MT_LAUNCH(sum_kernel, dim3(mt_blocks(n, RUN)), dim3(THREADS), 0, q->stream,
                     static_cast<int64_t *>(c->arg[0]), static_cast<const float *>(c->arg[1]), n);
}
extern "C" cudaError_t mt_cuda_clip(const mt_call *c, const mt_cuda_lane *q)
{
    return MT_LAUNCH(clip_kernel, dim3(1), dim3(1), 0, q->stream, static_cast<float *>(c->arg[0]),
                     static_cast<double *>(c->arg[1]), static_cast<const int64_t *>(c->arg[2]),
                     MT_SCALARS(clip, c)->max_norm);
}
