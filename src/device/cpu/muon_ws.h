/* muon_ws.h: the workspace of the op newton_schulz. */
#ifndef MT_DEVICE_CPU_MUON_WS_H
#define MT_DEVICE_CPU_MUON_WS_H
#include "base/dtype.h"

/* Matrices of a batch that are worked on at the same time; there is a workspace for each. */
enum { MT_NS_LANES = 16 };
static inline int64_t mt_newton_schulz_lanes(int64_t b)
{
    return b < MT_NS_LANES ? b : (int64_t)MT_NS_LANES;
}

/* Bytes of ws for x [b, r, c] of type t (MT_F32 or MT_BF16); the same for every device and instruction set.
 * With s = min(r, c) and l = max(r, c), each lane has X twice, X packed twice (for X X^T and for B X), A = X
 * X^T, B, and A packed: about (4 s l + 3 s s) elements, and 64 rows of f32 products. */
int64_t mt_newton_schulz_ws_bytes(int64_t b, int64_t r, int64_t c, mt_dtype t);

/* Where the pieces of one lane lie, in bytes from its beginning, all multiples of 64. */
struct mt_ns_layout {
    int64_t s, l;         /* X is s x l: the short side first */
    int64_t ld_l, ld_s;   /* elements between rows of l and of s elements */
    int64_t x[2], nt, nn; /* X and its successor, X packed for X X^T and for B X */
    int64_t a, b, a_nt;   /* A = X X^T; B = b A + c A A; A packed */
    int64_t sum;          /* f32 products of MT_NS_ROWS rows */
    int64_t bytes;        /* of the lane */
};
enum { MT_NS_ROWS = 64 };
struct mt_ns_layout mt_ns_layout_of(int64_t r, int64_t c, mt_dtype t);

/* The same for eigen_basis of q [b, n, n]: a lane has two matrices of n x n and four rows of n, f64. */
static inline int64_t mt_eigen_lane_bytes(int64_t n)
{
    return (16 * n * n + 32 * n + 63) / 64 * 64;
}
static inline int64_t mt_eigen_ws_bytes(int64_t b, int64_t n)
{
    return mt_newton_schulz_lanes(b) * mt_eigen_lane_bytes(n);
}
#endif
