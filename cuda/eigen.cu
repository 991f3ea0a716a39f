/* Eigenvectors of symmetric matrices, one step of orthogonal iteration, and powers: as the cpu's (src/device/cpu/k_eigen.c), f64, a block a
 * matrix and its lane of the workspace. Angles of rotations are approximate, which takes another sweep. */
#include "mt_kernel.cuh"

#include <cmath>
#include <cstring>

extern "C" {
#include "device/cpu/muon_ws.h"
}

namespace
{
constexpr int THREADS = 256, SWEEPS = 40;

/* Some matrices of the call, n x n. */
struct batch {
    char *q, *ws;
    const char *p;
    int64_t n, lane_bytes, ldq, ldp, strideq, stridep;
};
struct eigen {
    float *q;
    const float *p;
    double *a, *v, *row;
};
MT_DEVICE eigen matrix_of(const batch &b)
{
    double *ws = reinterpret_cast<double *>(b.ws + blockIdx.x * b.lane_bytes);
    return {reinterpret_cast<float *>(b.q + blockIdx.x * b.strideq),
            reinterpret_cast<const float *>(b.p + blockIdx.x * b.stridep), ws, ws + b.n * b.n,
            ws + 2 * b.n * b.n};
}
MT_DEVICE void identity(double *v, int64_t n)
{
    for (int64_t i = threadIdx.x; i < n * n; i += THREADS) v[i] = i / n == i % n ? 1 : 0;
}
/* ---- an orthogonal factor ---- */
MT_DEVICE void product(const batch &b, const eigen &e)
{
    const int64_t n = b.n;
    for (int64_t at = threadIdx.x; at < n * n; at += THREADS) {
        const int64_t i = at / n, j = at % n;
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += (double)e.p[i * b.ldp + k] * (double)e.q[k * b.ldq + j];
        e.a[j * n + i] = sum;
    }
}
/* Lines [first, n) of x lose what they have of v, from column k on; a warp a line. */
MT_DEVICE void reflect(double *x, const double *v, int64_t first, int64_t k, int64_t n, double beta)
{
    const int64_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t j = first + warp; j < n; j += THREADS / 32) {
        double part = 0;
        for (int64_t i = k + lane; i < n; i += 32) part += v[i] * x[j * n + i];
        part = mt_warp_add(part);
        for (int64_t i = k + lane; i < n; i += 32) x[j * n + i] -= beta * part * v[i];
    }
    __syncthreads();
}
__global__ void __launch_bounds__(THREADS) iterate_kernel(const __grid_constant__ batch b)
{
    const eigen e = matrix_of(b);
    const int64_t n = b.n;
    double *beta = e.row, *sign = e.row + n;
    product(b, e);
    identity(e.v, n);
    __syncthreads();
    for (int64_t k = 0; k < n; k++) {
        double *x = e.a + k * n, part = 0;
        for (int64_t i = k + threadIdx.x; i < n; i += THREADS) part += x[i] * x[i];
        const double norm = sqrt(mt_block_add<THREADS>(part)), head = x[k], to = head > 0 ? -norm : norm;
        __syncthreads();
        if (threadIdx.x == 0) x[k] = head - to;
        __syncthreads();
        part = 0;
        for (int64_t i = k + threadIdx.x; i < n; i += THREADS) part += x[i] * x[i];
        const double square = mt_block_add<THREADS>(part);
        if (threadIdx.x == 0) beta[k] = square > 0 ? 2 / square : 0, sign[k] = square > 0 && to < 0 ? -1 : 1;
        __syncthreads();
        reflect(e.a, x, k + 1, k, n, beta[k]);
    }
    for (int64_t k = n - 1; k >= 0; k--) reflect(e.v, e.a + k * n, k, k, n, beta[k]);
    for (int64_t at = threadIdx.x; at < n * n; at += THREADS)
        e.q[at / n * b.ldq + at % n] = (float)(sign[at % n] * e.v[at % n * n + at / n]);
}

/* ---- eigenvectors ---- */
/* Pair i of a round of n - 1, n even: one of the players stays, the others go round. */
MT_DEVICE void pair(int players, int r, int i, int *p, int *q)
{
    const int m = players - 1, x = i ? (r + i < m ? r + i : r + i - m) : m, y = r >= i ? r - i : r - i + m;
    *p = x < y ? x : y;
    *q = x < y ? y : x;
}
MT_DEVICE void rotate(double &x, double &y, double c, double s)
{
    const double a = x, b = y;
    x = c * a - s * b;
    y = s * a + c * b;
}
/* A power of two for which x times it is in [1, 2). */
MT_DEVICE double about_one_over(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (2046 - (bits >> 52 & 2047)) << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Of the angle that makes an element zero, from the difference of its diagonal ones and twice itself: approximate, so that the next
 * round has a little left to do. */
MT_DEVICE float tangent(float apart, float twice)
{
    const float theta = __fdividef(apart, twice), square = theta * theta + 1;
    return __fdividef(theta < 0 ? -1.0f : 1.0f, fabsf(theta) + square * rsqrtf(square));
}
/* cos and sin of each pair of a round; returns whether this thread turns any. */
MT_DEVICE bool angles(const eigen &e, int n, int players, int r, double trace, double unit)
{
    bool any = false;
    for (int i = (int)threadIdx.x; i < players / 2; i += THREADS) {
        int p, q;
        double c = 1, s = 0;
        pair(players, r, i, &p, &q);
        const double *line = e.a + (int64_t)p * n;
        if (q < n && fabs(line[q]) > 1e-15 * trace) {
            const double t = tangent((float)((e.a[(int64_t)q * n + q] - line[p]) * unit),
                                     (float)(2 * line[q] * unit)),
                         square = t * t + 1;
            c = (double)rsqrtf((float)square);
            for (int k = 0; k < 2; k++) c *= 1.5 - 0.5 * square * c * c; /* to the last bits of f64 */
            s = t * c;
        }
        e.row[i] = c, e.row[n + i] = s;
        any |= s != 0;
    }
    return any;
}
/* Lines of a matrix by the round's pairs, a warp a pair; and its columns, a warp a line. */
MT_DEVICE void turn_lines(double *x, const double *row, int n, int players, int r)
{
    for (int i = (int)threadIdx.x / 32; i < players / 2; i += THREADS / 32) {
        int p, q;
        pair(players, r, i, &p, &q);
        const double c = row[i], s = row[n + i];
        double *u = x + (int64_t)p * n, *v = x + (int64_t)q * n;
        for (int j = (int)threadIdx.x % 32; j < n && s != 0; j += 32) rotate(u[j], v[j], c, s);
    }
}
MT_DEVICE void turn_columns(double *x, const double *row, int n, int players, int r)
{
    for (int j = (int)threadIdx.x / 32; j < n; j += THREADS / 32)
        for (int i = (int)threadIdx.x % 32; i < players / 2; i += 32) {
            int p, q;
            pair(players, r, i, &p, &q);
            double *line = x + (int64_t)j * n;
            if (row[n + i] != 0) rotate(line[p], line[q], row[i], row[n + i]);
        }
}
MT_DEVICE void diagonalise(const batch &b, const eigen &e)
{
    const int n = (int)b.n, players = n + n % 2;
    double part = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = threadIdx.x; j < n; j += THREADS) {
            e.a[i * n + j] = ((double)e.p[i * b.ldp + j] + (double)e.p[j * b.ldp + i]) / 2;
            if (i == j) part += fabs(e.a[i * n + j]);
        }
    identity(e.v, b.n);
    const double trace = mt_block_add<THREADS>(part), unit = about_one_over(trace);
    double any = n > 1;
    for (int k = 0; k < SWEEPS && any != 0; k++) {
        double turned = 0;
        for (int r = 0; r < players - 1; r++) {
            turned += angles(e, n, players, r, trace, unit);
            __syncthreads();
            turn_lines(e.a, e.row, n, players, r);
            turn_lines(e.v, e.row, n, players, r);
            __syncthreads();
            turn_columns(e.a, e.row, n, players, r);
            __syncthreads();
        }
        any = mt_block_add<THREADS>(turned);
    }
}
__global__ void __launch_bounds__(THREADS) vectors_kernel(const __grid_constant__ batch b)
{
    const eigen e = matrix_of(b);
    const int64_t n = b.n;
    diagonalise(b, e);
    for (int64_t j = threadIdx.x; j < n; j += THREADS) { /* where eigenvalue j is in descending order */
        int64_t before = 0;
        const double mine = e.a[j * n + j];
        for (int64_t k = 0; k < n; k++) before += e.a[k * n + k] > mine || (e.a[k * n + k] == mine && k < j);
        e.row[j] = (double)before;
    }
    __syncthreads();
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = threadIdx.x; i < n; i += THREADS)
            e.q[i * b.ldq + (int64_t)e.row[j]] = (float)e.v[j * n + i];
}
__global__ void __launch_bounds__(THREADS)
    raise_kernel(const __grid_constant__ batch b, double over, double eps, int root)
{
    const eigen e = matrix_of(b);
    const int64_t n = b.n;
    diagonalise(b, e);
    for (int64_t k = threadIdx.x; k < n; k += THREADS) {
        const double a = e.a[k * n + k];
        const double r = sqrt((a < 0 ? 0 : a) / over + eps); /* a NaN stays one */
        e.row[k] = 1 / (root == 4 ? sqrt(r) : r);
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < n * n; at += THREADS) {
        const int64_t i = at / n, j = at % n;
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += e.row[k] * e.v[k * n + i] * e.v[k * n + j];
        e.q[i * b.ldq + j] = (float)sum;
    }
}
} // namespace

extern "C" cudaError_t mt_cuda_eigen_basis(const mt_call *c, const mt_cuda_lane *q)
{
    const auto &a = *MT_ARGS(eigen_basis, c);
    const auto &s = *MT_SCALARS(eigen_basis, c);
    const int64_t n = MT_DIM(*c, 'B'), lanes = mt_newton_schulz_lanes(n);
    batch b = {static_cast<char *>(a.q),
               static_cast<char *>(a.ws),
               static_cast<const char *>(a.p),
               MT_DIM(*c, 'S'),
               mt_eigen_lane_bytes(MT_DIM(*c, 'S')),
               c->ld[0],
               c->ld[1],
               c->stride[0],
               c->stride[1]};
    cudaError_t e = c->bytes[2] < lanes * b.lane_bytes ? cudaErrorInvalidValue : cudaSuccess;
    if (!s.mode || !b.n) return cudaSuccess;
    for (int64_t i = 0; i < n && !e; i += lanes, b.q += lanes * b.strideq, b.p += lanes * b.stridep) {
        const dim3 grid((unsigned)(n - i < lanes ? n - i : lanes)), block(THREADS);
        e = s.mode == 1   ? MT_LAUNCH(iterate_kernel, grid, block, 0, q->stream, b)
            : s.mode == 2 ? MT_LAUNCH(vectors_kernel, grid, block, 0, q->stream, b)
                          : MT_LAUNCH(raise_kernel, grid, block, 0, q->stream, b, s.over, s.eps, (int)s.root);
    }
    return e;
}
