/* Fills, sums down columns, and the small sums that ranks and steps put together. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) fill_kernel(float *x, int64_t n, float value)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) x[i] = value;
}

/* y += x[0] + x[1] + ... of a column, in order. */
__global__ void __launch_bounds__(THREADS) rows_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(sum_rows, &c);
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= MT_DIM(c, 'D')) return;
    float sum = 0;
    for (int64_t p = 0; p < MT_DIM(c, 'P'); p++) sum += static_cast<const float *>(a.x)[p * c.ld[1] + j];
    static_cast<float *>(a.y)[j] += sum;
}

/* A block takes COLUMNS columns; every thread of one adds a part of its rows, f32 over RUN of them, f64 over those. */
constexpr int COLUMNS = 32, LINES = THREADS / COLUMNS, RUN = 64;
template <class T> __global__ void __launch_bounds__(THREADS) bias_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(bias_bwd, &c);
    MT_SHARED(part, double[LINES][COLUMNS]);
    const int64_t column = threadIdx.x % COLUMNS, line = threadIdx.x / COLUMNS,
                  j = blockIdx.x * COLUMNS + column;
    const int64_t rows = MT_DIM(c, 'N');
    double sum = 0;
    for (int64_t n0 = line * RUN; n0 < rows && j < MT_DIM(c, 'O'); n0 += LINES * RUN) {
        float some = 0;
        for (int64_t n = n0; n < n0 + RUN && n < rows; n++)
            some += mt_get(static_cast<const T *>(a.dy)[n * c.ld[1] + j]);
        sum += (double)some;
    }
    part[line][column] = sum;
    __syncthreads();
    if (line || j >= MT_DIM(c, 'O')) return;
    float *db = static_cast<float *>(a.db) + j;
    double all = (double)*db;
    for (int i = 0; i < LINES; i++) all += part[i][column];
    *db = (float)all;
}

/* The pieces are added up in rank order, then to acc. */
template <class T, int V> __global__ void __launch_bounds__(THREADS) pieces_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(sum_pieces, &c);
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= MT_DIM(c, 'N') / V) return;
    float sum[V] = {0}, f[V];
    for (int64_t r = 0; r < MT_DIM(c, 'R'); r++) {
        mt_load(f, static_cast<const T *>(a.staging) + r * c.ld[1], i);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += f[k];
    }
    float *acc = static_cast<float *>(a.acc);
    mt_load_f32(f, acc, i);
#pragma unroll
    for (int k = 0; k < V; k++) acc[i * V + k] = f[k] + sum[k];
}

/* Words of exact sums carry in two's complement. */
__global__ void __launch_bounds__(THREADS) words_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(sum_parts_i64, &c);
    const int64_t w = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (w >= MT_DIM(c, 'W')) return;
    uint64_t sum = 0;
    for (int64_t r = 0; r < MT_DIM(c, 'R'); r++)
        sum += static_cast<const uint64_t *>(a.parts)[r * c.ld[1] + w];
    static_cast<uint64_t *>(a.sum)[w] = sum;
}
__global__ void doubles_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(sum_parts_f64, &c);
    double all = 0;
    for (int64_t r = 0; r < MT_DIM(c, 'R'); r++)
        all += static_cast<const double *>(a.parts)[r * c.ld[1] + blockIdx.x];
    static_cast<double *>(a.sum)[blockIdx.x] = all;
}
/* acc += all[0] + all[1] + ...; total = acc */
__global__ void __launch_bounds__(THREADS) total_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(counts_total, &c);
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e >= MT_DIM(c, 'E')) return;
    int64_t sum = static_cast<int64_t *>(a.acc)[e];
    for (int64_t r = 0; r < MT_DIM(c, 'R'); r++) sum += static_cast<const int64_t *>(a.all)[r * c.ld[2] + e];
    static_cast<int64_t *>(a.acc)[e] = sum;
    static_cast<int64_t *>(a.total)[e] = sum;
}

__global__ void __launch_bounds__(THREADS) valid_kernel(int64_t *n, const int32_t *label, int64_t count)
{
    int mine = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) mine += label[i] >= 0;
    mine = mt_block_add<THREADS>(mine);
    if (threadIdx.x == 0) *n += mine;
}
__global__ void __launch_bounds__(THREADS) loss_kernel(double *acc, const float *loss, int64_t count)
{
    double mine = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) mine += (double)loss[i];
    mine = mt_block_add<THREADS>(mine);
    if (threadIdx.x == 0) *acc += mine;
}

__global__ void __launch_bounds__(THREADS) counts_kernel(int64_t *acc, const int32_t *counts, int64_t n)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e < n) acc[e] += counts[e];
}

/* Experts with less than the mean load get rate more, those with more get rate less, and the mean stays. */
MT_DEVICE double above(int64_t count, double mean)
{
    return (double)((double)count < mean) - (double)((double)count > mean);
}
__global__ void __launch_bounds__(THREADS)
    balance_kernel(float *bias, const int64_t *counts, int64_t n, double rate)
{
    double mean = 0, drift = 0;
    for (int64_t e = threadIdx.x; e < n; e += THREADS) mean += (double)counts[e];
    mean = mt_block_add<THREADS>(mean) / (double)n;
    for (int64_t e = threadIdx.x; e < n; e += THREADS) drift += above(counts[e], mean);
    drift = mt_block_add<THREADS>(drift) / (double)n;
    for (int64_t e = threadIdx.x; e < n; e += THREADS)
        bias[e] = (float)((double)bias[e] + rate * (above(counts[e], mean) - drift));
}

template <class T> cudaError_t pieces(const mt_call *c, cudaStream_t s)
{
    constexpr int V = mt_wide<T>;
    const int64_t n = MT_DIM(*c, 'N');
    const dim3 block(THREADS);
    if (!n) return cudaSuccess;
    if (mt_rows_wide(c, 0, 4, n) && mt_rows_wide(c, 1, sizeof(T), n))
        return MT_LAUNCH(MT_K(pieces_kernel<T, V>), dim3(mt_blocks(n / V, THREADS)), block, 0, s, *c);
    return MT_LAUNCH(MT_K(pieces_kernel<T, 1>), dim3(mt_blocks(n, THREADS)), block, 0, s, *c);
}
} // namespace

extern "C" cudaError_t mt_cuda_fill_f32(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t n = c->bytes[0] / 4;
    if (!n) return cudaSuccess;
    return MT_LAUNCH(fill_kernel, dim3(mt_blocks(n, THREADS)), dim3(THREADS), 0, q->stream,
                     static_cast<float *>(c->arg[0]), n, (float)MT_SCALARS(fill_f32, c)->value);
}
extern "C" cudaError_t mt_cuda_sum_rows(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'D'), THREADS);
    return grid ? MT_LAUNCH(rows_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_bias_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'O'), COLUMNS);
    if (!grid) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        return MT_LAUNCH(bias_kernel<decltype(t)>, dim3(grid), dim3(THREADS), 0, q->stream, *c);
    });
}
extern "C" cudaError_t mt_cuda_sum_pieces(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_by_type(c, [=](auto t) { return pieces<decltype(t)>(c, q->stream); });
}
extern "C" cudaError_t mt_cuda_sum_parts_i64(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'W'), THREADS);
    return grid ? MT_LAUNCH(words_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_sum_parts_f64(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = (unsigned)MT_DIM(*c, 'W');
    return grid ? MT_LAUNCH(doubles_kernel, dim3(grid), dim3(1), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_count_valid(const mt_call *c, const mt_cuda_lane *q)
{
    return MT_LAUNCH(valid_kernel, dim3(1), dim3(THREADS), 0, q->stream, static_cast<int64_t *>(c->arg[0]),
                     static_cast<const int32_t *>(c->arg[1]), MT_DIM(*c, 'N'));
}
extern "C" cudaError_t mt_cuda_sum_loss(const mt_call *c, const mt_cuda_lane *q)
{
    return MT_LAUNCH(loss_kernel, dim3(1), dim3(THREADS), 0, q->stream, static_cast<double *>(c->arg[0]),
                     static_cast<const float *>(c->arg[1]), MT_DIM(*c, 'N'));
}
extern "C" cudaError_t mt_cuda_counts_add(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t n = MT_DIM(*c, 'E');
    if (!n) return cudaSuccess;
    return MT_LAUNCH(counts_kernel, dim3(mt_blocks(n, THREADS)), dim3(THREADS), 0, q->stream,
                     static_cast<int64_t *>(c->arg[0]), static_cast<const int32_t *>(c->arg[1]), n);
}
extern "C" cudaError_t mt_cuda_counts_total(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'E'), THREADS);
    return grid ? MT_LAUNCH(total_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_bias_update(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t n = MT_DIM(*c, 'E');
    if (!n) return cudaSuccess;
    return MT_LAUNCH(balance_kernel, dim3(1), dim3(THREADS), 0, q->stream, static_cast<float *>(c->arg[0]),
                     static_cast<const int64_t *>(c->arg[1]), n, MT_SCALARS(bias_update, c)->rate);
}
