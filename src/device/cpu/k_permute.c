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

/* y[n] = h[n] + sum_k gates[n][k] ret[slot[n][k]], k ascending, without dropped ones */
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
                if (slot[k] < 0) continue;
                const float *ret = mt_vec_in(a->ret, c->dtype, slot[k] * c->ld[2] + j, m, buf), g = gates[k];
                for (int64_t i = 0; i < m; i++) sum[i] += g * ret[i];
            }
            memcpy(mt_vec_out(a->y, c->dtype, at, buf), sum, (size_t)m * 4);
            mt_vec_put(a->y, c->dtype, at, buf, m);
        }
    }
}

/* dx[n] = add[n] + sum_k dret[slot[n][k]], k ascending; dgates in token order, 0 of dropped ones */
MT_VEC void mt_cpu_combine_bwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_combine_bwd *a = MT_ARGS(combine_bwd, c);
    int64_t D = mt_dim(c, 'D'), K = mt_dim(c, 'K'), lo, hi;
    mt_share(mt_dim(c, 'N'), 1, part, parts, &lo, &hi);
    for (int64_t n = lo; n < hi; n++) {
        const int32_t *slot = (const int32_t *)a->slot + n * c->ld[4];
        for (int64_t k = 0; k < K; k++)
            ((float *)a->dgates)[n * c->ld[1] + k] = slot[k] < 0 ? 0 : ((const float *)a->dgate)[slot[k]];
        for (int64_t j = 0; j < D; j += MT_CHUNK) {
            float sum[MT_CHUNK] = {0}, buf[MT_CHUNK];
            int64_t m = mt_min64(MT_CHUNK, D - j), at = n * c->ld[0] + j;
            if (a->add) memcpy(sum, mt_vec_in(a->add, c->dtype, n * c->ld[5] + j, m, buf), (size_t)m * 4);
            for (int64_t k = 0; k < K; k++) {
                if (slot[k] < 0) continue;
                const float *dret = mt_vec_in(a->dret, c->dtype, slot[k] * c->ld[2] + j, m, buf);
                for (int64_t i = 0; i < m; i++) sum[i] += dret[i];
            }
            memcpy(mt_vec_out(a->dx, c->dtype, at, buf), sum, (size_t)m * 4);
            mt_vec_put(a->dx, c->dtype, at, buf, m);
        }
    }
}

void mt_cpu_gather_gates(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_gather_gates *a = MT_ARGS(gather_gates, c);
    int64_t K = mt_dim(c, 'K'), lo, hi;
    mt_share(mt_dim(c, 'M'), 256, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t from = ((const int32_t *)a->order)[i];
        ((float *)a->y)[i] = ((const float *)a->gates)[from / K * c->ld[1] + from % K];
    }
}

/* counts[e] = rows of all sources for expert e of member `me` */
void mt_cpu_expert_counts(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_expert_counts *a = MT_ARGS(expert_counts, c);
    int64_t E = mt_dim(c, 'E'), lo, hi, me = MT_SCALARS(expert_counts, c)->me;
    mt_share(E, 1, part, parts, &lo, &hi);
    for (int64_t e = lo; e < hi; e++) {
        int32_t n = 0;
        for (int64_t r = 0; r < mt_dim(c, 'R'); r++)
            n += ((const int32_t *)a->all)[r * c->ld[1] + me * E + e];
        ((int32_t *)a->counts)[e] = n;
    }
}

/* Walks the segments (expert, source) of a round in expert order; copies rows between `sorted`, which lies in that order,
 * and `packed`, where each source's rows are together. Parts share the rows of the sorted side. */
static void sort_rows(const struct mt_call *c, char *sorted, int64_t sorted_ld, char *packed,
                      int64_t packed_ld, bool to_sorted, int part, int parts)
{
    const int32_t *all = c->arg[2];
    int64_t me = c->scalar[0].i, E = c->scalar[1].i, first = c->scalar[2].i, rows = c->scalar[3].i,
            R = mt_dim(c, 'R');
    int64_t el = mt_dtype_bytes((mt_dtype)c->dtype), width = mt_dim(c, 'D') * el, lo, hi,
            base[MT_MAX_EP] = {0}, used[MT_MAX_EP] = {0}, at = 0;
    mt_share(rows, 1, part, parts, &lo, &hi);
    for (int pass = 0; pass < 2;
         pass++, at = 0) { /* first how many rows each source has in the round, then the copies */
        for (int64_t e = 0; e < E; e++)
            for (int64_t r = 0; r < R; r++) {
                int64_t n = all[r * c->ld[2] + me * E + e], b = at > first ? at : first,
                        z = at + n < first + rows ? at + n : first + rows;
                at += n;
                if (z <= b) continue;
                for (int64_t i = b - first; pass && i < z - first; i++) {
                    char *x = sorted + i * sorted_ld * el,
                         *y = packed + (base[r] + used[r] + i - (b - first)) * packed_ld * el;
                    if (i >= lo && i < hi) memcpy(to_sorted ? x : y, to_sorted ? y : x, (size_t)width);
                }
                used[r] += z - b;
            }
        for (int64_t r = 0; r < R && !pass; r++) {
            base[r] = r ? base[r - 1] + used[r - 1] : 0;
            if (r) used[r - 1] = 0;
        }
        if (!pass) used[R - 1] = 0;
    }
}
void mt_cpu_expert_sort(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    sort_rows(c, c->arg[0], c->ld[0], c->arg[1], c->ld[1], true, part, parts);
}
void mt_cpu_expert_unsort(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    sort_rows(c, c->arg[1], c->ld[1], c->arg[0], c->ld[0], false, part, parts);
}
