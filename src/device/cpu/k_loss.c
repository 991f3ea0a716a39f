/* k_loss.c: cross entropy, and the small sums that ranks and steps put together. */
#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

struct lse {
    float top;  /* the largest logit */
    double sum; /* of exp(logit - top) */
};

/* In one pass: the sum follows the largest logit from chunk to chunk. NaN anywhere makes it NaN. */
MT_VEC_INLINE struct lse row_lse(const float *x, int64_t V)
{
    struct lse r = {-FLT_MAX, 0};
    for (int64_t j = 0; j < V; j += MT_CHUNK) {
        float e[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, V - j);
        float top = mt_vec_max(x + j, m);
        if (top > r.top) {
            r.sum *= exp((double)r.top - (double)top);
            r.top = top;
        }
        for (int64_t i = 0; i < m; i++) e[i] = mt_vec_exp(x[j + i] - r.top);
        r.sum += (double)mt_vec_sum(e, m);
    }
    return r;
}

static float loss_of(struct lse r, float logit)
{
    return (float)(log(r.sum) - ((double)logit - (double)r.top));
}

/* (softmax - onehot) weight / valid */
MT_VEC_INLINE void xent_row(const struct mt_call *c, void *dlogits, int64_t at, const float *x, struct lse r,
                            int64_t label, double valid)
{
    double weight = MT_SCALARS(xent, c)->weight;
    float scale = (float)(weight / (r.sum * valid));
    for (int64_t j = 0, V = mt_dim(c, 'V'); j < V; j += MT_CHUNK) {
        float buf[MT_CHUNK];
        int64_t m = mt_min64(MT_CHUNK, V - j);
        float *d = mt_vec_out(dlogits, c->dtype, at + j, buf);
        float logit = label >= j && label < j + m ? x[label] : 0; /* d may be x */
        MT_VEC_LOOP
        for (int64_t i = 0; i < m; i++) d[i] = mt_vec_exp(x[j + i] - r.top) * scale;
        if (label >= j && label < j + m)
            d[label - j] = (float)(weight * (exp((double)logit - (double)r.top) / r.sum - 1) / valid);
        mt_vec_put(dlogits, c->dtype, at + j, buf, m);
    }
}

MT_VEC void mt_cpu_xent(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_xent *a = MT_ARGS(xent, c);
    const int32_t *labels = a->labels;
    int64_t V = mt_dim(c, 'V'), el = mt_dtype_bytes((mt_dtype)c->dtype), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        float *loss = (float *)a->loss + n;
        if (labels[n] < 0) {
            *loss = 0;
            memset((char *)a->dlogits + n * c->ld[0] * el, 0, (size_t)(V * el));
            continue;
        }
        MT_ASSERT(labels[n] < V);
        const float *x = (const float *)a->logits + n * c->ld[2];
        struct lse r = row_lse(x, V);
        *loss = loss_of(r, x[labels[n]]);
        xent_row(c, a->dlogits, n * c->ld[0], x, r, labels[n], (double)*(const int64_t *)a->valid);
    }
}

MT_VEC void mt_cpu_xent_eval(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_xent_eval *a = MT_ARGS(xent_eval, c);
    const int32_t *labels = a->labels;
    int64_t V = mt_dim(c, 'V'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const float *x = (const float *)a->logits + n * c->ld[1];
        MT_ASSERT(labels[n] < V);
        ((float *)a->loss)[n] = labels[n] < 0 ? 0 : loss_of(row_lse(x, V), x[labels[n]]);
    }
}

void mt_cpu_count_valid(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)parts, (void)scratch, (void)dev;
    const struct mt_args_count_valid *a = MT_ARGS(count_valid, c);
    int64_t n = 0;
    if (part != 0) return;
    for (int64_t i = 0; i < mt_dim(c, 'N'); i++) n += ((const int32_t *)a->labels)[i] >= 0;
    *(int64_t *)a->n += n;
}

void mt_cpu_sum_loss(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)parts, (void)scratch, (void)dev;
    const struct mt_args_sum_loss *a = MT_ARGS(sum_loss, c);
    double sum = 0;
    if (part != 0) return;
    for (int64_t i = 0; i < mt_dim(c, 'N'); i++) sum += (double)((const float *)a->loss)[i];
    *(double *)a->acc += sum;
}

void mt_cpu_sum_parts_f64(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)parts, (void)scratch, (void)dev;
    const struct mt_args_sum_parts_f64 *a = MT_ARGS(sum_parts_f64, c);
    for (int64_t w = 0; w < mt_dim(c, 'W') && part == 0; w++) {
        double sum = 0;
        for (int64_t i = 0; i < mt_dim(c, 'R'); i++) sum += ((const double *)a->parts)[i * c->ld[1] + w];
        ((double *)a->sum)[w] = sum;
    }
}

void mt_cpu_sum_parts_i64(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_sum_parts_i64 *a = MT_ARGS(sum_parts_i64, c);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'W'), 64, part, parts, &lo, &hi);
    for (int64_t w = lo; w < hi; w++) {
        uint64_t sum = 0; /* words of exact sums carry in two's complement */
        for (int64_t i = 0; i < mt_dim(c, 'R'); i++)
            sum += (uint64_t)((const int64_t *)a->parts)[i * c->ld[1] + w];
        ((int64_t *)a->sum)[w] = (int64_t)sum;
    }
}

/* The pieces are added up in rank order, then to acc. */
MT_VEC void mt_cpu_sum_pieces(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_sum_pieces *a = MT_ARGS(sum_pieces, c);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'N'), MT_CHUNK, part, parts, &lo, &hi);
    for (int64_t j = lo; j < hi; j += MT_CHUNK) {
        float sum[MT_CHUNK] = {0}, buf[MT_CHUNK], *acc = (float *)a->acc + j;
        int64_t m = mt_min64(MT_CHUNK, hi - j);
        for (int64_t r = 0; r < mt_dim(c, 'R'); r++) {
            const float *piece = mt_vec_in(a->staging, c->dtype, r * c->ld[1] + j, m, buf);
            for (int64_t i = 0; i < m; i++) sum[i] += piece[i];
        }
        for (int64_t i = 0; i < m; i++) acc[i] += sum[i];
    }
}
