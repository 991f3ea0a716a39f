#include "launch.h"

#include "compare.h"
#include "kernels.h"

static mt_status done(const struct mt_call *c, cudaError_t status, mt_err *e)
{
    MT_REQUIRE(!status, e, MT_DEVICE, "%s: %s (%s)", mt_op_info[c->op].name, cudaGetErrorString(status),
               cudaGetErrorName(status));
    return MT_OK;
}

/* Only the ledger cares. */
static mt_status fresh(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    (void)q, (void)c, (void)e;
    return MT_OK;
}
static mt_status keep(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    (void)q, (void)c, (void)e;
    return MT_OK;
}

static mt_status fill0(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    if (!c->bytes[0]) return MT_OK;
    return done(c, cudaMemsetAsync(MT_ARGS(fill0, c)->x, 0, (size_t)c->bytes[0], q->lane.stream), e);
}

static mt_status copy(const struct mt_cuda_queue *q, const struct mt_call *c, enum cudaMemcpyKind kind,
                      mt_err *e)
{
    MT_REQUIRE(c->bytes[0] == c->bytes[1], e, MT_INTERNAL, "%s: %lld bytes to %lld", mt_op_info[c->op].name,
               (long long)c->bytes[1], (long long)c->bytes[0]);
    if (!c->bytes[0]) return MT_OK;
    return done(c, cudaMemcpyAsync(c->arg[0], c->arg[1], (size_t)c->bytes[0], kind, q->lane.stream), e);
}
static mt_status copy_h2d(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    return copy(q, c, cudaMemcpyHostToDevice, e);
}
static mt_status copy_d2h(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const uintptr_t places = (uintptr_t)c->arg[0] | (uintptr_t)c->arg[1];
    if (q->down_by_kernel && places % 4 == 0 && c->bytes[0] == c->bytes[1] && c->bytes[0])
        return done(c, mt_cuda_copy(c->arg[0], c->arg[1], c->bytes[0], q->lane.stream), e);
    return copy(q, c, cudaMemcpyDeviceToHost, e);
}

/* To the stream's pinned buffer, from which the host takes it once the op's event has come. */
static mt_status read_back(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    MT_REQUIRE(c->bytes[0] <= MT_CUDA_READ_BYTES, e, MT_INTERNAL,
               "a host read of %lld bytes; at most %d are provided for", (long long)c->bytes[0],
               MT_CUDA_READ_BYTES);
    if (!c->bytes[0]) return MT_OK;
    return done(c,
                cudaMemcpyAsync(q->pinned, MT_ARGS(read_back, c)->src, (size_t)c->bytes[0], cudaMemcpyDefault,
                                q->lane.stream),
                e);
}

/* Both working forms of a weight are row-major in the working type: from one to the other, or from rows that lie further
 * apart, is a copy. */
static mt_status weight_turn(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const size_t el = (size_t)mt_dtype_bytes((mt_dtype)c->dtype), width = (size_t)mt_dim(c, 'I') * el;
    for (int64_t i = 0; i < mt_dim(c, 'E'); i++)
        MT_TRY(
            done(c,
                 cudaMemcpy2DAsync((char *)c->arg[0] + i * c->stride[0], (size_t)c->ld[0] * el,
                                   (const char *)c->arg[1] + i * c->stride[1], (size_t)c->ld[1] * el, width,
                                   (size_t)mt_dim(c, 'O'), cudaMemcpyDeviceToDevice, q->lane.stream),
                 e));
    return MT_OK;
}
static mt_status weight_form(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const size_t el = (size_t)mt_dtype_bytes((mt_dtype)c->dtype), width = (size_t)mt_dim(c, 'I') * el;
    return done(c,
                cudaMemcpy2DAsync(c->arg[0], (size_t)c->ld[0] * el, c->arg[1], (size_t)c->ld[1] * el, width,
                                  (size_t)mt_dim(c, 'O'), cudaMemcpyDeviceToDevice, q->lane.stream),
                e);
}

/* ---- dense products ---- */
/* cuBLASLt adds a bias of the output's type: a bf16 product takes it rounded, like any working weight, at the front of the
 * scratch memory. */
static mt_status bias_in_type(const struct mt_cuda_queue *q, const struct mt_call *c, const void **bias,
                              size_t *used, mt_err *e)
{
    const int64_t n = mt_dim(c, 'O');
    *used = 0;
    if (!*bias || c->dtype == MT_F32) return MT_OK;
    const float *from = *bias;
    *used = ((size_t)n * 2 + 255) / 256 * 256;
    MT_REQUIRE(*used <= q->lane.scratch_bytes, e, MT_INTERNAL,
               "%s: a bias of %lld outputs in %zu bytes of scratch", mt_op_info[c->op].name, (long long)n,
               q->lane.scratch_bytes);
    *bias = q->lane.scratch;
    return done(c, mt_cuda_to_bf16(q->lane.scratch, from, n, q->lane.stream), e);
}
static mt_status multiply(const struct mt_cuda_queue *q, const struct mt_lt_product *p, size_t used,
                          mt_err *e)
{
    return mt_lt_multiply(q->lt, p, (char *)q->lane.scratch + used, q->lane.scratch_bytes - used,
                          q->lane.stream, e);
}

static mt_status linear_fwd(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_linear_fwd *a = MT_ARGS(linear_fwd, c);
    struct mt_lt_product p = {.y = a->y,
                              .x = a->x,
                              .w = a->w,
                              .add = a->add,
                              .bias = a->bias,
                              .m = mt_dim(c, 'N'),
                              .n = mt_dim(c, 'O'),
                              .k = mt_dim(c, 'I'),
                              .ldy = c->ld[0],
                              .ldx = c->ld[1],
                              .ldw = c->ld[2],
                              .ldadd = c->ld[4],
                              .dtype = (mt_dtype)c->dtype,
                              .y_dtype = (mt_dtype)c->dtype};
    size_t used;
    MT_TRY(bias_in_type(q, c, &p.bias, &used, e));
    return multiply(q, &p, used, e);
}
static mt_status logits_fwd(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_logits_fwd *a = MT_ARGS(logits_fwd, c);
    const struct mt_lt_product p = {.y = a->y,
                                    .x = a->x,
                                    .w = a->w,
                                    .m = mt_dim(c, 'N'),
                                    .n = mt_dim(c, 'O'),
                                    .k = mt_dim(c, 'I'),
                                    .ldy = c->ld[0],
                                    .ldx = c->ld[1],
                                    .ldw = c->ld[2],
                                    .dtype = (mt_dtype)c->dtype,
                                    .y_dtype = MT_F32};
    return multiply(q, &p, 0, e);
}
static mt_status linear_bwdx(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_linear_bwdx *a = MT_ARGS(linear_bwdx, c);
    const struct mt_lt_product p = {.y = a->dx,
                                    .x = a->dy,
                                    .w = a->w,
                                    .add = a->add,
                                    .m = mt_dim(c, 'N'),
                                    .n = mt_dim(c, 'I'),
                                    .k = mt_dim(c, 'O'),
                                    .ldy = c->ld[0],
                                    .ldx = c->ld[1],
                                    .ldw = c->ld[2],
                                    .ldadd = c->ld[3],
                                    .w_lines = true,
                                    .dtype = (mt_dtype)c->dtype,
                                    .y_dtype = (mt_dtype)c->dtype};
    return multiply(q, &p, 0, e);
}
static mt_status linear_bwdw(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_linear_bwdw *a = MT_ARGS(linear_bwdw, c);
    const struct mt_lt_product p = {.y = a->dw,
                                    .x = a->dy,
                                    .w = a->x,
                                    .add = a->dw,
                                    .m = mt_dim(c, 'O'),
                                    .n = mt_dim(c, 'I'),
                                    .k = mt_dim(c, 'N'),
                                    .ldy = c->ld[0],
                                    .ldx = c->ld[1],
                                    .ldw = c->ld[2],
                                    .ldadd = c->ld[0],
                                    .x_lines = true,
                                    .w_lines = true,
                                    .dtype = (mt_dtype)c->dtype,
                                    .y_dtype = MT_F32};
    return p.k ? multiply(q, &p, 0, e) : MT_OK;
}

/* ---- the table ---- */
#define LAUNCH(name)                                                                         \
    static mt_status name(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e) \
    {                                                                                        \
        return done(c, mt_cuda_##name(c, &q->lane), e);                                      \
    }
MT_CUDA_KERNELS(LAUNCH)
#undef LAUNCH
#define LAUNCH(name)                                                                         \
    static mt_status name(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e) \
    {                                                                                        \
        struct mt_call own;                                                                  \
        bool taken;                                                                          \
        MT_TRY(mt_sdpa_run(q->sdpa, c, &q->lane, &taken, &own, e));                          \
        return done(c, mt_cuda_##name(taken ? &own : c, &q->lane), e);                       \
    }
MT_CUDA_ATTENTION(LAUNCH)
#undef LAUNCH

/* An op without a launch does not compile. Collectives are not launched: collective.c. */
#define ENTRY_KERNEL(name) [MT_OP_##name] = name,
#define ENTRY_COPY(name) [MT_OP_##name] = name,
#define ENTRY_READ(name) [MT_OP_##name] = name,
#define ENTRY_COMM(name)
mt_cuda_launch *const mt_cuda_kernel[MT_N_OPS] = {
#define OP(name, kind, args, scalars, flops, bytes) ENTRY_##kind(name)
#define OP0(name, kind, args, flops, bytes) ENTRY_##kind(name)
#include "device/op.def"
#undef OP
#undef OP0
};
