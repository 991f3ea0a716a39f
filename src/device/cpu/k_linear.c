/* Dense products with packed weights. */
#include "device/cpu/kernels.h"

static const struct mt_gemm *gemm_of(const struct mt_call *c, const void *dev)
{
    return ((const struct mt_cpu_dev *)dev)->gemm[c->dtype];
}

void mt_cpu_linear_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_linear_fwd *a = MT_ARGS(linear_fwd, c);
    const struct mt_gemm_mul g = {
        .c = a->y,
        .a = a->x,
        .b = a->w,
        .add = a->add,
        .bias = a->bias,
        .m = mt_dim(c, 'N'),
        .n = mt_dim(c, 'O'),
        .k = mt_dim(c, 'I'),
        .lda = c->ld[1],
        .ldc = c->ld[0],
        .ldadd = c->ld[4],
        .c_dtype = (mt_dtype)c->dtype,
    };
    gemm_of(c, dev)->mul(&g, part, parts, scratch);
}

void mt_cpu_logits_fwd(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_logits_fwd *a = MT_ARGS(logits_fwd, c);
    const struct mt_gemm_mul g = {
        .c = a->y,
        .a = a->x,
        .b = a->w,
        .m = mt_dim(c, 'N'),
        .n = mt_dim(c, 'O'),
        .k = mt_dim(c, 'I'),
        .lda = c->ld[1],
        .ldc = c->ld[0],
        .c_dtype = MT_F32,
    };
    gemm_of(c, dev)->mul(&g, part, parts, scratch);
}

void mt_cpu_linear_bwdx(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_linear_bwdx *a = MT_ARGS(linear_bwdx, c);
    const struct mt_gemm_mul g = {
        .c = a->dx,
        .a = a->dy,
        .b = a->w,
        .add = a->add,
        .m = mt_dim(c, 'N'),
        .n = mt_dim(c, 'I'),
        .k = mt_dim(c, 'O'),
        .lda = c->ld[1],
        .ldc = c->ld[0],
        .ldadd = c->ld[3],
        .c_dtype = (mt_dtype)c->dtype,
    };
    gemm_of(c, dev)->mul(&g, part, parts, scratch);
}

void mt_cpu_linear_bwdw(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_linear_bwdw *a = MT_ARGS(linear_bwdw, c);
    const struct mt_gemm_tn g = {
        .dw = a->dw,
        .dy = a->dy,
        .x = a->x,
        .m = mt_dim(c, 'N'),
        .o = mt_dim(c, 'O'),
        .i = mt_dim(c, 'I'),
        .lddw = c->ld[0],
        .lddy = c->ld[1],
        .ldx = c->ld[2],
        .accumulate = true,
    };
    gemm_of(c, dev)->mul_tn(&g, part, parts, scratch);
}
