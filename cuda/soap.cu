/* SOAP round its turns (turn.cu), and Shampoo's graft: a block a row of matrices [B, R, C], f32, that lie apart by strides. */
#include "mt_kernel.cuh"

#include <cmath>

namespace
{
constexpr int THREADS = 256;

MT_DEVICE float *row_of(const mt_call &c, int i, int64_t row)
{
    const int64_t rows = MT_DIM(c, 'R');
    return reinterpret_cast<float *>(static_cast<char *>(c.arg[i]) + row / rows * c.stride[i]) +
           row % rows * c.ld[i];
}
__global__ void __launch_bounds__(THREADS) moment_kernel(MT_CALL c, float keep, float rest)
{
    float *g = row_of(c, 0, blockIdx.x), *u = row_of(c, 1, blockIdx.x), *m = row_of(c, 2, blockIdx.x);
    const float *grad = row_of(c, 3, blockIdx.x);
    const float scale = *static_cast<const float *>(MT_ARGS(soap_moment, &c)->scale);
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'C'); i += THREADS) {
        const float x = grad[i] * scale, mean = keep * m[i] + rest * x;
        g[i] = x;
        m[i] = mean;
        u[i] = mean;
    }
}
/* A block a matrix. */
__global__ void __launch_bounds__(THREADS) graft_kernel(MT_CALL c)
{
    const int64_t rows = MT_DIM(c, 'R'), cols = MT_DIM(c, 'C'), first = blockIdx.x * rows;
    const bool takes = MT_SCALARS(graft, &c)->takes;
    double x2 = 0, like2 = 0;
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t i = threadIdx.x; i < cols; i += THREADS) {
            const double x = (double)row_of(c, 0, r)[i], like = (double)row_of(c, 1, r)[i];
            x2 += x * x;
            like2 += like * like;
        }
    x2 = mt_block_add<THREADS>(x2);
    like2 = mt_block_add<THREADS>(like2);
    const float by = x2 != 0 ? (float)(sqrt(like2) / sqrt(x2)) : 0;
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t i = threadIdx.x; i < cols; i += THREADS) {
            float *x = row_of(c, 0, r) + i;
            *x = takes ? *x * by : row_of(c, 1, r)[i];
        }
}
struct factors {
    float keep, rest, lift, root, eps;
};
__global__ void __launch_bounds__(THREADS) adam_kernel(MT_CALL c, factors k)
{
    float *v = row_of(c, 0, blockIdx.x), *u = row_of(c, 1, blockIdx.x);
    const float *g = row_of(c, 2, blockIdx.x);
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'C'); i += THREADS) {
        const float square = k.keep * v[i] + k.rest * (g[i] * g[i]);
        v[i] = square;
        u[i] = k.lift * u[i] / (sqrtf(square) * k.root + k.eps);
    }
}
dim3 grid_of(const mt_call *c)
{
    return dim3((unsigned)(MT_DIM(*c, 'B') * MT_DIM(*c, 'R')));
}
} // namespace

extern "C" cudaError_t mt_cuda_graft(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'B'));
    if (!grid.x || !MT_DIM(*c, 'R') || !MT_DIM(*c, 'C')) return cudaSuccess;
    return MT_LAUNCH(graft_kernel, grid, dim3(THREADS), 0, q->stream, *c);
}
extern "C" cudaError_t mt_cuda_soap_moment(const mt_call *c, const mt_cuda_lane *q)
{
    const double beta = MT_SCALARS(soap_moment, c)->beta;
    if (!grid_of(c).x || !MT_DIM(*c, 'C')) return cudaSuccess;
    return MT_LAUNCH(moment_kernel, grid_of(c), dim3(THREADS), 0, q->stream, *c, (float)beta,
                     (float)(1 - beta));
}
extern "C" cudaError_t mt_cuda_soap_adam(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &s = *MT_SCALARS(soap_adam, c);
    const double t = (double)s.step;
    const factors k = {(float)s.beta2, (float)(1 - s.beta2), (float)(1 / (1 - std::pow(s.beta1, t))),
                       s.beta2 < 1 ? (float)(1 / std::sqrt(1 - std::pow(s.beta2, t))) : 1, (float)s.eps};
    if (!grid_of(c).x || !MT_DIM(*c, 'C')) return cudaSuccess;
    return MT_LAUNCH(adam_kernel, grid_of(c), dim3(THREADS), 0, q->stream, *c, k);
}
