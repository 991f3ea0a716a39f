/* k_permute.c: rows to their experts' order and back to their tokens. */
#include <string.h>

#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

void mt_cpu_gather_rows(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_gather_rows *a = MT_ARGS(gather_rows, c);
    const struct mt_scalars_gather_rows *s = MT_SCALARS(gather_rows, c);
    const int32_t *order = a->order;
    int64_t el = mt_dtype_bytes((mt_dtype)c->dtype), D = mt_dim(c, 'D'), lo, hi;
    mt_share(s->rows, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const char *x = (const char *)a->x + order[s->first + i] / s->topk * c->ld[1] * el;
        memcpy((char *)a->y + i * c->ld[0] * el, x, (size_t)(D * el));
    }
}

/* y[n] = h[n] + sum_k gates[n][k] ret[slot[n][k]], k ascending */
MT_VEC void mt_cpu_combine_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_combine_fwd *a = MT_ARGS(combine_fwd, c);
    int64_t D = mt_dim(c, 'D'), K = mt_dim(c, 'K'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const float *gates = (const float *)a->gates + n * c->ld[3];
        const int32_t *slot = (const int32_t *)a->slot + n * c->ld[4];
        for (int64_t j = 0; j < D; j += MT_CHUNK) {
            float sum[MT_CHUNK], buf[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, D - j), at = n * c->ld[0] + j;
            memcpy(sum, mt_vec_in(a->h, c->dtype, n * c->ld[1] + j, m, buf), (size_t)m * 4);
            for (int64_t k = 0; k < K; k++) {
                const float *ret = mt_vec_in(a->ret, c->dtype, slot[k] * c->ld[2] + j, m, buf), g = gates[k];
                for (int64_t i = 0; i < m; i++) sum[i] += g * ret[i];
            }
            memcpy(mt_vec_out(a->y, c->dtype, at, buf), sum, (size_t)m * 4);
            mt_vec_put(a->y, c->dtype, at, buf, m);
        }
    }
}

/* dx[n] = add[n] + sum_k dret[slot[n][k]], k ascending; dgates in token order */
MT_VEC void mt_cpu_combine_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_combine_bwd *a = MT_ARGS(combine_bwd, c);
    int64_t D = mt_dim(c, 'D'), K = mt_dim(c, 'K'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const int32_t *slot = (const int32_t *)a->slot + n * c->ld[4];
        for (int64_t k = 0; k < K; k++)
            ((float *)a->dgates)[n * c->ld[1] + k] = ((const float *)a->dgate)[slot[k]];
        for (int64_t j = 0; j < D; j += MT_CHUNK) {
            float sum[MT_CHUNK] = {0}, buf[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, D - j), at = n * c->ld[0] + j;
            if (a->add) memcpy(sum, mt_vec_in(a->add, c->dtype, n * c->ld[5] + j, m, buf), (size_t)m * 4);
            for (int64_t k = 0; k < K; k++) {
                const float *dret = mt_vec_in(a->dret, c->dtype, slot[k] * c->ld[2] + j, m, buf);
                for (int64_t i = 0; i < m; i++) sum[i] += dret[i];
            }
            memcpy(mt_vec_out(a->dx, c->dtype, at, buf), sum, (size_t)m * 4);
            mt_vec_put(a->dx, c->dtype, at, buf, m);
        }
    }
}
