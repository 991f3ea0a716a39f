/* What is chosen at start-up, while nothing is in the arenas: attention by cuDNN or by our own kernels, shape by shape, and what copies
 * to the host. */
#include <math.h>
#include <string.h>

#include "compare.h"
#include "device_core.h"
#include "prepare.h"

/* ---- measuring ---- */
struct timer {
    cudaEvent_t begin, end;
    cudaStream_t stream;
};
static mt_status timer_open(struct timer *t, cudaStream_t stream, mt_err *e)
{
    *t = (struct timer){.stream = stream};
    MT_CUDA_TRY(cudaEventCreate(&t->begin), e, MT_DEVICE, "making an event");
    MT_CUDA_TRY(cudaEventCreate(&t->end), e, MT_DEVICE, "making an event");
    return MT_OK;
}
static void timer_close(struct timer *t)
{
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
}
/* The second of two runs counts: the first loads the kernel. Milliseconds. */
static mt_status timed(struct timer *t, mt_status (*run)(void *arg, mt_err *e), void *arg, double *ms,
                       mt_err *e)
{
    float took = 0;
    for (int i = 0; i < 2; i++) {
        MT_CUDA_TRY(cudaEventRecord(t->begin, t->stream), e, MT_DEVICE, "recording an event");
        MT_TRY(run(arg, e));
        MT_CUDA_TRY(cudaEventRecord(t->end, t->stream), e, MT_DEVICE, "recording an event");
        MT_CUDA_TRY(cudaEventSynchronize(t->end), e, MT_DEVICE, "a start-up test");
    }
    MT_CUDA_TRY(cudaEventElapsedTime(&took, t->begin, t->end), e, MT_DEVICE, "timing a start-up test");
    *ms = (double)took;
    return MT_OK;
}

/* ---- copies to the host ---- */
enum { COPY_BYTES = 32 << 20, COPY_LEAST = 1 << 20 };
struct copying {
    void *to;
    const void *from;
    int64_t bytes;
    cudaStream_t stream;
};
static mt_status by_engine(void *arg, mt_err *e)
{
    const struct copying *c = arg;
    MT_CUDA_TRY(cudaMemcpyAsync(c->to, c->from, (size_t)c->bytes, cudaMemcpyDeviceToHost, c->stream), e,
                MT_DEVICE, "copying to the host");
    return MT_OK;
}
static mt_status by_kernel(void *arg, mt_err *e)
{
    const struct copying *c = arg;
    MT_CUDA_TRY(mt_cuda_copy(c->to, c->from, c->bytes, c->stream), e, MT_DEVICE, "copying to the host");
    return MT_OK;
}
/* Bytes are bytes, so that the choice may depend on the clock. Arenas too small to tell: the engine. */
static mt_status choose_copies(struct mt_cuda *d, struct mt_chosen *chosen, mt_err *e)
{
    const struct mt_ledger *g = d->ctx->ledger;
    int64_t bytes = COPY_BYTES;
    for (int a = 0; a < MT_N_ARENAS; a++)
        if (g->size[a] < bytes) bytes = g->size[a] / 16 * 16;
    if (bytes < COPY_LEAST) {
        mt_chosen_add(chosen, "copies to the host by the engine");
        return MT_OK;
    }
    struct copying c = {d->arena[MT_HOST_ARENA], d->arena[MT_DEVICE_ARENA], bytes,
                        d->queue[MT_D2H].lane.stream};
    struct timer t;
    double engine = 0, kernel = 0;
    mt_status status = timer_open(&t, c.stream, e);
    if (!status) status = timed(&t, by_engine, &c, &engine, e);
    if (!status) status = timed(&t, by_kernel, &c, &kernel, e);
    timer_close(&t);
    MT_TRY(status);
    d->queue[MT_D2H].down_by_kernel = kernel < engine;
    mt_chosen_add(chosen, "copies to the host by %s (engine %.1f GB/s, kernel %.1f)",
                  kernel < engine ? "a kernel" : "the engine", 1e-6 * (double)bytes / engine,
                  1e-6 * (double)bytes / kernel);
    return MT_OK;
}

/* ---- attention ---- */
/* A call of the op, its arguments dense and one behind the other in the device arena; what it writes twice, to compare. */
struct attempt {
    struct mt_cuda *d;
    struct mt_call call;
    void *other[MT_MAX_ARGS]; /* of outputs */
    int64_t used;
};
static int64_t elements(const struct mt_call *c, int arg)
{
    int64_t n = 1;
    for (const char *s = mt_op_info[c->op].arg[arg].shape; *s; s++) n *= mt_dim(c, *s);
    return n;
}
static mt_dtype type_of(const struct mt_call *c, int arg)
{
    const int type = mt_op_info[c->op].arg[arg].type;
    return type == MT_TYPE_T ? (mt_dtype)c->dtype : type == MT_TYPE_I32 ? MT_I32 : MT_F32;
}
/* Beside the scratch memory, which is a row of the arena. */
static void *take(struct attempt *a, int64_t bytes)
{
    const int64_t n = (bytes + 255) / 256 * 256;
    const mt_view v = a->d->ctx->scratch;
    if (mt_view_given(v)) {
        const int64_t from = a->d->ctx->ledger->row[v.row].off + v.off;
        if (a->used < from + v.bytes && from < a->used + n) a->used = from + (v.bytes + 255) / 256 * 256;
    }
    a->used += n;
    return (char *)a->d->arena[MT_DEVICE_ARENA] + a->used - n;
}
/* Rows of heads as the model has them: nothing lies between. */
static void lay_out(struct attempt *a, struct mt_cuda *d, const struct mt_rec *r)
{
    struct mt_call *c = &a->call;
    *a = (struct attempt){.d = d, .call = {.op = r->op, .dtype = r->dtype}};
    memcpy(c->dim, r->dim, sizeof c->dim);
    memcpy(c->scalar, r->scalar, sizeof c->scalar);
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) {
        const struct mt_arg_info *f = &mt_op_info[c->op].arg[i];
        const int64_t n = elements(c, i), el = mt_dtype_bytes(type_of(c, i)), nd = (int64_t)strlen(f->shape);
        c->ld[i] = mt_dim(c, f->shape[nd - 1]);
        if (nd == 3) c->stride[i] = c->ld[i] * mt_dim(c, f->shape[1]) * el;
        c->bytes[i] = n * el;
        c->arg[i] = take(a, c->bytes[i]);
        if (f->dir == MT_OUT) a->other[i] = take(a, c->bytes[i]);
    }
}

static mt_status launched(const struct mt_call *c, cudaError_t failed, mt_err *e)
{
    MT_CUDA_TRY(failed, e, MT_DEVICE, "%s, tried out", mt_op_info[c->op].name);
    return MT_OK;
}
static mt_status by_cudnn(void *arg, mt_err *e)
{
    const struct attempt *a = arg;
    return mt_cuda_kernel[a->call.op](&a->d->queue[MT_COMPUTE], &a->call, e);
}
static mt_status by_own(void *arg, mt_err *e)
{
    const struct attempt *a = arg;
    struct mt_call c = a->call;
    for (int i = 0; i < mt_op_info[c.op].n_args; i++)
        if (a->other[i]) c.arg[i] = a->other[i];
    const struct mt_cuda_lane *q = &a->d->queue[MT_COMPUTE].lane;
    return launched(
        &c, c.op == MT_OP_attention_fwd ? mt_cuda_attention_fwd(&c, q) : mt_cuda_attention_bwd(&c, q), e);
}

/* Two documents a sequence, of a third and two thirds of it. */
static mt_status fill_documents(const struct attempt *a, int32_t *to, mt_err *e)
{
    const int64_t n = mt_dim(&a->call, 'N'), rows = mt_sdpa_rows(&a->call);
    enum { AT_ONCE = 1024 };
    int32_t some[AT_ONCE];
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int64_t m = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (int64_t k = 0; k < m; k++) {
            const int64_t at = (i + k) % rows;
            some[k] = (int32_t)(i + k - at + (at >= rows / 3 ? rows / 3 : 0));
        }
        MT_CUDA_TRY(cudaMemcpy(to + i, some, (size_t)m * sizeof *some, cudaMemcpyHostToDevice), e, MT_DEVICE,
                    "filling a start-up test");
    }
    return MT_OK;
}
/* Inputs at random; for the gradients, an output and sums of its own from our own kernel. */
static mt_status fill(const struct attempt *a, mt_err *e)
{
    const struct mt_call *c = &a->call;
    const struct mt_cuda_lane *q = &a->d->queue[MT_COMPUTE].lane;
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) {
        if (mt_op_info[c->op].arg[i].dir != MT_IN) continue;
        if (type_of(c, i) == MT_BF16)
            MT_TRY(
                launched(c, mt_cuda_noise(c->arg[i], elements(c, i), (uint32_t)i * 977 + 1, q->stream), e));
        if (type_of(c, i) == MT_I32) MT_TRY(fill_documents(a, c->arg[i], e));
    }
    if (c->op == MT_OP_attention_fwd) return MT_OK;
    struct mt_call fwd = {.op = MT_OP_attention_fwd, .dtype = c->dtype};
    static const int from[] = {4, 5, 6, 7, 8, 9}; /* o, lse, q, k, v, begin */
    memcpy(fwd.dim, c->dim, sizeof fwd.dim);
    memcpy(fwd.scalar, c->scalar, sizeof fwd.scalar);
    for (int i = 0; i < 6; i++)
        fwd.arg[i] = c->arg[from[i]], fwd.ld[i] = c->ld[from[i]], fwd.stride[i] = c->stride[from[i]];
    return launched(c, mt_cuda_attention_fwd(&fwd, q), e);
}
/* The largest relative distance of an output; NaN if there is one. */
static mt_status distance(const struct attempt *a, double *most, mt_err *e)
{
    const struct mt_call *c = &a->call;
    const struct mt_cuda_queue *q = &a->d->queue[MT_COMPUTE];
    double part[2 * MT_COMPARE_PARTS];
    *most = 0;
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) {
        double sum[2] = {0, 0};
        if (!a->other[i]) continue;
        MT_TRY(launched(c,
                        mt_cuda_apart(q->lane.scratch, c->arg[i], a->other[i], elements(c, i), type_of(c, i),
                                      q->lane.stream),
                        e));
        MT_CUDA_TRY(
            cudaMemcpyAsync(part, q->lane.scratch, sizeof part, cudaMemcpyDeviceToHost, q->lane.stream), e,
            MT_DEVICE, "comparing attention");
        MT_CUDA_TRY(cudaStreamSynchronize(q->lane.stream), e, MT_DEVICE, "comparing attention");
        for (int k = 0; k < 2 * MT_COMPARE_PARTS; k++) sum[k % 2] += part[k];
        const double far = sqrt(sum[0] / sum[1]);
        if (!(far <= *most)) *most = far;
    }
    return MT_OK;
}

struct outcome {
    double far, cudnn_ms, own_ms;
};
static mt_status try_out(struct attempt *a, struct outcome *o, mt_err *e)
{
    struct timer t;
    mt_status status = timer_open(&t, a->d->queue[MT_COMPUTE].lane.stream, e);
    if (!status) status = fill(a, e);
    if (!status) status = timed(&t, by_cudnn, a, &o->cudnn_ms, e);
    if (!status) status = timed(&t, by_own, a, &o->own_ms, e);
    if (!status) status = distance(a, &o->far, e);
    timer_close(&t);
    return status;
}
/* Takes cuDNN for the shape, or tells why not. Only what a GPU itself cannot do is an error. */
static mt_status choose_attention(struct mt_cuda *d, struct mt_sdpa *sdpa, const struct mt_rec *r,
                                  struct mt_chosen *chosen, mt_err *e)
{
    static const double most_far = 1.5e-2; /* both round to bf16 inside, at other places */
    struct attempt a;
    struct outcome o = {0};
    mt_err why = {0};
    const char *name = mt_op_info[r->op].name;
    lay_out(&a, d, r);
    if (a.used > d->ctx->ledger->size[MT_DEVICE_ARENA]) {
        mt_chosen_add(chosen, "%s: own (no room to compare cuDNN's)", name);
        return MT_OK;
    }
    if (mt_sdpa_prepare(sdpa, &a.call, d->queue[MT_COMPUTE].lane.scratch_bytes, &why)) {
        mt_chosen_add(chosen, "%s: own (cuDNN: %s)", name, why.msg);
        return MT_OK;
    }
    MT_TRY(try_out(&a, &o, e));
    if (!(o.far <= most_far)) {
        mt_sdpa_forget(sdpa, &a.call);
        mt_chosen_add(chosen, "%s: own (cuDNN's differs by %.2g of its norm)", name, o.far);
        return MT_OK;
    }
    mt_chosen_add(chosen, "%s: cuDNN %d (%.3f ms; own %.3f ms, apart %.1g)", name, mt_sdpa_version(sdpa),
                  o.cudnn_ms, o.own_ms, o.far);
    return MT_OK;
}

static bool is_attention(const struct mt_rec *r)
{
    return r->op == MT_OP_attention_fwd || r->op == MT_OP_attention_bwd;
}
static bool same(const struct mt_rec *a, const struct mt_rec *b)
{
    return a->op == b->op && a->dtype == b->dtype && !memcmp(a->dim, b->dim, sizeof a->dim);
}
static const struct mt_rec_arg *arg_of(const struct mt_recording *q, const struct mt_rec *r, int place)
{
    for (int i = 0; i < r->n_args; i++)
        if (q->arg[r->arg + (uint32_t)i].place == place) return &q->arg[r->arg + (uint32_t)i];
    return NULL;
}
/* What the step writes the beginnings of windows to; NULL: no layer has one. */
static const struct mt_rec_arg *windows_of(const struct mt_recording *q)
{
    for (int64_t i = 0; i < q->n; i++)
        if (q->rec[i].op == MT_OP_window_begin) return arg_of(q, &q->rec[i], 0);
    return NULL;
}
static bool has_window(const struct mt_recording *q, const struct mt_rec_arg *windows, const struct mt_rec *r)
{
    const struct mt_rec_arg *begin = arg_of(q, r, r->op == MT_OP_attention_bwd ? 9 : 5);
    return windows && begin && begin->row == windows->row && begin->off >= windows->off &&
           begin->off < windows->off + windows->bytes;
}
/* Records of one kind get one choice. */
static bool alike(const struct mt_recording *q, const struct mt_rec_arg *windows, const struct mt_rec *a,
                  const struct mt_rec *b)
{
    return is_attention(a) && same(a, b) && has_window(q, windows, a) == has_window(q, windows, b);
}
mt_status mt_cuda_prepare(struct mt_cuda *d, struct mt_sdpa *sdpa, const struct mt_recording *q,
                          struct mt_chosen *chosen, mt_err *e)
{
    cudaSetDevice(d->device);
    MT_TRY(choose_copies(d, chosen, e));
    const struct mt_rec_arg *windows = windows_of(q);
    for (int64_t i = 0; i < q->n && sdpa; i++) {
        const struct mt_rec *r = &q->rec[i];
        int64_t before = 0;
        if (!is_attention(r)) continue;
        while (before < i && !alike(q, windows, &q->rec[before], r)) before++;
        if (before < i) continue;
        if (has_window(q, windows, r))
            mt_chosen_add(chosen, "%s: own (a window)", mt_op_info[r->op].name);
        else
            MT_TRY(choose_attention(d, sdpa, r, chosen, e));
    }
    return MT_OK;
}
