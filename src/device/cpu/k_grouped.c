/* Products of routed rows with their experts' weights, over one dispatch round: rows [first, first + rows) of
 * the expert order, which the bounded buffers hold from row 0. */
#include "device/cpu/kernels.h"

static const struct mt_gemm *gemm_of(const struct mt_call *c, const void *dev)
{
    return ((const struct mt_cpu_dev *)dev)->gemm[c->dtype];
}

/* Scratch: what the products need, then the offsets. */
static int64_t *offsets_at(const struct mt_call *c, void *scratch)
{
    MT_ASSERT(mt_gemm_scratch_bytes() + (mt_dim(c, 'E') + 1) * (int64_t)sizeof(int64_t) <= MT_SCRATCH_BYTES);
    return (int64_t *)(void *)((char *)scratch + mt_gemm_scratch_bytes());
}

/* offset[e] .. offset[e + 1]: the rows of expert e, as far as they fall in the round, counted from its first.
 */
static const int64_t *round_offsets(int64_t *offset, const int32_t *counts, int64_t experts, int64_t first,
                                    int64_t rows)
{
    int64_t end = -first;
    offset[0] = 0;
    for (int64_t e = 0; e < experts; e++) {
        end += counts[e];
        offset[e + 1] = end < 0 ? 0 : end < rows ? end : rows;
    }
    return offset;
}

/* Arguments 0 output, 1 rows, 2 weights, 3 counts of either direction; `into` puts the output at its global
 * rows. */
static void grouped_mul(const struct mt_call *c, char outputs, char inputs, bool into, int part, int parts,
                        void *scratch, const void *dev)
{
    int64_t first = c->scalar[0].i, rows = c->scalar[1].i, experts = mt_dim(c, 'E');
    char *out = c->arg[0];
    if (into) out += first * c->ld[0] * mt_dtype_bytes(c->dtype);
    const struct mt_gemm_mul g = {
        .c = out,
        .a = c->arg[1],
        .b = c->arg[2],
        .n = mt_dim(c, outputs),
        .k = mt_dim(c, inputs),
        .lda = c->ld[1],
        .ldc = c->ld[0],
        .c_dtype = (mt_dtype)c->dtype,
        .groups = experts,
        .b_stride = c->stride[2],
        .offset = round_offsets(offsets_at(c, scratch), c->arg[3], experts, first, rows),
    };
    gemm_of(c, dev)->mul(&g, part, parts, scratch);
}

void mt_cpu_grouped_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    grouped_mul(c, 'O', 'I', false, part, parts, scratch, dev);
}
void mt_cpu_grouped_fwd_into(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    grouped_mul(c, 'O', 'I', true, part, parts, scratch, dev);
}
void mt_cpu_grouped_bwdx(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    grouped_mul(c, 'I', 'O', false, part, parts, scratch, dev);
}
void mt_cpu_grouped_bwdx_into(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    grouped_mul(c, 'I', 'O', true, part, parts, scratch, dev);
}

/* Rounds are cut at multiples of 32 rows of an expert, and the products sum in groups of 32: any rounds, same
 * bits. */
void mt_cpu_grouped_bwdw(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_grouped_bwdw *a = MT_ARGS(grouped_bwdw, c);
    const struct mt_scalars_grouped_bwdw *s = MT_SCALARS(grouped_bwdw, c);
    int64_t experts = mt_dim(c, 'E');
    const struct mt_gemm_tn g = {
        .dw = a->dw,
        .dy = a->dy,
        .x = a->x,
        .o = mt_dim(c, 'O'),
        .i = mt_dim(c, 'I'),
        .lddw = c->ld[0],
        .lddy = c->ld[1],
        .ldx = c->ld[2],
        .accumulate = true,
        .groups = experts,
        .dw_stride = c->stride[0] / 4,
        .offset = round_offsets(offsets_at(c, scratch), a->counts, experts, s->first, s->rows),
    };
    gemm_of(c, dev)->mul_tn(&g, part, parts, scratch);
}
