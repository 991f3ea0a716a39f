/* k_norm.c: RMS norm, and sums down columns. */
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

MT_VEC_INLINE double row_dot(const struct mt_call *c, const void *x, int64_t ldx, int64_t n)
{
    double sum = 0; /* of chunks, each in f32 */
    for (int64_t j = 0, D = mt_dim(c, 'D'); j < D; j += MT_CHUNK) {
        float buf[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, D - j);
        const float *p = mt_vec_in(x, c->dtype, n * ldx + j, m, buf);
        sum += (double)mt_vec_dot(p, p, m);
    }
    return sum;
}

MT_VEC void mt_cpu_rmsnorm_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_rmsnorm_fwd *a = MT_ARGS(rmsnorm_fwd, c);
    const struct mt_scalars_rmsnorm_fwd *s = MT_SCALARS(rmsnorm_fwd, c);
    float *rstd = a->rstd;
    int64_t D = mt_dim(c, 'D'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        float r = (float)(1 / sqrt(row_dot(c, a->x, c->ld[2], n) / (double)D + s->eps));
        rstd[n] = r;
        for (int64_t j = 0; j < D; j += MT_CHUNK) {
            float xb[MT_CHUNK], yb[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, D - j);
            const float *x = mt_vec_in(a->x, c->dtype, n * c->ld[2] + j, m, xb), *g = (const float *)a->g + j;
            float *y = mt_vec_out(a->y, c->dtype, n * c->ld[0] + j, yb);
            MT_VEC_LOOP
            for (int64_t i = 0; i < m; i++) y[i] = x[i] * r * g[i];
            mt_vec_put(a->y, c->dtype, n * c->ld[0] + j, yb, m);
        }
    }
}

/* sum_i dy_i g_i x_i of row n */
MT_VEC_INLINE double gained_dot(const struct mt_call *c, const struct mt_args_rmsnorm_bwd *a, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0, D = mt_dim(c, 'D'); j < D; j += MT_CHUNK) {
        float xb[MT_CHUNK], yb[MT_CHUNK], t[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, D - j);
        const float *dy = mt_vec_in(a->dy, c->dtype, n * c->ld[2] + j, m, yb), *g = (const float *)a->g + j;
        for (int64_t i = 0; i < m; i++) t[i] = dy[i] * g[i];
        sum += (double)mt_vec_dot(t, mt_vec_in(a->x, c->dtype, n * c->ld[3] + j, m, xb), m);
    }
    return sum;
}

/* With xh = x rstd: dx = res + rstd (dy g - xh mean(dy g xh)); the block's share of the gain's gradient += dy xh. */
MT_VEC_INLINE void norm_row_bwd(const struct mt_call *c, const struct mt_args_rmsnorm_bwd *a, int64_t n,
                                float *dg)
{
    int64_t D = mt_dim(c, 'D');
    float r = ((const float *)a->rstd)[n];
    float mean = (float)(gained_dot(c, a, n) * (double)r / (double)D);
    for (int64_t j = 0; j < D; j += MT_CHUNK) {
        float xb[MT_CHUNK], yb[MT_CHUNK], rb[MT_CHUNK], ob[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, D - j);
        const float *dy = mt_vec_in(a->dy, c->dtype, n * c->ld[2] + j, m, yb);
        const float *x = mt_vec_in(a->x, c->dtype, n * c->ld[3] + j, m, xb), *g = (const float *)a->g + j;
        const float *res = a->res ? mt_vec_in(a->res, c->dtype, n * c->ld[6] + j, m, rb) : NULL;
        float *dx = mt_vec_out(a->dx, c->dtype, n * c->ld[0] + j, ob);
        MT_VEC_LOOP
        for (int64_t i = 0; i < m; i++) dg[j + i] += dy[i] * (x[i] * r);
        if (res) {
            MT_VEC_LOOP
            for (int64_t i = 0; i < m; i++) dx[i] = res[i] + r * (dy[i] * g[i] - x[i] * r * mean);
        } else {
            MT_VEC_LOOP
            for (int64_t i = 0; i < m; i++) dx[i] = r * (dy[i] * g[i] - x[i] * r * mean);
        }
        mt_vec_put(a->dx, c->dtype, n * c->ld[0] + j, ob, m);
    }
}

/* Parts own row blocks: which rows add up in which row of dgp is a matter of shapes alone. */
MT_VEC void mt_cpu_rmsnorm_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_rmsnorm_bwd *a = MT_ARGS(rmsnorm_bwd, c);
    int64_t N = mt_dim(c, 'N'), D = mt_dim(c, 'D'), P = mt_dim(c, 'P'), lo, hi;
    mt_share(P, 1, part, parts, &lo, &hi);
    for (int64_t p = lo; p < hi; p++) {
        float *dg = (float *)a->dgp + p * c->ld[1];
        for (int64_t j = 0; j < D; j++) dg[j] = 0;
        for (int64_t n = N * p / P; n < N * (p + 1) / P; n++) norm_row_bwd(c, a, n, dg);
    }
}

MT_VEC void mt_cpu_sum_rows(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_sum_rows *a = MT_ARGS(sum_rows, c);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'D'), 64, part, parts, &lo, &hi);
    for (int64_t j = lo; j < hi; j += MT_CHUNK) {
        float sum[MT_CHUNK] = {0}, *y = (float *)a->y + j;
        int64_t m = mt_min64(MT_CHUNK, hi - j);
        for (int64_t p = 0; p < mt_dim(c, 'P'); p++) {
            const float *x = (const float *)a->x + p * c->ld[1] + j;
            for (int64_t i = 0; i < m; i++) sum[i] += x[i];
        }
        for (int64_t i = 0; i < m; i++) y[i] += sum[i];
    }
}

/* f32 over ROWS rows at a time, f64 over those sums: thousands of rows lose no digits. */
MT_VEC void mt_cpu_bias_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    enum { COLUMNS = 128, ROWS = 64 };
    const struct mt_args_bias_bwd *a = MT_ARGS(bias_bwd, c);
    int64_t N = mt_dim(c, 'N'), lo, hi;
    mt_share(mt_dim(c, 'O'), 64, part, parts, &lo, &hi);
    for (int64_t j = lo; j < hi; j += COLUMNS) {
        double sum[COLUMNS] = {0};
        int64_t m = mt_min64(COLUMNS, hi - j);
        for (int64_t n0 = 0; n0 < N; n0 += ROWS) {
            float some[COLUMNS] = {0}, buf[COLUMNS];
            for (int64_t n = n0; n < mt_min64(N, n0 + ROWS); n++) {
                const float *dy = mt_vec_in(a->dy, c->dtype, n * c->ld[1] + j, m, buf);
                for (int64_t i = 0; i < m; i++) some[i] += dy[i];
            }
            for (int64_t i = 0; i < m; i++) sum[i] += (double)some[i];
        }
        for (int64_t i = 0; i < m; i++)
            ((float *)a->db)[j + i] = (float)((double)((float *)a->db)[j + i] + sum[i]);
    }
}
