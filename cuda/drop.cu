/* Pairs of a token and an expert that an expert has no room for: a block has some experts and looks through all pairs for theirs. The
 * last pair that an expert keeps is found digit by digit of its key, from counts alone, so that no order matters. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 256, EXPERTS = 8, DIGIT = 4, VALUES = 1 << DIGIT;

/* Of each expert: the digits found so far, and how many pairs that have them are still to be kept; < 0: all are. */
struct cuts {
    unsigned long long key[EXPERTS];
    int left[EXPERTS], count[EXPERTS][VALUES];
    int full; /* experts that drop something */
};

/* Larger for pairs that are kept first: by gate, then by token. Gates are no less than 0, or NaN; as such their bits rise. */
MT_DEVICE unsigned long long key_of(const mt_call &c, int64_t n, int64_t k, int64_t token)
{
    const auto &a = *MT_ARGS(route_drop, &c);
    const unsigned bits = MT_SCALARS(route_drop, &c)->by_gate
                              ? __float_as_uint(static_cast<const float *>(a.gates)[n * c.ld[3] + k])
                              : 0;
    return (unsigned long long)bits << 32 | (0xffffffffu - (unsigned)token);
}

/* f(expert of this block, token, k) for every pair of tokens [first, last) that one of its experts has. */
template <class F> MT_DEVICE void each_pair(const mt_call &c, int64_t first, int64_t last, F f)
{
    const unsigned K = (unsigned)MT_DIM(c, 'K'),
                   pairs = (unsigned)(last - first) * K; /* 32 bits, as their order has */
    const int32_t *ids = static_cast<const int32_t *>(MT_ARGS(route_drop, &c)->ids);
    for (unsigned i = threadIdx.x; i < pairs; i += THREADS) {
        const int64_t n = first + i / K, k = i % K;
        const int e = ids[n * c.ld[2] + k] - (int)blockIdx.x * EXPERTS;
        if (e >= 0 && e < EXPERTS) f(e, n, k);
    }
}

/* What each expert was asked for, and how much of that it keeps. */
MT_DEVICE void begin(const mt_call &c, cuts &s, int64_t first, int64_t last, int *asked)
{
    const int t = threadIdx.x;
    if (t < EXPERTS) s.left[t] = 0;
    if (t == 0) s.full = 0;
    __syncthreads();
    each_pair(c, first, last, [&](int e, int64_t, int64_t) { atomicAdd(&s.left[e], 1); });
    __syncthreads();
    if (t < EXPERTS) {
        const int capacity = (int)MT_SCALARS(route_drop, &c)->capacity;
        *asked += s.left[t];
        if (s.left[t] > capacity) atomicAdd(&s.full, 1);
        s.left[t] = s.left[t] > capacity ? capacity : -1;
        s.key[t] = 0;
    }
    __syncthreads();
}
MT_DEVICE void find_digit(const mt_call &c, cuts &s, int64_t first, int64_t last, int at)
{
    const int t = threadIdx.x;
    if (t < EXPERTS * VALUES) s.count[t / VALUES][t % VALUES] = 0;
    __syncthreads();
    each_pair(c, first, last, [&](int e, int64_t n, int64_t k) {
        const unsigned long long key = key_of(c, n, k, n - first) >> at;
        if (key >> DIGIT == s.key[e]) atomicAdd(&s.count[e][key % VALUES], 1);
    });
    __syncthreads();
    if (t < EXPERTS && s.left[t] >= 0) {
        int v = VALUES - 1;
        for (; s.count[t][v] < s.left[t]; v--) s.left[t] -= s.count[t][v];
        s.key[t] = s.key[t] << DIGIT | (unsigned)v;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS) drop_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(route_drop, &c);
    const auto &f = *MT_SCALARS(route_drop, &c);
    MT_SHARED(s, cuts);
    const int64_t N = MT_DIM(c, 'N'), mine = (int64_t)blockIdx.x * EXPERTS + threadIdx.x;
    int asked = 0;
    for (int64_t first = 0; first < N; first += f.run) {
        const int64_t last = first + f.run < N ? first + f.run : N;
        begin(c, s, first, last, &asked);
        for (int at = (f.by_gate ? 64 : 32) - DIGIT; at >= 0 && s.full; at -= DIGIT)
            find_digit(c, s, first, last, at);
        each_pair(c, first, last, [&](int e, int64_t n, int64_t k) {
            const int32_t id = static_cast<const int32_t *>(a.ids)[n * c.ld[2] + k];
            const bool kept = s.left[e] < 0 || key_of(c, n, k, n - first) >= s.key[e];
            static_cast<int32_t *>(a.kept)[n * c.ld[0] + k] = kept ? id : -1 - id;
        });
        __syncthreads();
    }
    if (threadIdx.x < EXPERTS && mine < MT_DIM(c, 'E')) static_cast<int32_t *>(a.asked)[mine] = asked;
}
} // namespace

extern "C" cudaError_t mt_cuda_route_drop(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'E'), EXPERTS);
    return grid ? MT_LAUNCH(drop_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
