/* Eigenvectors of symmetric matrices, one step of orthogonal iteration towards them, and powers: in f64, a matrix a part. */
#include "device/cpu/kernels.h"
#include "device/cpu/muon_ws.h"
#include "device/cpu/vec.h"

/* One matrix, n x n: q, p as the call has them; a, v of the workspace have n elements a row. */
struct eigen {
    float *q;
    const float *p;
    int64_t n, ldq, ldp;
    double *a, *v, *row; /* row: four of n */
};

MT_VEC static double dot(const double *x, const double *y, int64_t n)
{
    double lane[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += x[i + l] * y[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += x[i + l] * y[i + l];
    for (int l = 0; l < 8; l++) sum += lane[l];
    return sum;
}
MT_VEC static void add(double *y, double f, const double *x, int64_t n)
{
    MT_VEC_LOOP
    for (int64_t i = 0; i < n; i++) y[i] += f * x[i];
}
MT_VEC static void rotate(double *x, double *y, double c, double s, int64_t n)
{
    MT_VEC_LOOP
    for (int64_t i = 0; i < n; i++) {
        double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

static void identity(double *v, int64_t n)
{
    memset(v, 0, (size_t)(n * n) * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i * n + i] = 1;
}
/* Row j of v, times a sign, becomes column `to` of q. */
static void leave(const struct eigen *e, int64_t j, double sign, int64_t to)
{
    for (int64_t i = 0; i < e->n; i++) e->q[i * e->ldq + to] = (float)(sign * e->v[j * e->n + i]);
}

/* ---- an orthogonal factor, by Householder's reflections ---- */
/* Row k of a is column k: the reflection that leaves it nothing beyond place k goes where it was, its factor to beta[k]. */
static double reflect(const struct eigen *e, int64_t k, double *beta)
{
    double *x = e->a + k * e->n + k, norm = sqrt(dot(x, x, e->n - k)), to = x[0] > 0 ? -norm : norm;
    x[0] -= to;
    double square = dot(x, x, e->n - k);
    *beta = square > 0 ? 2 / square : 0;
    return square > 0 && to < 0 ? -1 : 1;
}
/* a = (p q)^T */
static void product(const struct eigen *e)
{
    int64_t n = e->n;
    for (int64_t i = 0; i < n; i++) {
        double *sum = e->row;
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t k = 0; k < n; k++) {
            double f = (double)e->p[i * e->ldp + k];
            const float *q = e->q + k * e->ldq;
            for (int64_t j = 0; j < n; j++) sum[j] += f * (double)q[j];
        }
        for (int64_t j = 0; j < n; j++) e->a[j * n + i] = sum[j];
    }
}
static void iterate(const struct eigen *e)
{
    int64_t n = e->n;
    double *beta = e->row, *sign = e->row + n;
    product(e);
    for (int64_t k = 0; k < n; k++) {
        const double *v = e->a + k * n + k;
        sign[k] = reflect(e, k, &beta[k]);
        for (int64_t j = k + 1; j < n; j++) {
            double *x = e->a + j * n + k;
            add(x, -beta[k] * dot(v, x, n - k), v, n - k);
        }
    }
    identity(e->v, n);
    for (int64_t k = n - 1; k >= 0; k--)
        for (int64_t j = k; j < n; j++) {
            double *x = e->v + j * n + k;
            const double *v = e->a + k * n + k;
            add(x, -beta[k] * dot(v, x, n - k), v, n - k);
        }
    for (int64_t j = 0; j < n; j++) leave(e, j, sign[j], j);
}

/* ---- eigenvectors, by Jacobi's rotations: n - 1 rounds a sweep, whose pairs meet each other once ---- */
enum { SWEEPS = 40 };
/* Pair i of round r, of `players`, an even number, of which the last stays. */
static void pair(int64_t players, int64_t r, int64_t i, int64_t *p, int64_t *q)
{
    int64_t m = players - 1, a = i ? (r + i) % m : m, b = (r - i + m) % m;
    *p = a < b ? a : b;
    *q = a < b ? b : a;
}
/* cos and sin that make a[p][q] zero; 1 and 0 where it is so already. */
static void angle(const struct eigen *e, int64_t p, int64_t q, double least, double *c, double *s)
{
    double pq = e->a[p * e->n + q], pp = e->a[p * e->n + p], qq = e->a[q * e->n + q];
    *c = 1, *s = 0;
    if (!(fabs(pq) > least)) return;
    double theta = (qq - pp) / (2 * pq), t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    *c = 1 / sqrt(t * t + 1);
    *s = t * *c;
}
static bool meet(const struct eigen *e, int64_t players, int64_t r, double least)
{
    int64_t n = e->n, pairs = players / 2, p, q;
    double *c = e->row, *s = e->row + n;
    bool any = false;
    for (int64_t i = 0; i < pairs; i++) {
        pair(players, r, i, &p, &q);
        c[i] = 1, s[i] = 0;
        if (q < n) angle(e, p, q, least, &c[i], &s[i]);
        any |= s[i] != 0;
    }
    for (int64_t i = 0; i < pairs; i++) {
        pair(players, r, i, &p, &q);
        if (s[i] == 0) continue;
        rotate(e->a + p * n, e->a + q * n, c[i], s[i], n);
        rotate(e->v + p * n, e->v + q * n, c[i], s[i], n);
    }
    for (int64_t row = 0; row < n && any; row++)
        for (int64_t i = 0; i < pairs; i++) {
            pair(players, r, i, &p, &q);
            if (s[i] != 0) rotate(e->a + row * n + p, e->a + row * n + q, c[i], s[i], 1);
        }
    return any;
}
/* Where eigenvalue j is in descending order. */
static int64_t place(const struct eigen *e, int64_t j)
{
    int64_t n = 0;
    double mine = e->a[j * e->n + j];
    for (int64_t i = 0; i < e->n; i++)
        n += e->a[i * e->n + i] > mine || (e->a[i * e->n + i] == mine && i < j);
    return n;
}
static void diagonalise(const struct eigen *e)
{
    int64_t n = e->n, players = n + n % 2;
    double trace = 0;
    bool any = n > 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            e->a[i * n + j] = ((double)e->p[i * e->ldp + j] + (double)e->p[j * e->ldp + i]) / 2;
    for (int64_t i = 0; i < n; i++) trace += fabs(e->a[i * n + i]);
    identity(e->v, n);
    for (int k = 0; k < SWEEPS && any; k++) {
        any = false;
        for (int64_t r = 0; r < players - 1; r++) any |= meet(e, players, r, 1e-15 * trace);
    }
}
static void vectors(const struct eigen *e)
{
    diagonalise(e);
    for (int64_t j = 0; j < e->n; j++) leave(e, j, 1, place(e, j));
}
/* q = sum over eigenvalues a of (max(a, 0) / over + eps)^(-1 / root) v v^T: row j of v is an eigenvector. */
static void raise(const struct eigen *e, double over, double eps, int64_t root)
{
    int64_t n = e->n;
    double *by = e->row, *sum = e->row + n;
    diagonalise(e);
    for (int64_t k = 0; k < n; k++) {
        double a = e->a[k * n + k];
        double r = sqrt((a < 0 ? 0 : a) / over + eps); /* a NaN stays one */
        by[k] = 1 / (root == 4 ? sqrt(r) : r);
    }
    for (int64_t i = 0; i < n; i++) {
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t k = 0; k < n; k++) add(sum, by[k] * e->v[k * n + i], e->v + k * n, n);
        for (int64_t j = 0; j < n; j++) e->q[i * e->ldq + j] = (float)sum[j];
    }
}

/* A part works through its matrices one after another, in a workspace of its own. */
void mt_cpu_eigen_basis(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_eigen_basis *a = MT_ARGS(eigen_basis, c);
    int64_t n = mt_dim(c, 'S'), batch = mt_dim(c, 'B'), lanes = mt_newton_schulz_lanes(batch), first, last;
    const struct mt_scalars_eigen_basis *s = MT_SCALARS(eigen_basis, c);
    (void)scratch, (void)dev;
    MT_ASSERT(c->bytes[2] >= lanes * mt_eigen_lane_bytes(n));
    if (!s->mode || part >= lanes) return; /* more parts than workspaces: the others do all */
    if (parts > lanes) parts = (int)lanes;
    mt_share(batch, 1, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        double *ws = (double *)(void *)((char *)a->ws + part * mt_eigen_lane_bytes(n));
        const struct eigen e = {.q = (float *)(void *)((char *)a->q + i * c->stride[0]),
                                .p = (const float *)(const void *)((const char *)a->p + i * c->stride[1]),
                                .n = n,
                                .ldq = c->ld[0],
                                .ldp = c->ld[1],
                                .a = ws,
                                .v = ws + n * n,
                                .row = ws + 2 * n * n};
        if (s->mode == 1)
            iterate(&e);
        else if (s->mode == 2)
            vectors(&e);
        else
            raise(&e, s->over, s->eps, s->root);
    }
}
