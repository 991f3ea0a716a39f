/* Cross entropy of a chunk of tokens: a block a token. Labels below 0 do not count. */
#include "mt_kernel.cuh"

#include <cfloat>

namespace
{
constexpr int THREADS = 256;

struct lse {
    float top;  /* the largest logit */
    double sum; /* of exp(logit - top) */
};
/* In one pass over x: every thread's sum follows the largest logit that it has seen; then they are put on the largest of
 * all. NaN anywhere makes it NaN. */
template <int V> MT_DEVICE lse row_lse(const float *x, int64_t width)
{
    float top = -FLT_MAX, sum = 0;
    for (int64_t i = threadIdx.x; i < width / V; i += THREADS) {
        float f[V];
        mt_load_f32(f, x, i);
        float here = f[0];
#pragma unroll
        for (int k = 1; k < V; k++) here = fmaxf(here, f[k]);
        if (here > top) {
            sum *= expf(top - here);
            top = here;
        }
#pragma unroll
        for (int k = 0; k < V; k++) sum += expf(f[k] - top);
    }
    const float most = mt_block_max<THREADS>(top);
    return lse{most, mt_block_add<THREADS>((double)sum * exp((double)top - (double)most))};
}
MT_DEVICE float loss_of(lse r, float logit)
{
    return (float)(log(r.sum) - ((double)logit - (double)r.top));
}

/* dlogits, which may be the logits: (softmax - onehot) weight / valid */
template <class T, int V> __global__ void __launch_bounds__(THREADS) xent_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(xent, &c);
    const int64_t width = MT_DIM(c, 'V'), n = blockIdx.x, label = static_cast<const int32_t *>(a.labels)[n];
    const float *x = static_cast<const float *>(a.logits) + n * c.ld[2];
    T *d = static_cast<T *>(a.dlogits) + n * c.ld[0];
    if (label < 0) {
        const float zero[V] = {0};
        for (int64_t i = threadIdx.x; i < width / V; i += THREADS) mt_store(d, i, zero);
        if (threadIdx.x == 0) static_cast<float *>(a.loss)[n] = 0;
        return;
    }
    const float logit = x[label];
    const lse r = row_lse<V>(x, width);
    const double valid = (double)*static_cast<const int64_t *>(a.valid),
                 weight = MT_SCALARS(xent, &c)->weight;
    const float scale = (float)(weight / (r.sum * valid));
    for (int64_t i = threadIdx.x; i < width / V; i += THREADS) {
        float f[V];
        mt_load_f32(f, x, i);
#pragma unroll
        for (int k = 0; k < V; k++) f[k] = expf(f[k] - r.top) * scale;
        if (label / V == i) {
            const float right = (float)(weight * (exp((double)logit - (double)r.top) / r.sum - 1) / valid);
#pragma unroll
            for (int k = 0; k < V; k++)
                if (k == label % V) f[k] = right;
        }
        mt_store(d, i, f);
    }
    if (threadIdx.x == 0) static_cast<float *>(a.loss)[n] = loss_of(r, logit);
}
template <int V> __global__ void __launch_bounds__(THREADS) eval_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(xent_eval, &c);
    const int64_t n = blockIdx.x, label = static_cast<const int32_t *>(a.labels)[n];
    const float *x = static_cast<const float *>(a.logits) + n * c.ld[1];
    float loss = 0;
    if (label >= 0) loss = loss_of(row_lse<V>(x, MT_DIM(c, 'V')), x[label]);
    if (threadIdx.x == 0) static_cast<float *>(a.loss)[n] = loss;
}

template <class T> cudaError_t xent(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t width = MT_DIM(*c, 'V');
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x || !width) return cudaSuccess;
    if (mt_rows_wide(c, 0, sizeof(T), width) && mt_rows_wide(c, 2, 4, width))
        return MT_LAUNCH(MT_K(xent_kernel<T, V>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(xent_kernel<T, 1>), grid, block, 0, s, *c);
}
} // namespace

extern "C" cudaError_t mt_cuda_xent(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return xent<decltype(t)>(c, q->stream); });
}
extern "C" cudaError_t mt_cuda_xent_eval(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x) return cudaSuccess;
    if (mt_rows_wide(c, 1, 4, MT_DIM(*c, 'V')))
        return MT_LAUNCH(eval_kernel<4>, grid, block, 0, q->stream, *c);
    return MT_LAUNCH(eval_kernel<1>, grid, block, 0, q->stream, *c);
}
