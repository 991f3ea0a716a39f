/* Products of f32 matrices [B, R, C] with square ones, and of matrices with themselves: a tile of the result a block. */
#include "mt_tile.cuh"

namespace
{
/* A matrix of a batch: `across` elements from one m, or n, to the next, `along` from one k. */
struct side {
    const char *at;
    int64_t stride, n, across, along;
};
/* y = keep y + share a b^T, m x n, sums over k. */
struct product {
    char *y;
    int64_t stride, ld, m, n, k;
    float keep, share;
    side a, b;
};

MT_DEVICE mt_operand<float> operand_of(const side &x, int64_t batch)
{
    const char *at = x.at + batch * x.stride;
    return x.along == 1 ? mt_rows_of_k<float>(at, x.n, x.across) : mt_lines_of_rows<float>(at, x.n, x.along);
}
__global__ void __launch_bounds__(MT_TILE_THREADS) product_kernel(const __grid_constant__ product p)
{
    typedef mt_tile<float, float> tile;
    MT_SHARED(shared, typename tile::shared);
    const int64_t m0 = (int64_t)blockIdx.y * MT_TILE, n0 = (int64_t)blockIdx.x * MT_TILE;
    float *y = reinterpret_cast<float *>(p.y + blockIdx.z * p.stride);
    tile t;
    t.each([&](int, int, float &v) { v = 0; });
    t.add(operand_of(p.a, blockIdx.z), operand_of(p.b, blockIdx.z), m0, n0, 0, p.k, &shared);
    t.each([&](int i, int j, float &v) {
        if (m0 + i >= p.m || n0 + j >= p.n) return;
        float &to = y[(m0 + i) * p.ld + n0 + j];
        to = p.keep == 0 ? p.share * v : p.keep * to + p.share * v;
    });
}
cudaError_t launch(const product &p, int64_t batch, cudaStream_t s)
{
    const dim3 grid(mt_blocks(p.n, MT_TILE), mt_blocks(p.m, MT_TILE), (unsigned)batch);
    if (!batch || !p.m || !p.n) return cudaSuccess;
    return MT_LAUNCH(product_kernel, grid, dim3(MT_TILE_THREADS), 0, s, p);
}

/* Argument i of the call, its rows or its columns. */
side rows_of(const mt_call *c, int i, int64_t n)
{
    return {static_cast<const char *>(c->arg[i]), c->stride[i], n, c->ld[i], 1};
}
side columns_of(const mt_call *c, int i, int64_t n)
{
    return {static_cast<const char *>(c->arg[i]), c->stride[i], n, 1, c->ld[i]};
}
product into(const mt_call *c, int64_t m, int64_t n, int64_t k, side a, side b, double beta)
{
    return {static_cast<char *>(c->arg[0]),
            c->stride[0],
            c->ld[0],
            m,
            n,
            k,
            (float)beta,
            (float)(1 - beta),
            a,
            b};
}
} // namespace

extern "C" cudaError_t mt_cuda_turn_left(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t R = MT_DIM(*c, 'R'), C = MT_DIM(*c, 'C');
    const side a = MT_SCALARS(turn_left, c)->turned ? columns_of(c, 1, R) : rows_of(c, 1, R);
    return launch(into(c, R, C, R, a, columns_of(c, 2, C), 0), MT_DIM(*c, 'B'), q->stream);
}
extern "C" cudaError_t mt_cuda_turn_right(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t R = MT_DIM(*c, 'R'), C = MT_DIM(*c, 'C');
    const side b = MT_SCALARS(turn_right, c)->turned ? rows_of(c, 2, C) : columns_of(c, 2, C);
    return launch(into(c, R, C, C, rows_of(c, 1, R), b, 0), MT_DIM(*c, 'B'), q->stream);
}
extern "C" cudaError_t mt_cuda_gram_left(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t R = MT_DIM(*c, 'R'), C = MT_DIM(*c, 'C');
    return launch(into(c, R, R, C, rows_of(c, 1, R), rows_of(c, 1, R), MT_SCALARS(gram_left, c)->beta),
                  MT_DIM(*c, 'B'), q->stream);
}
extern "C" cudaError_t mt_cuda_gram_right(const mt_call *c, const mt_cuda_lane *q)
{
    const int64_t R = MT_DIM(*c, 'R'), C = MT_DIM(*c, 'C');
    return launch(into(c, C, C, R, columns_of(c, 1, C), columns_of(c, 1, C), MT_SCALARS(gram_right, c)->beta),
                  MT_DIM(*c, 'B'), q->stream);
}
