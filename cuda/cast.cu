/* f32 matrices to the working type: a block a row. */
#include "kernels.h"
#include "mt_pack.cuh"

namespace
{
constexpr int THREADS = 256;

template <class T, int V> __global__ void __launch_bounds__(THREADS) cast_kernel(mt_cuda_cast a)
{
    const int64_t matrix = blockIdx.x / a.rows, row = blockIdx.x % a.rows;
    const float *x =
        reinterpret_cast<const float *>(reinterpret_cast<const char *>(a.x) + matrix * a.x_stride) +
        row * a.ldx;
    T *y = reinterpret_cast<T *>(static_cast<char *>(a.y) + matrix * a.y_stride) + row * a.ldy;
    for (int64_t i = threadIdx.x; i < a.width / V; i += THREADS) {
        float f[V];
        mt_load_f32(f, x, i);
        mt_store(y, i, f);
    }
}

template <class T> cudaError_t cast(const mt_cuda_cast &a, cudaStream_t s)
{
    constexpr int V = 16 / sizeof(T);
    const dim3 grid((unsigned)(a.count * a.rows)), block(THREADS);
    bool wide = a.width % V == 0 && mt_aligned16(a.x, a.ldx * 4 | a.x_stride) &&
                mt_aligned16(a.y, a.ldy * (int64_t)sizeof(T) | a.y_stride);
    if (wide) return MT_LAUNCH(MT_K(cast_kernel<T, V>), grid, block, 0, s, a);
    return MT_LAUNCH(MT_K(cast_kernel<T, 1>), grid, block, 0, s, a);
}
} // namespace

extern "C" cudaError_t mt_cuda_cast_f32(const mt_cuda_cast *a, cudaStream_t s)
{
    if (!a->count || !a->rows || !a->width) return cudaSuccess;
    return a->dtype == MT_BF16 ? cast<__nv_bfloat16>(*a, s) : cast<float>(*a, s);
}
