/* Products with the router's weight, in f32 whatever the rows' type: a tile a block. */
#include "mt_tile.cuh"

namespace
{
/* c [m][n] += A B over k of it; what the element was is added in f32. Elements of type TC. */
template <class TA, class TB, class TC> struct product {
    mt_operand<TA> a;
    mt_operand<TB> b;
    TC *c;
    int64_t k, ldc;
    bool add;
};
template <class TA, class TB, class TC>
__global__ void __launch_bounds__(MT_TILE_THREADS)
    product_kernel(const __grid_constant__ product<TA, TB, TC> p)
{
    typedef mt_tile<TA, TB> tile;
    MT_SHARED(shared, typename tile::shared);
    const int64_t m0 = (int64_t)blockIdx.x * MT_TILE, n0 = (int64_t)blockIdx.y * MT_TILE;
    tile t;
    t.each([&](int, int, float &v) { v = 0; });
    t.add(p.a, p.b, m0, n0, 0, p.k, &shared);
    t.each([&](int i, int j, float &v) {
        if (m0 + i >= p.a.n || n0 + j >= p.b.n) return;
        TC &to = p.c[(m0 + i) * p.ldc + n0 + j];
        mt_put(to, p.add ? mt_get(to) + v : v);
    });
}
template <class TA, class TB, class TC> cudaError_t launch(const product<TA, TB, TC> &p, cudaStream_t s)
{
    const dim3 grid(mt_blocks(p.a.n, MT_TILE), mt_blocks(p.b.n, MT_TILE));
    if (!grid.x || !grid.y) return cudaSuccess;
    return MT_LAUNCH(MT_K(product_kernel<TA, TB, TC>), grid, dim3(MT_TILE_THREADS), 0, s, p);
}
} // namespace

/* y [N][E] = x w^T */
extern "C" cudaError_t mt_cuda_router_logits(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &a = *MT_ARGS(router_logits, c);
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        return launch(product<T, float, float>{mt_rows_of_k<T>(a.x, MT_DIM(*c, 'N'), c->ld[1]),
                                               mt_rows_of_k<float>(a.w, MT_DIM(*c, 'E'), c->ld[2]),
                                               static_cast<float *>(a.y), MT_DIM(*c, 'D'), c->ld[0], false},
                      q->stream);
    });
}
/* dx [N][D] += dlogits w */
extern "C" cudaError_t mt_cuda_router_bwdx(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &a = *MT_ARGS(router_bwdx, c);
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        return launch(product<float, float, T>{mt_rows_of_k<float>(a.dlogits, MT_DIM(*c, 'N'), c->ld[1]),
                                               mt_lines_of_rows<float>(a.w, MT_DIM(*c, 'D'), c->ld[2]),
                                               static_cast<T *>(a.dx), MT_DIM(*c, 'E'), c->ld[0], true},
                      q->stream);
    });
}
/* dw [E][D] += dlogits^T x */
extern "C" cudaError_t mt_cuda_router_bwdw(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &a = *MT_ARGS(router_bwdw, c);
    return mt_by_type(c, [=](auto t) {
        typedef decltype(t) T;
        return launch(product<float, T, float>{mt_lines_of_rows<float>(a.dlogits, MT_DIM(*c, 'E'), c->ld[1]),
                                               mt_lines_of_rows<T>(a.x, MT_DIM(*c, 'D'), c->ld[2]),
                                               static_cast<float *>(a.dw), MT_DIM(*c, 'N'), c->ld[0], true},
                      q->stream);
    });
}
