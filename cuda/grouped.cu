/* Products of routed rows with their experts' weights, over one dispatch round: rows [first, first + rows) of the expert
 * order, which the bounded buffers hold from row 0. Counts are read on the device.
 *
 * Row tiles are numbered over all experts, each expert's beginning at its own first row. The grid has room for the worst
 * case, one tile begun by every expert; a block that finds no tile of its number leaves. */
#include "mt_tile.cuh"

namespace
{
struct group {
    int64_t expert, begin, end; /* of its rows in the round */
    int64_t tile;               /* which of its row tiles */
};

/* Rows of expert e in the round, as far as the experts before it have `before` rows in all. */
MT_DEVICE group rows_of(int64_t e, int64_t before, int64_t count, int64_t first, int64_t rows)
{
    const int64_t begin = before - first, end = begin + count;
    return group{e, begin < 0 ? 0 : begin < rows ? begin : rows, end < 0 ? 0 : end < rows ? end : rows, 0};
}
MT_DEVICE int64_t scan_warp(int64_t v)
{
    for (int o = 1; o < 32; o <<= 1) {
        const int64_t below = __shfl_up_sync(MT_WARP_ALL, v, o);
        if ((int)threadIdx.x % 32 >= o) v += below;
    }
    return v;
}
/* The group of row tile `number`; expert -1: there is none. Every warp looks by itself, 32 experts at a time. */
MT_DEVICE group group_of(const int32_t *counts, int64_t experts, int64_t first, int64_t rows, int64_t number)
{
    const int lane = (int)threadIdx.x % 32;
    int64_t before = 0, tiles = 0;
    for (int64_t e0 = 0; e0 < experts; e0 += 32) {
        const int64_t e = e0 + lane, count = e < experts ? counts[e] : 0, upto = before + scan_warp(count);
        group g = rows_of(e, upto - count, count, first, rows);
        const int64_t mine = (g.end - g.begin + MT_TILE - 1) / MT_TILE, all = tiles + scan_warp(mine);
        const unsigned hit = __ballot_sync(MT_WARP_ALL, number >= all - mine && number < all);
        if (hit) {
            const int at = __ffs((int)hit) - 1;
            g.tile = number - (all - mine);
            return group{__shfl_sync(MT_WARP_ALL, g.expert, at), __shfl_sync(MT_WARP_ALL, g.begin, at),
                         __shfl_sync(MT_WARP_ALL, g.end, at), __shfl_sync(MT_WARP_ALL, g.tile, at)};
        }
        before = __shfl_sync(MT_WARP_ALL, upto, 31);
        tiles = __shfl_sync(MT_WARP_ALL, all, 31);
    }
    return group{-1, 0, 0, 0};
}

/* Arguments 0 output, 1 rows, 2 weights, 3 counts of either direction. forward: y = x w^T; else dx = dy w. `to` is where
 * row 0 of the round goes. */
template <class T, bool FORWARD>
__global__ void __launch_bounds__(MT_TILE_THREADS) rows_kernel(MT_CALL c, T *to)
{
    typedef mt_tile<T, T> tile;
    MT_SHARED(shared, typename tile::shared);
    const int64_t O = MT_DIM(c, 'O'), I = MT_DIM(c, 'I'), width = FORWARD ? O : I;
    const group g = group_of(static_cast<const int32_t *>(c.arg[3]), MT_DIM(c, 'E'), c.scalar[0].i,
                             c.scalar[1].i, blockIdx.y);
    if (g.expert < 0) return;
    const void *w = static_cast<const char *>(c.arg[2]) + g.expert * c.stride[2];
    const mt_operand<T> a = mt_rows_of_k<T>(c.arg[1], g.end, c.ld[1]),
                        b = FORWARD ? mt_rows_of_k<T>(w, O, c.ld[2]) : mt_lines_of_rows<T>(w, I, c.ld[2]);
    const int64_t m0 = g.begin + g.tile * MT_TILE, n0 = (int64_t)blockIdx.x * MT_TILE;
    tile t;
    t.each([&](int, int, float &v) { v = 0; });
    t.add(a, b, m0, n0, 0, FORWARD ? I : O, &shared);
    t.each([&](int i, int j, float &v) {
        if (m0 + i < g.end && n0 + j < width) mt_put(to[(m0 + i) * c.ld[0] + n0 + j], v);
    });
}
template <bool FORWARD> cudaError_t rows(const mt_call *c, bool into, cudaStream_t s)
{
    const int64_t width = MT_DIM(*c, FORWARD ? 'O' : 'I'), first = c->scalar[0].i, n = c->scalar[1].i;
    const dim3 grid(mt_blocks(width, MT_TILE), (unsigned)(n / MT_TILE + MT_DIM(*c, 'E')));
    if (!n || !grid.x || !MT_DIM(*c, 'E')) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        T *to = static_cast<T *>(c->arg[0]) + (into ? first * c->ld[0] : 0);
        return MT_LAUNCH(MT_K(rows_kernel<T, FORWARD>), grid, dim3(MT_TILE_THREADS), 0, s, *c, to);
    });
}

/* dw[e] += dy^T x over the expert's rows, from what dw holds: rounds are cut at multiples of 32 rows, so that any number of
 * them gives the same bits. */
template <class T> __global__ void __launch_bounds__(MT_TILE_THREADS) weights_kernel(MT_CALL c)
{
    typedef mt_tile<T, T> tile;
    const auto &a = *MT_ARGS(grouped_bwdw, &c);
    const auto &s = *MT_SCALARS(grouped_bwdw, &c);
    MT_SHARED(shared, typename tile::shared);
    const int64_t O = MT_DIM(c, 'O'), I = MT_DIM(c, 'I'), e = blockIdx.z;
    int64_t before = 0;
    for (int64_t k = threadIdx.x; k < e; k += MT_TILE_THREADS)
        before += static_cast<const int32_t *>(a.counts)[k];
    before = mt_block_add<MT_TILE_THREADS>(before);
    const group g = rows_of(e, before, static_cast<const int32_t *>(a.counts)[e], s.first, s.rows);
    if (g.begin == g.end) return;
    float *dw = reinterpret_cast<float *>(static_cast<char *>(a.dw) + e * c.stride[0]);
    const int64_t o0 = (int64_t)blockIdx.y * MT_TILE, i0 = (int64_t)blockIdx.x * MT_TILE;
    tile t;
    t.each(
        [&](int i, int j, float &v) { v = o0 + i < O && i0 + j < I ? dw[(o0 + i) * c.ld[0] + i0 + j] : 0; });
    t.add(mt_lines_of_rows<T>(a.dy, O, c.ld[1]), mt_lines_of_rows<T>(a.x, I, c.ld[2]), o0, i0, g.begin, g.end,
          &shared);
    t.each([&](int i, int j, float &v) {
        if (o0 + i < O && i0 + j < I) dw[(o0 + i) * c.ld[0] + i0 + j] = v;
    });
}
} // namespace

extern "C" cudaError_t mt_cuda_grouped_fwd(const mt_call *c, const mt_cuda_lane *q)
{
    return rows<true>(c, false, q->stream);
}
extern "C" cudaError_t mt_cuda_grouped_fwd_into(const mt_call *c, const mt_cuda_lane *q)
{
    return rows<true>(c, true, q->stream);
}
extern "C" cudaError_t mt_cuda_grouped_bwdx(const mt_call *c, const mt_cuda_lane *q)
{
    return rows<false>(c, false, q->stream);
}
extern "C" cudaError_t mt_cuda_grouped_bwdx_into(const mt_call *c, const mt_cuda_lane *q)
{
    return rows<false>(c, true, q->stream);
}
extern "C" cudaError_t mt_cuda_grouped_bwdw(const mt_call *c, const mt_cuda_lane *q)
{
    const dim3 grid(mt_blocks(MT_DIM(*c, 'I'), MT_TILE), mt_blocks(MT_DIM(*c, 'O'), MT_TILE),
                    (unsigned)MT_DIM(*c, 'E'));
    if (!MT_SCALARS(grouped_bwdw, c)->rows || !grid.x || !grid.y || !grid.z) return cudaSuccess;
    return mt_by_type(c, [=](auto t) {
        return MT_LAUNCH(weights_kernel<decltype(t)>, grid, dim3(MT_TILE_THREADS), 0, q->stream, *c);
    });
}
