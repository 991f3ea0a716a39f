#include "launch.h"

#include "kernels.h"

static mt_status done(const struct mt_call *c, cudaError_t status, mt_err *e)
{
    MT_REQUIRE(!status, e, MT_DEVICE, "%s: %s (%s)", mt_op_info[c->op].name, cudaGetErrorString(status),
               cudaGetErrorName(status));
    return MT_OK;
}

/* Only the ledger cares: there is nothing to do to memory whose contents are undefined. */
static mt_status fresh(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    (void)q, (void)c, (void)e;
    return MT_OK;
}

static mt_status fill0(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    if (!c->bytes[0]) return MT_OK;
    return done(c, cudaMemsetAsync(MT_ARGS(fill0, c)->x, 0, (size_t)c->bytes[0], q->stream), e);
}

static mt_status copy(const struct mt_cuda_queue *q, const struct mt_call *c, enum cudaMemcpyKind kind,
                      mt_err *e)
{
    MT_REQUIRE(c->bytes[0] == c->bytes[1], e, MT_INTERNAL, "%s: %lld bytes to %lld", mt_op_info[c->op].name,
               (long long)c->bytes[1], (long long)c->bytes[0]);
    if (!c->bytes[0]) return MT_OK;
    return done(c, cudaMemcpyAsync(c->arg[0], c->arg[1], (size_t)c->bytes[0], kind, q->stream), e);
}
static mt_status copy_h2d(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    return copy(q, c, cudaMemcpyHostToDevice, e);
}
static mt_status copy_d2h(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
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
                                q->stream),
                e);
}

static mt_status weight_cast(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_weight_cast *a = MT_ARGS(weight_cast, c);
    enum { RUN = 1024 }; /* elements a block; the rest is a row of its own */
    const int64_t n = c->bytes[1] / 4, whole = n / RUN * RUN, el = mt_dtype_bytes((mt_dtype)c->dtype);
    const struct mt_cuda_cast most = {.y = a->w,
                                      .x = a->master,
                                      .count = 1,
                                      .rows = n / RUN,
                                      .width = RUN,
                                      .ldy = RUN,
                                      .ldx = RUN,
                                      .dtype = (mt_dtype)c->dtype};
    const struct mt_cuda_cast rest = {.y = (char *)a->w + whole * el,
                                      .x = (const float *)a->master + whole,
                                      .count = 1,
                                      .rows = 1,
                                      .width = n - whole,
                                      .dtype = (mt_dtype)c->dtype};
    MT_TRY(done(c, mt_cuda_cast_f32(&most, q->stream), e));
    return done(c, mt_cuda_cast_f32(&rest, q->stream), e);
}

/* The working form of a weight on this device is row-major in the working type. */
static mt_status weight_pack(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_weight_pack *a = MT_ARGS(weight_pack, c);
    const struct mt_cuda_cast cast = {.y = a->w,
                                      .x = a->master,
                                      .count = mt_dim(c, 'E'),
                                      .rows = mt_dim(c, 'O'),
                                      .width = mt_dim(c, 'I'),
                                      .ldy = c->ld[0],
                                      .ldx = c->ld[1],
                                      .y_stride = c->stride[0],
                                      .x_stride = c->stride[1],
                                      .dtype = (mt_dtype)c->dtype};
    return done(c, mt_cuda_cast_f32(&cast, q->stream), e);
}

static mt_status rmsnorm_fwd(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_rmsnorm_fwd *a = MT_ARGS(rmsnorm_fwd, c);
    const struct mt_cuda_norm_fwd norm = {.y = a->y,
                                          .rstd = a->rstd,
                                          .x = a->x,
                                          .g = a->g,
                                          .rows = mt_dim(c, 'N'),
                                          .width = mt_dim(c, 'D'),
                                          .ldy = c->ld[0],
                                          .ldx = c->ld[2],
                                          .eps = (float)MT_SCALARS(rmsnorm_fwd, c)->eps,
                                          .dtype = (mt_dtype)c->dtype};
    return done(c, mt_cuda_rmsnorm_fwd(&norm, q->stream), e);
}

static mt_status rmsnorm_bwd(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_rmsnorm_bwd *a = MT_ARGS(rmsnorm_bwd, c);
    const struct mt_cuda_norm_bwd norm = {.dx = a->dx,
                                          .dgp = a->dgp,
                                          .dy = a->dy,
                                          .x = a->x,
                                          .rstd = a->rstd,
                                          .g = a->g,
                                          .res = a->res,
                                          .rows = mt_dim(c, 'N'),
                                          .width = mt_dim(c, 'D'),
                                          .blocks = mt_dim(c, 'P'),
                                          .lddx = c->ld[0],
                                          .lddgp = c->ld[1],
                                          .lddy = c->ld[2],
                                          .ldx = c->ld[3],
                                          .ldres = c->ld[6],
                                          .dtype = (mt_dtype)c->dtype};
    return done(c, mt_cuda_rmsnorm_bwd(&norm, q->stream), e);
}

static mt_status gather_rows(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e)
{
    const struct mt_args_gather_rows *a = MT_ARGS(gather_rows, c);
    const struct mt_scalars_gather_rows *s = MT_SCALARS(gather_rows, c);
    const int64_t el = mt_dtype_bytes((mt_dtype)c->dtype);
    const struct mt_cuda_gather gather = {.y = a->y,
                                          .x = a->x,
                                          .order = (const int32_t *)a->order + s->first,
                                          .rows = s->rows,
                                          .row_bytes = mt_dim(c, 'D') * el,
                                          .y_bytes = c->ld[0] * el,
                                          .x_bytes = c->ld[1] * el,
                                          .topk = (int32_t)s->topk};
    return done(c, mt_cuda_gather_rows(&gather, q->stream), e);
}

/* cuBLASLt adds a bias of the output's type: a bf16 product takes it rounded, like any working weight, at
 * the front of the scratch memory. */
static mt_status bias_in_type(const struct mt_cuda_queue *q, const struct mt_call *c, const void **bias,
                              size_t *used, mt_err *e)
{
    const int64_t n = mt_dim(c, 'O');
    const struct mt_cuda_cast cast = {
        .y = q->scratch, .x = *bias, .count = 1, .rows = 1, .width = n, .dtype = MT_BF16};
    *used = 0;
    if (!*bias || c->dtype == MT_F32) return MT_OK;
    *used = ((size_t)n * 2 + 255) / 256 * 256;
    MT_REQUIRE(*used <= q->scratch_bytes, e, MT_INTERNAL,
               "%s: a bias of %lld outputs in %zu bytes of scratch", mt_op_info[c->op].name, (long long)n,
               q->scratch_bytes);
    *bias = q->scratch;
    return done(c, mt_cuda_cast_f32(&cast, q->stream), e);
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
                              .dtype = (mt_dtype)c->dtype};
    size_t used;
    MT_TRY(bias_in_type(q, c, &p.bias, &used, e));
    return mt_lt_multiply(q->lt, &p, (char *)q->scratch + used, q->scratch_bytes - used, q->stream, e);
}

mt_cuda_launch *const mt_cuda_kernel[MT_N_OPS] = {
    [MT_OP_fresh] = fresh,
    [MT_OP_fill0] = fill0,
    [MT_OP_copy_h2d] = copy_h2d,
    [MT_OP_copy_d2h] = copy_d2h,
    [MT_OP_read_back] = read_back,
    [MT_OP_weight_cast] = weight_cast,
    [MT_OP_weight_pack] = weight_pack,
    [MT_OP_rmsnorm_fwd] = rmsnorm_fwd,
    [MT_OP_rmsnorm_bwd] = rmsnorm_bwd,
    [MT_OP_gather_rows] = gather_rows,
    [MT_OP_linear_fwd] = linear_fwd,
};
