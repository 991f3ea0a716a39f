/* QK-clip: the largest scores of heads, and what they do to rows of weights. */
#include "mt_kernel.cuh"

#include <cfloat>

namespace
{
constexpr int THREADS = 256;

MT_DEVICE float larger(float a, float b)
{
    return b > a ? b : a;
}

/* A block a head. */
__global__ void __launch_bounds__(THREADS) rows_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(max_rows, &c);
    const float *x = static_cast<const float *>(a.x) + blockIdx.x * c.ld[1];
    float *top = static_cast<float *>(a.top) + blockIdx.x, most = -FLT_MAX;
    for (int64_t n = threadIdx.x; n < MT_DIM(c, 'N'); n += THREADS) most = larger(most, x[n]);
    most = mt_block_max<THREADS>(most);
    if (threadIdx.x == 0) *top = larger(*top, most);
}

__global__ void __launch_bounds__(THREADS) parts_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(max_parts, &c);
    const int64_t w = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float most = -FLT_MAX;
    if (w >= MT_DIM(c, 'W')) return;
    for (int64_t r = 0; r < MT_DIM(c, 'R'); r++)
        most = larger(most, static_cast<const float *>(a.parts)[r * c.ld[1] + w]);
    static_cast<float *>(a.top)[w] = most;
}

/* A block a row of weights. */
__global__ void __launch_bounds__(THREADS) clip_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(qk_clip, &c);
    const auto &s = *MT_SCALARS(qk_clip, &c);
    const int64_t row = s.first + blockIdx.x;
    const float *top = static_cast<const float *>(a.top) + row / s.width / s.per * s.of;
    float most = top[0], *w = static_cast<float *>(a.w) + blockIdx.x * c.ld[0];
    for (int64_t i = 1; i < s.of; i++) most = larger(most, top[i]);
    if (!(most > (float)s.tau)) return;
    const float g = (float)s.tau / most, by = row % s.width < s.whole ? g : sqrtf(g);
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'C'); i += THREADS) w[i] *= by;
}
} // namespace

extern "C" cudaError_t mt_cuda_max_rows(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'H'));
    return grid.x ? MT_LAUNCH(rows_kernel, grid, dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_max_parts(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'W'), THREADS);
    return grid ? MT_LAUNCH(parts_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_qk_clip(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'R'));
    return grid.x ? MT_LAUNCH(clip_kernel, grid, dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
