/* Rows to their experts' order and back to their tokens: a block a row. */
#include "mt_kernel.cuh"

namespace
{
constexpr int THREADS = 128;

/* A row of `bytes`, in words of W. */
template <class W> MT_DEVICE void move_row(void *to, const void *from, int64_t bytes)
{
    for (int64_t i = threadIdx.x; i < bytes / (int64_t)sizeof(W); i += THREADS)
        static_cast<W *>(to)[i] = static_cast<const W *>(from)[i];
}
template <class W> __global__ void __launch_bounds__(THREADS) gather_kernel(MT_CALL c, int64_t el)
{
    const auto &a = *MT_ARGS(gather_rows, &c);
    const auto &s = *MT_SCALARS(gather_rows, &c);
    const int64_t row = blockIdx.x, from = static_cast<const int32_t *>(a.order)[s.first + row] / s.topk;
    move_row<W>(static_cast<char *>(a.y) + row * c.ld[0] * el,
                static_cast<const char *>(a.x) + from * c.ld[1] * el, MT_DIM(c, 'D') * el);
}

/* y[n] = h[n] + sum_k gates[n][k] ret[slot[n][k]], k ascending, without dropped ones */
template <class T, int V> __global__ void __launch_bounds__(THREADS) combine_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(combine_fwd, &c);
    const int64_t n = blockIdx.x;
    const float *gate = static_cast<const float *>(a.gates) + n * c.ld[3];
    const int32_t *slot = static_cast<const int32_t *>(a.slot) + n * c.ld[4];
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'D') / V; i += THREADS) {
        float sum[V], f[V];
        mt_load(sum, static_cast<const T *>(a.h) + n * c.ld[1], i);
        for (int64_t k = 0; k < MT_DIM(c, 'K'); k++) {
            const float g = gate[k];
            if (slot[k] < 0) continue;
            mt_load(f, static_cast<const T *>(a.ret) + slot[k] * c.ld[2], i);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += g * f[j];
        }
        mt_store(static_cast<T *>(a.y) + n * c.ld[0], i, sum);
    }
}

/* dx[n] = add[n] + sum_k dret[slot[n][k]], k ascending; dgates in token order, 0 of dropped ones */
template <class T, int V> __global__ void __launch_bounds__(THREADS) spread_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(combine_bwd, &c);
    const int64_t n = blockIdx.x, K = MT_DIM(c, 'K');
    const int32_t *slot = static_cast<const int32_t *>(a.slot) + n * c.ld[4];
    for (int64_t k = threadIdx.x; k < K; k += THREADS)
        static_cast<float *>(a.dgates)[n * c.ld[1] + k] =
            slot[k] < 0 ? 0 : static_cast<const float *>(a.dgate)[slot[k]];
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'D') / V; i += THREADS) {
        float sum[V] = {0}, f[V];
        if (a.add) mt_load(sum, static_cast<const T *>(a.add) + n * c.ld[5], i);
        for (int64_t k = 0; k < K; k++) {
            if (slot[k] < 0) continue;
            mt_load(f, static_cast<const T *>(a.dret) + slot[k] * c.ld[2], i);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += f[j];
        }
        mt_store(static_cast<T *>(a.dx) + n * c.ld[0], i, sum);
    }
}

__global__ void __launch_bounds__(THREADS) gates_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(gather_gates, &c);
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, K = MT_DIM(c, 'K');
    if (i >= MT_DIM(c, 'M')) return;
    const int64_t from = static_cast<const int32_t *>(a.order)[i];
    static_cast<float *>(a.y)[i] = static_cast<const float *>(a.gates)[from / K * c.ld[1] + from % K];
}

/* counts[e] = rows of all sources for expert e of member `me` */
__global__ void __launch_bounds__(THREADS) counts_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(expert_counts, &c);
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x, E = MT_DIM(c, 'E');
    if (e >= E) return;
    int32_t n = 0;
    for (int64_t r = 0; r < MT_DIM(c, 'R'); r++)
        n += static_cast<const int32_t *>(a.all)[r * c.ld[1] + MT_SCALARS(expert_counts, &c)->me * E + e];
    static_cast<int32_t *>(a.counts)[e] = n;
}

/* ---- between the order of an exchange, by source then expert, and that of the experts ---- */

/* A segment, the rows of one expert from one source, as far as they fall in the round: where it begins on either side, in
 * the order of experts. In scratch: [E R] of them, and an end. */
struct segment {
    int32_t sorted, packed;
};
/* One block: every source's rows in the round are counted, then the segments laid one after another. */
__global__ void __launch_bounds__(THREADS) segments_kernel(MT_CALL c, segment *to)
{
    const auto &s = *MT_SCALARS(expert_sort, &c);
    MT_SHARED(used, int64_t[MT_MAX_EP]);
    const int32_t *all = static_cast<const int32_t *>(c.arg[2]);
    const int64_t R = MT_DIM(c, 'R');
    if (threadIdx.x >= 1) return;
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = 0, base = 0;
        for (int64_t r = 0; r < R; r++) { /* the second time: from the rows of each to where they begin */
            const int64_t n = pass ? used[r] : 0;
            used[r] = pass ? base : 0;
            base += n;
        }
        for (int64_t e = 0; e < s.experts; e++)
            for (int64_t r = 0; r < R; r++) {
                const int64_t n = all[r * c.ld[2] + s.me * s.experts + e];
                const int64_t b = at > s.first ? at : s.first, last = s.first + s.rows,
                              z = at + n < last ? at + n : last;
                if (pass)
                    to[e * R + r] = segment{(int32_t)(b < last ? b - s.first : s.rows), (int32_t)used[r]};
                at += n;
                if (z > b) used[r] += z - b;
            }
    }
    to[s.experts * R] = segment{(int32_t)s.rows, 0};
}
/* The last segment that begins at or before the row has it: empty ones begin where the next one does. */
template <class W, bool TO_SORTED>
__global__ void __launch_bounds__(THREADS) sort_kernel(MT_CALL c, const segment *of, int64_t el)
{
    const int32_t row = (int32_t)blockIdx.x;
    int64_t lo = 0, hi = MT_SCALARS(expert_sort, &c)->experts * MT_DIM(c, 'R');
    while (hi - lo > 1) {
        const int64_t mid = (lo + hi) / 2;
        if (of[mid].sorted <= row)
            lo = mid;
        else
            hi = mid;
    }
    const int64_t sorted = row, packed = of[lo].packed + (row - of[lo].sorted);
    move_row<W>(static_cast<char *>(c.arg[0]) + (TO_SORTED ? sorted : packed) * c.ld[0] * el,
                static_cast<const char *>(c.arg[1]) + (TO_SORTED ? packed : sorted) * c.ld[1] * el,
                MT_DIM(c, 'D') * el);
}

bool wide(const mt_call *c, std::initializer_list<int> args)
{
    bool all = true;
    for (int i : args) all = all && mt_rows_wide(c, i, mt_dtype_bytes((mt_dtype)c->dtype), MT_DIM(*c, 'D'));
    return all;
}
template <bool TO_SORTED> cudaError_t sort(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &s = *MT_SCALARS(expert_sort, c);
    const int64_t el = mt_dtype_bytes((mt_dtype)c->dtype);
    segment *of = static_cast<segment *>(q->scratch);
    if (!s.rows || !MT_DIM(*c, 'D')) return cudaSuccess;
    if ((size_t)(s.experts * MT_DIM(*c, 'R') + 1) * sizeof *of > q->scratch_bytes)
        return cudaErrorInvalidValue;
    cudaError_t e = MT_LAUNCH(segments_kernel, dim3(1), dim3(THREADS), 0, q->stream, *c, of);
    if (e) return e;
    const dim3 grid((unsigned)s.rows), block(THREADS);
    if (wide(c, {0, 1}))
        return MT_LAUNCH(MT_K(sort_kernel<uint4, TO_SORTED>), grid, block, 0, q->stream, *c, of, el);
    return MT_LAUNCH(MT_K(sort_kernel<uint16_t, TO_SORTED>), grid, block, 0, q->stream, *c, of, el);
}
} // namespace

extern "C" cudaError_t mt_cuda_gather_rows(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t el = mt_dtype_bytes((mt_dtype)c->dtype);
    const dim3 grid((unsigned)MT_SCALARS(gather_rows, c)->rows), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'D')) return cudaSuccess;
    if (wide(c, {0, 1})) return MT_LAUNCH(gather_kernel<uint4>, grid, block, 0, q->stream, *c, el);
    return MT_LAUNCH(gather_kernel<uint16_t>, grid, block, 0, q->stream, *c, el);
}
extern "C" cudaError_t mt_cuda_combine_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'D')) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        if (wide(c, {0, 1, 2}))
            return MT_LAUNCH(MT_K(combine_kernel<T, mt_wide<T>>), grid, block, 0, q->stream, *c);
        return MT_LAUNCH(MT_K(combine_kernel<T, 1>), grid, block, 0, q->stream, *c);
    });
}
extern "C" cudaError_t mt_cuda_combine_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'N')), block(THREADS);
    if (!grid.x || !MT_DIM(*c, 'D')) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        if (wide(c, {0, 2, 5}))
            return MT_LAUNCH(MT_K(spread_kernel<T, mt_wide<T>>), grid, block, 0, q->stream, *c);
        return MT_LAUNCH(MT_K(spread_kernel<T, 1>), grid, block, 0, q->stream, *c);
    });
}
extern "C" cudaError_t mt_cuda_gather_gates(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'M'), THREADS);
    return grid ? MT_LAUNCH(gates_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_expert_counts(const mt_call *c, const mt_cuda_lane *q)
{
    const unsigned grid = mt_blocks(MT_DIM(*c, 'E'), THREADS);
    return grid ? MT_LAUNCH(counts_kernel, dim3(grid), dim3(THREADS), 0, q->stream, *c) : cudaSuccess;
}
extern "C" cudaError_t mt_cuda_expert_sort(const mt_call *c, const mt_cuda_lane *q)
{
    return sort<true>(c, q);
}
extern "C" cudaError_t mt_cuda_expert_unsort(const mt_call *c, const mt_cuda_lane *q)
{
    return sort<false>(c, q);
}
