/* Working forms of weights: packing does not compute, so any cut gives the same bytes. */
#include "device/cpu/kernels.h"

static const struct mt_gemm *gemm_of(const struct mt_call *c, const void *dev)
{
    return ((const struct mt_cpu_dev *)dev)->gemm[c->dtype];
}

/* Stacks of at least `parts` matrices are cut between matrices, others inside each. */
struct stack {
    int64_t first, last;
    int part, parts;
};
static struct stack stack_of(const struct mt_call *c, int part, int parts)
{
    struct stack s = {0, mt_dim(c, 'E'), part, parts};
    if (s.last >= parts) {
        mt_share(mt_dim(c, 'E'), 1, part, parts, &s.first, &s.last);
        s.part = 0;
        s.parts = 1;
    }
    return s;
}

void mt_cpu_weight_pack(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_weight_pack *a = MT_ARGS(weight_pack, c);
    struct stack s = stack_of(c, part, parts);
    (void)scratch;
    for (int64_t e = s.first; e < s.last; e++)
        gemm_of(c, dev)->pack_nt((char *)a->w + e * c->stride[0], (const char *)a->master + e * c->stride[1],
                                 MT_F32, c->ld[1], mt_dim(c, 'O'), mt_dim(c, 'I'), s.part, s.parts);
}

void mt_cpu_weight_turn(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_weight_turn *a = MT_ARGS(weight_turn, c);
    struct stack s = stack_of(c, part, parts);
    (void)scratch;
    for (int64_t e = s.first; e < s.last; e++)
        gemm_of(c, dev)->pack_nn((char *)a->nn + e * c->stride[0], (const char *)a->nt + e * c->stride[1],
                                 mt_dim(c, 'O'), mt_dim(c, 'I'), s.part, s.parts);
}

void mt_cpu_weight_form(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    const struct mt_args_weight_form *a = MT_ARGS(weight_form, c);
    (void)scratch;
    gemm_of(c, dev)->pack_nt(a->nt, a->w, (mt_dtype)c->dtype, c->ld[1], mt_dim(c, 'O'), mt_dim(c, 'I'), part,
                             parts);
}
