/* Newton-Schulz iteration of Muon: X <- aX + (bA + cAA) X with A = X X^T, from X / |X|, the matrices of a batch side by side.
 * Every product is rounded to T once, after its combination with the other term. A and bA + cAA are symmetric: tiles on and
 * below the diagonal are computed and written twice. */
#include "mt_tile.cuh"

extern "C" {
#include "base/ns_coeff.h"
#include "device/cpu/muon_ws.h"
}

namespace
{
constexpr int THREADS = 256, PARTS = 32, EDGE = 32;

/* Some matrices of the call, r x c, each with a lane of the workspace, where X is s x l, transposed if it is tall. */
struct batch {
    char *x, *ws;
    int64_t n, r, c, ld, stride;
    mt_ns_layout at;
};
template <class T> MT_DEVICE T *lane_at(const batch &b, int64_t offset)
{
    return reinterpret_cast<T *>(b.ws + blockIdx.z * b.at.bytes + offset);
}
template <class T> MT_DEVICE T *matrix_of(const batch &b)
{
    return reinterpret_cast<T *>(b.x + blockIdx.z * b.stride);
}

/* PARTS sums of squares of each matrix, f64, where the cpu has its products. */
template <class T> __global__ void __launch_bounds__(THREADS) norm_kernel(const __grid_constant__ batch b)
{
    const T *x = matrix_of<T>(b);
    double sum = 0;
    for (int64_t i = blockIdx.x; i < b.r; i += PARTS)
        for (int64_t j = threadIdx.x; j < b.c; j += THREADS) {
            const double v = (double)mt_get(x[i * b.ld + j]);
            sum += v * v;
        }
    sum = mt_block_add<THREADS>(sum);
    if (threadIdx.x == 0) lane_at<double>(b, b.at.sum)[blockIdx.x] = sum;
}
/* Clamped so that a zero matrix stays zero; NaN goes through. */
template <class T> MT_DEVICE float norm_of(const batch &b)
{
    double sum = 0;
    for (int i = 0; i < PARTS; i++) sum += lane_at<double>(b, b.at.sum)[i];
    T rounded;
    mt_put(rounded, (float)sqrt(sum));
    const float norm = mt_get(rounded);
    return norm < 1e-7f ? 1e-7f : norm;
}

/* Between the matrices and their lanes, in squares of EDGE: IN divides by the norm. */
template <class T, bool IN>
__global__ void __launch_bounds__(THREADS) turn_kernel(const __grid_constant__ batch b, int64_t offset)
{
    MT_SHARED(square, float[EDGE][EDGE + 1]);
    T *x = matrix_of<T>(b), *y = lane_at<T>(b, offset);
    const bool tall = b.r > b.c;
    const int64_t row0 = (int64_t)blockIdx.y * EDGE, column0 = (int64_t)blockIdx.x * EDGE;
    const int line = (int)threadIdx.x / EDGE, at = (int)threadIdx.x % EDGE;
    const float norm = IN ? norm_of<T>(b) : 1;
    for (int i = line; i < EDGE; i += THREADS / EDGE) {
        const bool turned = !IN && tall; /* reads along lines of what it reads */
        const int64_t row = row0 + (turned ? at : i), column = column0 + (turned ? i : at);
        if (row >= b.r || column >= b.c) continue;
        const float v = mt_get(IN ? x[row * b.ld + column]
                                  : y[tall ? column * b.at.ld_l + row : row * b.at.ld_l + column]);
        square[row - row0][column - column0] = v / norm;
    }
    __syncthreads();
    for (int i = line; i < EDGE; i += THREADS / EDGE) {
        const bool turned = IN && tall;
        const int64_t row = row0 + (turned ? at : i), column = column0 + (turned ? i : at);
        if (row >= b.r || column >= b.c) continue;
        T &to = IN ? y[tall ? column * b.at.ld_l + row : row * b.at.ld_l + column] : x[row * b.ld + column];
        mt_put(to, square[row - row0][column - column0]);
    }
}

/* Row and column of tile `number` of a lower triangle. */
MT_DEVICE void triangle(int64_t number, int64_t *row, int64_t *column)
{
    int64_t i = (int64_t)((sqrt(8.0 * (double)number + 1) - 1) / 2);
    while (i * (i + 1) / 2 > number) i--;
    while ((i + 1) * (i + 2) / 2 <= number) i++;
    *row = i;
    *column = number - i * (i + 1) / 2;
}
/* out = alpha a a^T + beta a, s x s; a has k columns, lines of ld. */
template <class T>
__global__ void __launch_bounds__(MT_TILE_THREADS)
    square_kernel(const __grid_constant__ batch b, int64_t out, int64_t a, int64_t k, int64_t ld, float alpha,
                  float beta)
{
    typedef mt_tile<T, T> tile;
    MT_SHARED(shared, typename tile::shared);
    const T *old = lane_at<T>(b, a);
    T *to = lane_at<T>(b, out);
    int64_t m0, n0;
    triangle(blockIdx.x, &m0, &n0);
    m0 *= MT_TILE, n0 *= MT_TILE;
    const mt_operand<T> x = mt_rows_of_k<T>(old, b.at.s, ld);
    tile t;
    t.each([&](int, int, float &v) { v = 0; });
    t.add(x, x, m0, n0, 0, k, &shared);
    t.each([&](int i, int j, float &v) {
        const int64_t row = m0 + i, column = n0 + j;
        if (row >= b.at.s || column > row) return;
        T made;
        mt_put(made, alpha * v + (beta != 0 ? beta * mt_get(old[row * ld + column]) : 0));
        to[row * b.at.ld_s + column] = made;
        to[column * b.at.ld_s + row] = made;
    });
}
/* next = a x + B x, s x l */
template <class T>
__global__ void __launch_bounds__(MT_TILE_THREADS)
    step_kernel(const __grid_constant__ batch b, int64_t next, int64_t x, float a)
{
    typedef mt_tile<T, T> tile;
    MT_SHARED(shared, typename tile::shared);
    const T *old = lane_at<T>(b, x);
    T *to = lane_at<T>(b, next);
    const int64_t m0 = (int64_t)blockIdx.y * MT_TILE, n0 = (int64_t)blockIdx.x * MT_TILE;
    tile t;
    t.each([&](int, int, float &v) { v = 0; });
    t.add(mt_rows_of_k<T>(lane_at<T>(b, b.at.b), b.at.s, b.at.ld_s),
          mt_lines_of_rows<T>(old, b.at.l, b.at.ld_l), m0, n0, 0, b.at.s, &shared);
    t.each([&](int i, int j, float &v) {
        const int64_t at = (m0 + i) * b.at.ld_l + n0 + j;
        if (m0 + i < b.at.s && n0 + j < b.at.l) mt_put(to[at], v + a * mt_get(old[at]));
    });
}

template <class T>
cudaError_t one_step(const batch &b, int64_t x, int64_t next, mt_ns_triple k, cudaStream_t s)
{
    const unsigned tiles = mt_blocks(b.at.s, MT_TILE), n = (unsigned)b.n;
    const dim3 half(tiles * (tiles + 1) / 2, 1, n), whole(mt_blocks(b.at.l, MT_TILE), tiles, n),
        block(MT_TILE_THREADS);
    cudaError_t e =
        MT_LAUNCH(square_kernel<T>, half, block, 0, s, b, b.at.a, x, b.at.l, b.at.ld_l, 1.0f, 0.0f);
    if (!e)
        e = MT_LAUNCH(square_kernel<T>, half, block, 0, s, b, b.at.b, b.at.a, b.at.s, b.at.ld_s, (float)k.c,
                      (float)k.b);
    return e ? e : MT_LAUNCH(step_kernel<T>, whole, block, 0, s, b, next, x, (float)k.a);
}
template <class T> cudaError_t run(const batch &b, int64_t steps, int set, cudaStream_t s)
{
    const dim3 squares(mt_blocks(b.c, EDGE), mt_blocks(b.r, EDGE), (unsigned)b.n), block(THREADS);
    int now = 0;
    cudaError_t e = MT_LAUNCH(norm_kernel<T>, dim3(PARTS, 1, (unsigned)b.n), block, 0, s, b);
    if (!e) e = MT_LAUNCH(MT_K(turn_kernel<T, true>), squares, block, 0, s, b, b.at.x[0]);
    for (int64_t i = 0; i < steps && !e; i++, now ^= 1)
        e = one_step<T>(b, b.at.x[now], b.at.x[now ^ 1], mt_ns_coeff(set, i), s);
    return e ? e : MT_LAUNCH(MT_K(turn_kernel<T, false>), squares, block, 0, s, b, b.at.x[now]);
}
} // namespace

extern "C" cudaError_t mt_cuda_newton_schulz(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &a = *MT_ARGS(newton_schulz, c);
    const auto &s = *MT_SCALARS(newton_schulz, c);
    const int64_t n = MT_DIM(*c, 'B'), lanes = mt_newton_schulz_lanes(n);
    batch b = {static_cast<char *>(a.x),
               static_cast<char *>(a.ws),
               0,
               MT_DIM(*c, 'R'),
               MT_DIM(*c, 'C'),
               c->ld[0],
               c->stride[0],
               mt_ns_layout_of(MT_DIM(*c, 'R'), MT_DIM(*c, 'C'), (mt_dtype)c->dtype)};
    cudaError_t e = c->bytes[1] < lanes * b.at.bytes ? cudaErrorInvalidValue : cudaSuccess;
    if (!b.r || !b.c) return cudaSuccess;
    for (int64_t i = 0; i < n && !e; i += lanes, b.x += lanes * c->stride[0]) {
        b.n = n - i < lanes ? n - i : lanes;
        e = mt_by_type(c, [&](auto t) { return run<decltype(t)>(b, s.steps, (int)s.set, q->stream); });
    }
    return e;
}
