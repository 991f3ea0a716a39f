/* Causal attention inside documents for any widths: a warp a row, 32 keys (or, for their gradients, 32 queries) at a time. */
#include "attention.h"
#include "mt_kernel.cuh"

#include <cfloat>

namespace
{
constexpr int WARPS = 4, THREADS = 32 * WARPS;

/* Row (token, head) of argument i, elements of T. */
template <class T> MT_DEVICE T *row_of(const mt_call &c, int i, int64_t token, int64_t head)
{
    return reinterpret_cast<T *>(static_cast<char *>(c.arg[i]) + token * c.stride[i]) + head * c.ld[i];
}
template <class T> MT_DEVICE void fetch(float *to, const T *from, int64_t n, int lane)
{
    for (int64_t i = lane; i < n; i += 32) to[i] = mt_get(from[i]);
}
template <class T> MT_DEVICE float dot(const float *x, const T *y, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * mt_get(y[i]);
    return sum;
}
/* Each of the warps of the grid has one row of `rows`; its number, or -1. */
MT_DEVICE int64_t my_row(int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    return row < rows ? row : -1;
}

/* In shared memory a warp has its query, its output so far, and the probabilities of 32 keys. */
template <class T> __global__ void __launch_bounds__(THREADS) fwd_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    const auto &a = *MT_ARGS(attention_fwd, &c);
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32;
    const int64_t A = MT_DIM(c, 'A'), B = MT_DIM(c, 'B'), H = MT_DIM(c, 'H'),
                  row = my_row(MT_DIM(c, 'N') * H);
    if (row < 0) return;
    const int64_t i = row / H, h = row % H, g = h / (H / MT_DIM(c, 'G')),
                  begin = static_cast<const int32_t *>(a.begin)[i];
    const float scale = (float)MT_SCALARS(attention_fwd, &c)->scale;
    float *q = all + threadIdx.x / 32 * (A + B + 32), *acc = q + A, *p = acc + B, top = -FLT_MAX, sum = 0;
    fetch(q, row_of<const T>(c, 2, i, h), A, lane);
    for (int64_t b = lane; b < B; b += 32) acc[b] = 0;
    __syncwarp();
    for (int64_t j0 = begin; j0 <= i; j0 += 32) {
        const int64_t j = j0 + lane, keys = i + 1 - j0 < 32 ? i + 1 - j0 : 32;
        const float s = lane < keys ? dot(q, row_of<const T>(c, 3, j, g), A) * scale : -FLT_MAX;
        const float most = fmaxf(top, mt_warp_max(s)), fade = expf(top - most);
        p[lane] = lane < keys ? expf(s - most) : 0;
        sum = sum * fade + mt_warp_add(p[lane]);
        top = most;
        __syncwarp();
        for (int64_t b = lane; b < B; b += 32) {
            float v = acc[b] * fade;
            for (int64_t k = 0; k < keys; k++) v += p[k] * mt_get(row_of<const T>(c, 4, j0 + k, g)[b]);
            acc[b] = v;
        }
        __syncwarp();
    }
    T *o = row_of<T>(c, 0, i, h);
    for (int64_t b = lane; b < B; b += 32) mt_put(o[b], acc[b] / sum);
    if (lane != 0) return;
    static_cast<float *>(a.lse)[h * c.ld[1] + i] = top + logf(sum);
    if (float *most = mt_attention_top(c)) most[h * c.ld[6] + i] = top;
}

template <class T> __global__ void __launch_bounds__(THREADS) delta_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    const auto &a = *MT_ARGS(attention_bwd, &c);
    const int lane = threadIdx.x % 32;
    const int64_t H = MT_DIM(c, 'H'), row = my_row(MT_DIM(c, 'N') * H);
    if (row < 0) return;
    const T *dout = row_of<const T>(c, 3, row / H, row % H), *o = row_of<const T>(c, 4, row / H, row % H);
    float sum = 0;
    for (int64_t b = lane; b < MT_DIM(c, 'B'); b += 32) sum += mt_get(dout[b]) * mt_get(o[b]);
    sum = mt_warp_add(sum);
    if (lane == 0) static_cast<float *>(a.delta)[row % H * c.ld[10] + row / H] = sum;
}

/* dS of one query and one key, and their probability. x, y: the row in shared memory against key (or query) and value (or
 * gradient of the output). */
struct pair_grad {
    float p, ds;
};
template <class T>
MT_DEVICE pair_grad pair_of(const mt_call &c, const float *x, const T *k, const float *y, const T *v,
                            int64_t i, int64_t h)
{
    const auto &a = *MT_ARGS(attention_bwd, &c);
    const float scale = (float)MT_SCALARS(attention_bwd, &c)->scale;
    const float s = dot(x, k, MT_DIM(c, 'A')), dp = dot(y, v, MT_DIM(c, 'B'));
    const float p = expf(s * scale - static_cast<const float *>(a.lse)[h * c.ld[5] + i]);
    return pair_grad{p, p * (dp - static_cast<const float *>(a.delta)[h * c.ld[10] + i]) * scale};
}

/* to[width] += factor[m] (row first + m of argument i), for n rows, in order. */
template <class T>
MT_DEVICE void add_rows(float *to, const mt_call &c, int i, const float *factor, int64_t first, int n,
                        int64_t head, int64_t width, int lane)
{
    for (int64_t k = lane; k < width; k += 32) {
        float sum = to[k];
#pragma unroll 1
        for (int m = 0; m < n; m++) sum += factor[m] * mt_get(row_of<const T>(c, i, first + m, head)[k]);
        to[k] = sum;
    }
}

/* dq of a query: over its keys. */
template <class T> __global__ void __launch_bounds__(THREADS) query_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32;
    const int64_t A = MT_DIM(c, 'A'), B = MT_DIM(c, 'B'), H = MT_DIM(c, 'H'),
                  row = my_row(MT_DIM(c, 'N') * H);
    if (row < 0) return;
    const int64_t i = row / H, h = row % H, g = h / (H / MT_DIM(c, 'G'));
    const int64_t begin = static_cast<const int32_t *>(MT_ARGS(attention_bwd, &c)->begin)[i];
    float *q = all + threadIdx.x / 32 * (2 * A + B + 32), *dout = q + A, *dq = dout + B, *ds = dq + A;
    fetch(q, row_of<const T>(c, 6, i, h), A, lane);
    fetch(dout, row_of<const T>(c, 3, i, h), B, lane);
    for (int64_t k = lane; k < A; k += 32) dq[k] = 0;
    __syncwarp();
    for (int64_t j0 = begin; j0 <= i; j0 += 32) {
        const int64_t j = j0 + lane, keys = i + 1 - j0 < 32 ? i + 1 - j0 : 32;
        if (lane < keys)
            ds[lane] = pair_of(c, q, row_of<const T>(c, 7, j, g), dout, row_of<const T>(c, 8, j, g), i, h).ds;
        __syncwarp();
        add_rows<T>(dq, c, 7, ds, j0, (int)keys, g, A, lane);
        __syncwarp();
    }
    for (int64_t k = lane; k < A; k += 32) mt_put(row_of<T>(c, 0, i, h)[k], dq[k]);
}

/* dk and dv of a key: over the heads of its group, and for each over the queries that see it, which are neighbours. */
template <class T> __global__ void __launch_bounds__(THREADS) key_kernel(MT_CALL c)
{
    if (mt_attention_done(c)) return;
    MT_DYN_SMEM(float, all);
    const int lane = threadIdx.x % 32;
    const int64_t A = MT_DIM(c, 'A'), B = MT_DIM(c, 'B'), G = MT_DIM(c, 'G'), N = MT_DIM(c, 'N'),
                  row = my_row(N * G);
    if (row < 0) return;
    const int64_t j = row / G, g = row % G, per = MT_DIM(c, 'H') / G;
    const int32_t *begin = static_cast<const int32_t *>(MT_ARGS(attention_bwd, &c)->begin);
    float *k = all + threadIdx.x / 32 * (2 * A + 2 * B + 64), *v = k + A, *dk = v + B, *dv = dk + A,
          *p = dv + B, *ds = p + 32;
    fetch(k, row_of<const T>(c, 7, j, g), A, lane);
    fetch(v, row_of<const T>(c, 8, j, g), B, lane);
    for (int64_t n = lane; n < A; n += 32) dk[n] = 0;
    for (int64_t n = lane; n < B; n += 32) dv[n] = 0;
    __syncwarp();
    for (int64_t h = g * per; h < (g + 1) * per; h++)
        for (int64_t i0 = j;; i0 += 32) {
            const int64_t i = i0 + lane;
            const bool sees = i < N && begin[i] <= j;
            const int queries = __popc(__ballot_sync(MT_WARP_ALL, sees));
            if (!queries) break;
            if (sees) {
                const pair_grad x =
                    pair_of(c, k, row_of<const T>(c, 6, i, h), v, row_of<const T>(c, 3, i, h), i, h);
                p[lane] = x.p;
                ds[lane] = x.ds;
            }
            __syncwarp();
            add_rows<T>(dk, c, 6, ds, i0, queries, h, A, lane);
            add_rows<T>(dv, c, 3, p, i0, queries, h, B, lane);
            __syncwarp();
            if (queries < 32) break;
        }
    for (int64_t n = lane; n < A; n += 32) mt_put(row_of<T>(c, 1, j, g)[n], dk[n]);
    for (int64_t n = lane; n < B; n += 32) mt_put(row_of<T>(c, 2, j, g)[n], dv[n]);
}

/* A block a micro-batch. */
__global__ void __launch_bounds__(THREADS) window_kernel(MT_CALL c)
{
    const auto &a = *MT_ARGS(window_begin, &c);
    const int64_t window = MT_SCALARS(window_begin, &c)->window;
    const int32_t *begin = static_cast<const int32_t *>(a.begin) + blockIdx.x * c.ld[1];
    int32_t *near = static_cast<int32_t *>(a.near) + blockIdx.x * c.ld[0];
    for (int64_t i = threadIdx.x; i < MT_DIM(c, 'N'); i += THREADS) {
        const int64_t first = i - window + 1;
        near[i] = begin[i] > first ? begin[i] : (int32_t)first;
    }
}

/* rows rows, each with `floats` of shared memory */
template <class... P>
cudaError_t launch(void (*kernel)(P...), int64_t rows, int64_t floats, const mt_call *c, cudaStream_t s)
{
    const size_t bytes = (size_t)(WARPS * floats * 4);
    cudaError_t e =
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return e ? e : MT_LAUNCH(kernel, dim3(mt_blocks(rows, WARPS)), dim3(THREADS), bytes, s, *c);
}
} // namespace

cudaError_t mt_attention_fwd_any(const mt_call *c, cudaStream_t s)
{
    return mt_by_type(c, [=](auto t) {
        return launch(fwd_kernel<decltype(t)>, MT_DIM(*c, 'N') * MT_DIM(*c, 'H'),
                      MT_DIM(*c, 'A') + MT_DIM(*c, 'B') + 32, c, s);
    });
}
cudaError_t mt_attention_delta(const mt_call *c, cudaStream_t s)
{
    return mt_by_type(c, [=](auto t) {
        return launch(delta_kernel<decltype(t)>, MT_DIM(*c, 'N') * MT_DIM(*c, 'H'), 0, c, s);
    });
}
cudaError_t mt_attention_bwd_any(const mt_call *c, cudaStream_t s)
{
    const int64_t A = MT_DIM(*c, 'A'), B = MT_DIM(*c, 'B'), N = MT_DIM(*c, 'N');
    return mt_by_type(c, [=](auto t) {
        cudaError_t e = launch(key_kernel<decltype(t)>, N * MT_DIM(*c, 'G'), 2 * A + 2 * B + 64, c, s);
        return e ? e : launch(query_kernel<decltype(t)>, N * MT_DIM(*c, 'H'), 2 * A + B + 32, c, s);
    });
}

extern "C" cudaError_t mt_cuda_attention_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    if (!MT_DIM(*c, 'N') || !MT_DIM(*c, 'H')) return cudaSuccess;
    const cudaError_t e = mt_attention_fwd_mma(c, q->stream);
    return e == cudaErrorNotSupported ? mt_attention_fwd_any(c, q->stream) : e;
}
extern "C" cudaError_t mt_cuda_attention_fwd_top(const mt_call *c, const mt_cuda_lane *q)
{
    return mt_cuda_attention_fwd(c, q);
}
extern "C" cudaError_t mt_cuda_attention_bwd(const mt_call *c, const mt_cuda_lane *q)
{
    if (!MT_DIM(*c, 'N') || !MT_DIM(*c, 'H')) return cudaSuccess;
    cudaError_t e = mt_attention_delta(c, q->stream);
    if (!e) e = mt_attention_bwd_mma(c, q->stream);
    return e == cudaErrorNotSupported ? mt_attention_bwd_any(c, q->stream) : e;
}
extern "C" cudaError_t mt_cuda_window_begin(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid((unsigned)MT_DIM(*c, 'R')), block(THREADS);
    return grid.x ? MT_LAUNCH(window_kernel, grid, block, 0, q->stream, *c) : cudaSuccess;
}
