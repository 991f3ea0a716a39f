/* f32 to the working type: whole buffers, and stacks of matrices, a block a row. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 256, EACH = 4; /* accesses a thread */

template <class T, int V>
__global__ void __launch_bounds__(THREADS) flat_kernel(T *y, const float *x, int64_t n)
{
    const int64_t packs = (n + V - 1) / V, first = (int64_t)blockIdx.x * THREADS * EACH + threadIdx.x;
    for (int k = 0; k < EACH; k++) {
        const int64_t i = first + k * THREADS;
        if (i >= packs) return;
        if ((i + 1) * V <= n) {
            float f[V];
            mt_load_f32(f, x, i);
            mt_store(y, i, f);
        } else {
            for (int64_t j = i * V; j < n; j++) mt_put(y[j], x[j]);
        }
    }
}
template <class T> cudaError_t flat(void *y, const void *x, int64_t n, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    if (!n) return cudaSuccess;
    T *to = static_cast<T *>(y);
    const float *from = static_cast<const float *>(x);
    const dim3 block(THREADS);
    if (mt_aligned16(y, 0) && mt_aligned16(x, 0))
        return MT_LAUNCH(MT_K(flat_kernel<T, V>), dim3(mt_blocks(n, V * THREADS * EACH)), block, 0, s, to,
                         from, n);
    return MT_LAUNCH(MT_K(flat_kernel<T, 1>), dim3(mt_blocks(n, THREADS * EACH)), block, 0, s, to, from, n);
}
/* Argument 1, f32, to argument 0. */
cudaError_t flat_call(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(
        c, [=](auto t) { return flat<decltype(t)>(c->arg[0], c->arg[1], c->bytes[1] / 4, q->stream); });
}

template <class T, int V> __global__ void __launch_bounds__(THREADS) pack_kernel(MT_CALL c)
{
    const int64_t rows = MT_DIM(c, 'O'), matrix = blockIdx.x / rows, row = blockIdx.x % rows;
    const auto &a = *MT_ARGS(weight_pack, &c);
    const float *x =
        reinterpret_cast<const float *>(static_cast<const char *>(a.master) + matrix * c.stride[1]) +
        row * c.ld[1];
    T *y = reinterpret_cast<T *>(static_cast<char *>(a.w) + matrix * c.stride[0]) + row * c.ld[0];
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'I') / V; i += THREADS) {
        float f[V];
        mt_load_f32(f, x, i);
        mt_store(y, i, f);
    }
}
template <class T> cudaError_t pack(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t width = MT_DIM(*c, 'I');
    const dim3 grid((unsigned)(MT_DIM(*c, 'E') * MT_DIM(*c, 'O'))), block(THREADS);
    bool wide = width % V == 0 && mt_rows_wide(c, 0, sizeof(T), width) && mt_rows_wide(c, 1, 4, width) &&
                c->stride[0] % 16 == 0 && c->stride[1] % 16 == 0;
    if (!grid.x || !width) return cudaSuccess;
    if (wide) return MT_LAUNCH(MT_K(pack_kernel<T, V>), grid, block, 0, s, *c);
    return MT_LAUNCH(MT_K(pack_kernel<T, 1>), grid, block, 0, s, *c);
}
} // namespace

extern "C" cudaError_t mt_cuda_weight_cast(const mt_call *c, const mt_cuda_lane *q)
{
    return flat_call(c, q);
}
extern "C" cudaError_t mt_cuda_grad_cast(const mt_call *c, const mt_cuda_lane *q)
{
    return flat_call(c, q);
}
extern "C" cudaError_t mt_cuda_weight_pack(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return pack<decltype(t)>(c, q->stream); });
}
extern "C" cudaError_t mt_cuda_to_bf16(void *y, const float *x, int64_t n, cudaStream_t s)
{
    return flat<mt_bf>(y, x, n, s);
}
