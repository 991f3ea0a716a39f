/* k_router.c: from hidden rows to chosen experts and gates, in f32, and back. */
#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/router.h"

/* y[e] += <x, w[e]> for m inputs: four experts at a time share the loads of x. */
MT_VEC_INLINE void dots(float *y, const float *x, const float *w, int64_t ldw, int64_t E, int64_t m)
{
    int64_t e = 0;
    for (; e + 4 <= E; e += 4) {
        const float *w0 = w + e * ldw, *w1 = w0 + ldw, *w2 = w1 + ldw, *w3 = w2 + ldw;
        float l0[MT_LANES] = {0}, l1[MT_LANES] = {0}, l2[MT_LANES] = {0}, l3[MT_LANES] = {0};
        int64_t i = 0;
        for (; i + MT_LANES <= m; i += MT_LANES)
            for (int j = 0; j < MT_LANES; j++) {
                float v = x[i + j];
                l0[j] += v * w0[i + j];
                l1[j] += v * w1[i + j];
                l2[j] += v * w2[i + j];
                l3[j] += v * w3[i + j];
            }
        for (int j = 0; i + j < m; j++) {
            float v = x[i + j];
            l0[j] += v * w0[i + j];
            l1[j] += v * w1[i + j];
            l2[j] += v * w2[i + j];
            l3[j] += v * w3[i + j];
        }
        y[e] += mt_vec_fold(l0);
        y[e + 1] += mt_vec_fold(l1);
        y[e + 2] += mt_vec_fold(l2);
        y[e + 3] += mt_vec_fold(l3);
    }
    for (; e < E; e++) y[e] += mt_vec_dot(x, w + e * ldw, m);
}

/* Chunks of D outside, tokens inside: a chunk of w stays in the cache. */
MT_VEC void mt_cpu_router_logits(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_router_logits *a = MT_ARGS(router_logits, c);
    int64_t E = mt_dim(c, 'E'), D = mt_dim(c, 'D'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++)
        for (int64_t e = 0; e < E; e++) ((float *)a->y)[n * c->ld[0] + e] = 0;
    for (int64_t j = 0; j < D; j += MT_CHUNK)
        for (int64_t n = lo; n < hi; n++) {
            float buf[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, D - j);
            const float *x = mt_vec_in(a->x, c->dtype, n * c->ld[1] + j, m, buf);
            dots((float *)a->y + n * c->ld[0], x, (const float *)a->w + j, c->ld[2], E, m);
        }
}

/* s + bias; returns whether all are numbers. */
static bool choice_of(float *choice, const float *s, const float *bias, int64_t E)
{
    bool numbers = true;
    for (int64_t e = 0; e < E; e++) {
        choice[e] = s[e] + bias[e];
        numbers &= choice[e] == choice[e];
    }
    return numbers;
}

/* A group's best choice, or the sum of its two best. */
static float group_score(const float *choice, int64_t n, bool best2)
{
    float best = -INFINITY, next = -INFINITY;
    for (int64_t e = 0; e < n; e++) {
        if (choice[e] > best)
            next = best, best = choice[e];
        else if (choice[e] > next)
            next = choice[e];
    }
    return best2 ? best + next : best;
}
/* Choices outside of the `limit` best groups are out. scratch: two arrays of a number a group */
static void limit_groups(float *choice, int64_t E, const struct mt_scalars_router_topk *f, float *score,
                         int32_t *kept)
{
    int64_t n = E / f->groups, k = 0;
    for (int64_t g = 0; g < f->groups; g++) score[g] = group_score(choice + g * n, n, f->best2);
    mt_router_choose(kept, score, f->groups, f->limit);
    for (int64_t g = 0; g < f->groups; g++) score[g] = -INFINITY;
    for (; k < f->limit; k++) score[kept[k]] = 0;
    for (int64_t e = 0; e < E; e++)
        if (score[e / n] < 0) choice[e] = -INFINITY;
}
/* Round robin: any run of tokens meets each expert equally often, to within one. */
static void force(int32_t *ids, int64_t token, int64_t E, int64_t K)
{
    for (int64_t k = 0; k < K; k++) ids[k] = (int32_t)((token * K + k) % E);
}

/* gates: scale s[id], over their sum if norm */
static void gates_of(float *gates, const int32_t *ids, const float *s, int64_t K,
                     const struct mt_scalars_router_topk *f)
{
    double sum = 0;
    for (int64_t k = 0; k < K; k++) sum += (double)s[ids[k]];
    double factor = f->norm ? f->scale / (sum + 1e-20) : f->scale;
    for (int64_t k = 0; k < K; k++) gates[k] = (float)((double)s[ids[k]] * factor);
}

MT_VEC void mt_cpu_router_topk(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_args_router_topk *a = MT_ARGS(router_topk, c);
    const struct mt_scalars_router_topk *f = MT_SCALARS(router_topk, c);
    const float *bias = a->bias;
    int64_t E = mt_dim(c, 'E'), K = mt_dim(c, 'K'), lo, hi;
    float *s = scratch, *choice = s + E, *groups = choice + E;
    MT_ASSERT(K <= E && E * 16 <= MT_SCRATCH_BYTES && f->groups <= E && f->limit <= f->groups);
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        int32_t *ids = (int32_t *)a->ids + n * c->ld[0];
        float *gates = (float *)a->gates + n * c->ld[1];
        (void)mt_router_scores(s, (const float *)a->logits + n * c->ld[2], E, f->score);
        bool numbers = choice_of(choice, s, bias, E);
        if (f->groups > 1) limit_groups(choice, E, f, groups, (int32_t *)(groups + E));
        if (f->forced)
            force(ids, n % f->forced, E, K);
        else
            mt_router_choose(ids, choice, E, K);
        gates_of(gates, ids, s, K, f);
        for (int64_t k = 0; k < K && !numbers; k++) gates[k] = NAN; /* it must not go unseen */
    }
}

/* Counting sort by expert of the flat pairs token K + k, stable; dropped ones come last. One pass each way over few bytes: one part
 * does it. */
void mt_cpu_route_sort(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)parts, (void)dev;
    const struct mt_args_route_sort *a = MT_ARGS(route_sort, c);
    int64_t N = mt_dim(c, 'N'), K = mt_dim(c, 'K'), E = mt_dim(c, 'E');
    int32_t *order = a->order, *counts = a->counts, *next = scratch;
    if (part != 0) return;
    MT_ASSERT(mt_dim(c, 'M') == N * K && (E + 1) * 4 <= MT_SCRATCH_BYTES);
    for (int64_t e = 0; e < E; e++) counts[e] = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            int32_t e = ((const int32_t *)a->ids)[n * c->ld[3] + k];
            MT_ASSERT(e < E);
            if (e >= 0) counts[e]++;
        }
    next[0] = 0;
    for (int64_t e = 0; e < E; e++) next[e + 1] = next[e] + counts[e];
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            int32_t e = ((const int32_t *)a->ids)[n * c->ld[3] + k], at = next[e < 0 ? E : e]++;
            order[at] = (int32_t)(n * K + k);
            ((int32_t *)a->slot)[n * c->ld[1] + k] = e < 0 ? -1 - at : at;
        }
}

void mt_cpu_counts_add(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_counts_add *a = MT_ARGS(counts_add, c);
    int64_t lo, hi;
    mt_share(mt_dim(c, 'E'), 64, part, parts, &lo, &hi);
    for (int64_t e = lo; e < hi; e++) ((int64_t *)a->acc)[e] += ((const int32_t *)a->counts)[e];
}

/* Scores of the chosen, times any common factor, and d score / d logit over it; f64, for differences are to come. */
static void chosen_scores(double *s, double *slope, const float *logits, const int32_t *ids, int64_t K,
                          int64_t score)
{
    double top = -HUGE_VAL;
    for (int64_t k = 0; k < K; k++) top = fmax(top, (double)logits[ids[k]]);
    for (int64_t k = 0; k < K; k++) {
        double x = (double)logits[ids[k]], small = exp(-fabs(x));
        s[k] = score ? (x > 0 ? 1 : small) / (1 + small) : exp(x - top);
        slope[k] = score ? (x > 0 ? small : 1) / (1 + small) : 1;
    }
}

/* With gate_k = scale s_k / S, S the sum over the chosen: ds_k = scale (dg_k - sum_j dg_j s_j / S) / S. Of a softmax,
 * dlogits_i = s_i (ds_i - sum_j s_j ds_j), and that sum is zero: ratios of scores don't see what all were divided by. So
 * either way only the chosen have a gradient, and it takes only their scores. */
static void sparse_row_bwd(float *dl, const float *dg, const int32_t *ids, const float *logits, double *s,
                           int64_t E, int64_t K, const struct mt_scalars_router_bwd *f)
{
    double sum = 1e-20, mean = 0, *slope = s + K; /* as in gates_of; next to a softmax it is nothing */
    chosen_scores(s, slope, logits, ids, K, f->score);
    for (int64_t k = 0; k < K; k++) sum += s[k];
    for (int64_t k = 0; k < K; k++) mean += (double)dg[k] * s[k] / sum;
    for (int64_t e = 0; e < E; e++) dl[e] = 0;
    for (int64_t k = 0; k < K; k++)
        dl[ids[k]] =
            (float)(f->scale * s[k] * slope[k] * (f->norm ? ((double)dg[k] - mean) / sum : (double)dg[k]));
}

/* Softmax scores as they are: every logit has a gradient. p: scratch of E */
MT_VEC_INLINE void softmax_row_bwd(float *dl, const float *dg, const int32_t *ids, const float *logits,
                                   float *p, int64_t E, int64_t K, double scale)
{
    double dot = 0;
    (void)mt_router_scores(p, logits, E, 0);
    for (int64_t k = 0; k < K; k++) dot += scale * (double)dg[k] * (double)p[ids[k]];
    float rest = (float)dot;
    for (int64_t e = 0; e < E; e++) dl[e] = -p[e] * rest;
    for (int64_t k = 0; k < K; k++) dl[ids[k]] = (float)((double)p[ids[k]] * (scale * (double)dg[k] - dot));
}

MT_VEC void mt_cpu_router_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_args_router_bwd *a = MT_ARGS(router_bwd, c);
    const struct mt_scalars_router_bwd *f = MT_SCALARS(router_bwd, c);
    int64_t E = mt_dim(c, 'E'), K = mt_dim(c, 'K'), lo, hi;
    MT_ASSERT(E * 4 <= MT_SCRATCH_BYTES && K * 16 <= MT_SCRATCH_BYTES);
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        float *dl = (float *)a->dlogits + n * c->ld[0];
        const float *dg = (const float *)a->dgates + n * c->ld[1],
                    *logits = (const float *)a->logits + n * c->ld[3];
        const int32_t *ids = (const int32_t *)a->ids + n * c->ld[2];
        if (f->score || f->norm)
            sparse_row_bwd(dl, dg, ids, logits, scratch, E, K, f);
        else
            softmax_row_bwd(dl, dg, ids, logits, scratch, E, K, f->scale);
    }
}

/* Columns at a time, few enough for their sums to stay in registers. */
enum { BLOCK_ROWS = 64, BLOCK_COLUMNS = 64 };

/* dx[n] += sum over experts, in order, of dlogits[n][e] w[e]; most dlogits are zero when gates are normalised. */
MT_VEC_INLINE void add_experts(float *dx, const float *in, const float *dl, float (*w)[BLOCK_COLUMNS],
                               int64_t E, int64_t m)
{
    float sum[BLOCK_COLUMNS] = {0};
    for (int64_t e = 0; e < E; e++) {
        float d = dl[e];
        if (d == 0) continue;
        for (int i = 0; i < BLOCK_COLUMNS; i++) sum[i] += d * w[e][i];
    }
    MT_VEC_LOOP
    for (int64_t i = 0; i < m; i++) dx[i] = in[i] + sum[i];
}

MT_VEC void mt_cpu_router_bwdx(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_args_router_bwdx *a = MT_ARGS(router_bwdx, c);
    int64_t E = mt_dim(c, 'E'), D = mt_dim(c, 'D'), lo, hi;
    float(*w)[BLOCK_COLUMNS] = scratch; /* the block of it, dense */
    MT_ASSERT(E * BLOCK_COLUMNS * 4 <= MT_SCRATCH_BYTES);
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t j = 0; j < D && lo < hi; j += BLOCK_COLUMNS) {
        int64_t m = mt_min64(BLOCK_COLUMNS, D - j);
        for (int64_t e = 0; e < E; e++)
            for (int64_t i = 0; i < BLOCK_COLUMNS; i++)
                w[e][i] = i < m ? ((const float *)a->w)[e * c->ld[2] + j + i] : 0;
        for (int64_t n = lo; n < hi; n++) {
            float buf[BLOCK_COLUMNS];
            int64_t at = n * c->ld[0] + j;
            const float *in = mt_vec_in(a->dx, c->dtype, at, m, buf);
            add_experts(mt_vec_out(a->dx, c->dtype, at, buf), in, (const float *)a->dlogits + n * c->ld[1], w,
                        E, m);
            mt_vec_put(a->dx, c->dtype, at, buf, m);
        }
    }
}

/* total[e] += the block's sum of dlogits[n][e] x[n], in f32 for at most BLOCK_ROWS rows before it joins the total */
MT_VEC_INLINE void add_block(float (*total)[BLOCK_COLUMNS], float (*x)[BLOCK_COLUMNS], const float *dl,
                             int64_t lddl, int64_t E, int64_t rows)
{
    for (int64_t e = 0; e < E; e++) {
        float sum[BLOCK_COLUMNS] = {0};
        for (int64_t n = 0; n < rows; n++) {
            float d = dl[n * lddl + e];
            if (d == 0) continue;
            for (int i = 0; i < BLOCK_COLUMNS; i++) sum[i] += d * x[n][i];
        }
        for (int i = 0; i < BLOCK_COLUMNS; i++) total[e][i] += sum[i];
    }
}

/* Parts own columns; rows add in order, by blocks. */
MT_VEC void mt_cpu_router_bwdw(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    const struct mt_args_router_bwdw *a = MT_ARGS(router_bwdw, c);
    int64_t N = mt_dim(c, 'N'), E = mt_dim(c, 'E'), lo, hi;
    float(*x)[BLOCK_COLUMNS] = scratch, (*total)[BLOCK_COLUMNS] = x + BLOCK_ROWS;
    MT_ASSERT((E + BLOCK_ROWS) * BLOCK_COLUMNS * 4 <= MT_SCRATCH_BYTES);
    mt_share(mt_dim(c, 'D'), BLOCK_COLUMNS, part, parts, &lo, &hi);
    for (int64_t j = lo; j < hi; j += BLOCK_COLUMNS) {
        int64_t m = mt_min64(BLOCK_COLUMNS, hi - j);
        memset(x, 0, sizeof *x * (size_t)(BLOCK_ROWS + E));
        for (int64_t n0 = 0; n0 < N; n0 += BLOCK_ROWS) {
            int64_t rows = mt_min64(BLOCK_ROWS, N - n0);
            for (int64_t n = 0; n < rows; n++) {
                float buf[BLOCK_COLUMNS];
                memcpy(x[n], mt_vec_in(a->x, c->dtype, (n0 + n) * c->ld[2] + j, m, buf), (size_t)m * 4);
            }
            add_block(total, x, (const float *)a->dlogits + n0 * c->ld[1], c->ld[1], E, rows);
        }
        for (int64_t e = 0; e < E; e++)
            for (int64_t i = 0; i < m; i++) ((float *)a->dw)[e * c->ld[0] + j + i] += total[e][i];
    }
}

/* Experts with less than the mean load get rate more, those with more get rate less, and the mean stays. */
void mt_cpu_bias_update(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)parts, (void)scratch, (void)dev;
    const struct mt_args_bias_update *a = MT_ARGS(bias_update, c);
    const int64_t *counts = a->counts;
    const struct mt_scalars_bias_update *s = MT_SCALARS(bias_update, c);
    double mean = 0, drift = 0;
    int64_t E = mt_dim(c, 'E');
    if (part != 0 || E == 0) return;
    for (int64_t e = 0; e < E; e++) mean += (double)counts[e];
    mean /= (double)E;
    for (int64_t e = 0; e < E; e++) drift += ((double)counts[e] < mean) - ((double)counts[e] > mean);
    drift /= (double)E;
    for (int64_t e = 0; e < E; e++) {
        double step = ((double)counts[e] < mean) - ((double)counts[e] > mean) - drift;
        ((float *)a->bias)[e] = (float)((double)((float *)a->bias)[e] + s->rate * step);
    }
}
