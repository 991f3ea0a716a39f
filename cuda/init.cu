/* Initial values: normal numbers by Box-Muller from Philox4x32-10, a pair a thread, the same function of key and index as
 * base/rng.c. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 128;

MT_DEVICE void philox(uint32_t (&x)[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = 0xD2511F53ull * x[0], p1 = 0xCD9E8D57ull * x[2];
        x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ k0;
        x[1] = (uint32_t)p1;
        x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ k1;
        x[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}
/* The top 53 bits of two words, at the middles of their intervals. */
MT_DEVICE double uniform53(uint32_t lo, uint32_t hi)
{
    const uint64_t bits = ((uint64_t)hi << 32 | lo) >> 11;
    return ((double)bits + 0.5) * (1.0 / 9007199254740992.0);
}
__global__ void __launch_bounds__(THREADS)
    normal_kernel(float *w, int64_t n, uint64_t key, int64_t first, double std)
{
    const int64_t pair = (first >> 1) + (int64_t)blockIdx.x * THREADS + threadIdx.x, at = 2 * pair - first;
    if (at >= n) return;
    uint32_t r[4] = {(uint32_t)pair, (uint32_t)((uint64_t)pair >> 32), 0, 0};
    philox(r, (uint32_t)key, (uint32_t)(key >> 32));
    const double radius = sqrt(-2 * log(uniform53(r[0], r[1]))),
                 angle = 2 * 3.14159265358979323846 * uniform53(r[2], r[3]);
    if (at >= 0) w[at] = (float)(std * (radius * cos(angle)));
    if (at + 1 < n) w[at + 1] = (float)(std * (radius * sin(angle)));
}
} // namespace

extern "C" cudaError_t mt_cuda_init_normal(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &s = *MT_SCALARS(init_normal, c);
    const int64_t n = c->bytes[0] / 4;
    if (!n) return cudaSuccess;
    return MT_LAUNCH(normal_kernel, dim3(mt_blocks(n / 2 + 1, THREADS)), dim3(THREADS), 0, q->stream,
                     static_cast<float *>(c->arg[0]), n, (uint64_t)s.key, s.first, s.std);
}
