#include "compare.h"

#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) noise_kernel(mt_bf *x, int64_t n, uint32_t seed)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    uint32_t h = (uint32_t)i * 0x9E3779B9u ^ (uint32_t)(i >> 32) ^ seed;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    mt_put(x[i], (float)(h >> 8) * 0x1p-23f - 1);
}

template <class T>
__global__ void __launch_bounds__(THREADS) apart_kernel(double *parts, const T *a, const T *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        const double y = mt_get(b[i]), d = mt_get(a[i]) - y;
        diff += d * d;
        norm += y * y;
    }
    diff = mt_block_add<THREADS>(diff);
    norm = mt_block_add<THREADS>(norm);
    if (threadIdx.x == 0) parts[2 * blockIdx.x] = diff, parts[2 * blockIdx.x + 1] = norm;
}

/* Few blocks: the link to the host is narrow, and the kernels of other streams have the rest. */
constexpr int COPIERS = 16;
template <class V>
__global__ void __launch_bounds__(THREADS) copy_kernel(V *to, const V *from, int64_t n, int64_t bytes)
{
    const int64_t step = (int64_t)gridDim.x * THREADS, first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int64_t i = first; i < n; i += step) to[i] = from[i];
    const char *rest = reinterpret_cast<const char *>(from);
    char *out = reinterpret_cast<char *>(to);
    for (int64_t i = n * (int64_t)sizeof(V) + first; i < bytes; i += step) out[i] = rest[i];
}
template <class V> cudaError_t copy(void *to, const void *from, int64_t n, cudaStream_t s)
{
    return MT_LAUNCH(copy_kernel<V>, dim3(COPIERS), dim3(THREADS), 0, s, static_cast<V *>(to),
                     static_cast<const V *>(from), n / (int64_t)sizeof(V), n);
}
} // namespace

extern "C" cudaError_t mt_cuda_noise(void *x, int64_t n, uint32_t seed, cudaStream_t s)
{
    if (!n) return cudaSuccess;
    return MT_LAUNCH(noise_kernel, dim3(mt_blocks(n, THREADS)), dim3(THREADS), 0, s, static_cast<mt_bf *>(x),
                     n, seed);
}
extern "C" cudaError_t mt_cuda_apart(double *parts, const void *a, const void *b, int64_t n, mt_dtype t,
                                     cudaStream_t s)
{
    if (t == MT_BF16)
        return MT_LAUNCH(apart_kernel<mt_bf>, dim3(MT_COMPARE_PARTS), dim3(THREADS), 0, s, parts,
                         static_cast<const mt_bf *>(a), static_cast<const mt_bf *>(b), n);
    return MT_LAUNCH(apart_kernel<float>, dim3(MT_COMPARE_PARTS), dim3(THREADS), 0, s, parts,
                     static_cast<const float *>(a), static_cast<const float *>(b), n);
}
extern "C" cudaError_t mt_cuda_copy(void *to, const void *from, int64_t n, cudaStream_t s)
{
    if (mt_aligned16(to, 0) && mt_aligned16(from, 0)) return copy<uint4>(to, from, n, s);
    return copy<uint32_t>(to, from, n, s);
}
