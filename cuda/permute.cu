/* Rows to their experts' order: a block a row, moved in the widest words that fit. */
#include "kernels.h"
#include "mt_pack.cuh"

namespace
{
constexpr int THREADS = 128;

template <class W> __global__ void __launch_bounds__(THREADS) gather_kernel(mt_cuda_gather a)
{
    const int64_t row = blockIdx.x, from = a.order[row] / a.topk;
    const W *x = reinterpret_cast<const W *>(static_cast<const char *>(a.x) + from * a.x_bytes);
    W *y = reinterpret_cast<W *>(static_cast<char *>(a.y) + row * a.y_bytes);
    for (int64_t i = threadIdx.x; i < a.row_bytes / (int64_t)sizeof(W); i += THREADS) y[i] = x[i];
}
} // namespace

extern "C" cudaError_t mt_cuda_gather_rows(const mt_cuda_gather *a, cudaStream_t s)
{
    if (!a->rows || !a->row_bytes) return cudaSuccess;
    const dim3 grid((unsigned)a->rows), block(THREADS);
    const uintptr_t low = reinterpret_cast<uintptr_t>(a->y) | reinterpret_cast<uintptr_t>(a->x) |
                          static_cast<uintptr_t>(a->row_bytes | a->y_bytes | a->x_bytes);
    if (low % 16 == 0) return MT_LAUNCH(gather_kernel<uint4>, grid, block, 0, s, *a);
    if (low % 4 == 0) return MT_LAUNCH(gather_kernel<uint32_t>, grid, block, 0, s, *a);
    return MT_LAUNCH(gather_kernel<uint16_t>, grid, block, 0, s, *a);
}
