/* k_balance.c: what the router learns besides the loss: even loads, and logits that stay small. */
#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/router.h"

/* Parts own runs of tokens. */
void mt_cpu_router_counts(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_args_router_counts *a = MT_ARGS(router_counts, c);
    int64_t E = mt_dim(c, 'E'), Q = mt_dim(c, 'Q'), K = MT_SCALARS(router_counts, c)->topk, lo, hi;
    int64_t run = Q ? mt_dim(c, 'N') / Q : 0;
    int32_t *ids = scratch;
    MT_ASSERT(mt_dim(c, 'N') == Q * run && K <= E && K * 4 <= MT_SCRATCH_BYTES);
    mt_share(Q, 1, part, parts, &lo, &hi);
    for (int64_t q = lo; q < hi; q++) {
        int64_t *counts = (int64_t *)a->counts + q * c->ld[0];
        for (int64_t e = 0; e < E; e++) counts[e] = 0;
        for (int64_t n = q * run; n < (q + 1) * run; n++) {
            mt_router_choose(ids, (const float *)a->logits + n * c->ld[1], E, K);
            for (int64_t k = 0; k < K; k++) counts[ids[k]]++;
        }
    }
}

void mt_cpu_counts_total(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_counts_total *a = MT_ARGS(counts_total, c);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'E'), 64, part, parts, &lo, &hi);
    for (int64_t e = lo; e < hi; e++) {
        for (int64_t r = 0; r < mt_dim(c, 'R'); r++)
            ((int64_t *)a->acc)[e] += ((const int64_t *)a->all)[r * c->ld[2] + e];
        ((int64_t *)a->total)[e] = ((int64_t *)a->acc)[e];
    }
}

/* With g_e = weight counts_e and L = sum_e g_e s'_e: of a softmax dL/dlogit_e = s'_e (g_e - L); of sigmoids s_e over their sum
 * ds_e/dlogit_e = s_e (1 - s_e), so that it is s'_e (1 - s_e) (g_e - L). */
MT_VEC void mt_cpu_router_balance(const struct mt_call *c, int part, int parts, void *scratch,
                                  const void *dev)
{
    (void)dev;
    const struct mt_args_router_balance *a = MT_ARGS(router_balance, c);
    const struct mt_scalars_router_balance *f = MT_SCALARS(router_balance, c);
    int64_t N = mt_dim(c, 'N'), E = mt_dim(c, 'E'), Q = mt_dim(c, 'Q'), lo, hi;
    float *s = scratch;
    MT_ASSERT(E * 4 <= MT_SCRATCH_BYTES && (!N || (Q && N % Q == 0)));
    mt_share(N, 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const int64_t *counts = (const int64_t *)a->counts + n / (N / Q) * c->ld[3];
        float *dl = (float *)a->dlogits + n * c->ld[0];
        double sum = 0, dot = 0;
        mt_router_scores(s, (const float *)a->logits + n * c->ld[2], E, f->score);
        for (int64_t e = 0; e < E; e++) {
            sum += (double)s[e];
            dot += (double)counts[e] * (double)s[e];
        }
        double inv = f->score ? 1 / (sum + 1e-20) : 1;
        dot *= inv;
        ((float *)a->loss)[n] = (float)(f->weight * dot);
        for (int64_t e = 0; e < E; e++) {
            double p = (double)s[e], slope = f->score ? p * inv * (1 - p) : p;
            dl[e] = (float)((double)dl[e] + f->factor * f->weight * slope * ((double)counts[e] - dot));
        }
    }
}

/* With z = log sum_e exp logit_e: dz^2/dlogit_e = 2 z softmax_e. */
MT_VEC void mt_cpu_router_z(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_args_router_z *a = MT_ARGS(router_z, c);
    int64_t E = mt_dim(c, 'E'), lo, hi;
    float *s = scratch;
    MT_ASSERT(E > 0 && E * 4 <= MT_SCRATCH_BYTES);
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const float *logits = (const float *)a->logits + n * c->ld[2];
        float *dl = (float *)a->dlogits + n * c->ld[0];
        double z = mt_router_scores(s, logits, E, 0);
        ((float *)a->loss)[n] = (float)(z * z);
        for (int64_t e = 0; e < E; e++)
            dl[e] = (float)((double)dl[e] + MT_SCALARS(router_z, c)->factor * 2 * z * (double)s[e]);
    }
}
