#include "device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

/* Events of the last positions of a stream. A wait for an older one is a wait for the position that took
 * its event: a later one of the same stream, enqueued before the wait, so it may wait longer but never for
 * ever. */
enum { EVENTS = 256 };

struct mt_cuda {
    struct mt_ctx *ctx;
    int device;
    void *arena[MT_N_ARENAS];
    struct mt_cuda_queue queue[MT_N_STREAMS];
    cudaEvent_t event[MT_N_STREAMS][EVENTS]; /* position p is at p % EVENTS */
    struct mt_lt *lt;
};

#define CUDA_TRY(call, e, code, ...)                                           \
    do {                                                                       \
        cudaError_t cuda_error_ = (call);                                      \
        if (cuda_error_) return failed((e), (code), cuda_error_, __VA_ARGS__); \
    } while (0)

static MT_PRINTF(4, 5) mt_status failed(mt_err *e, mt_status code, cudaError_t why, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    (void)cudaGetLastError(); /* it is reported here; the next call shall not report it again */
    MT_FAIL(e, code, "%s: %s (%s)", what, cudaGetErrorString(why), cudaGetErrorName(why));
}

/* ---- set-up ---- */

int mt_cuda_missing(const char **name, int max)
{
    int n = 0;
    for (int op = 0; op < MT_N_OPS; op++) {
        if (mt_cuda_kernel[op]) continue;
        if (n < max) name[n] = mt_op_info[op].name;
        n++;
    }
    return n;
}

static mt_status check_step(const struct mt_recording *step, mt_err *e)
{
    bool named[MT_N_OPS] = {false};
    char list[512] = "";
    size_t used = 0;
    for (int64_t i = 0; step && i < step->n; i++) {
        int op = step->rec[i].op;
        if (op == MT_OP_wait || mt_cuda_kernel[op] || named[op]) continue;
        named[op] = true;
        int n = snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", mt_op_info[op].name);
        used = used + (size_t)n < sizeof list ? used + (size_t)n : sizeof list - 1;
    }
    MT_REQUIRE(
        !used, e, MT_DEVICE,
        "opening the cuda device: the step needs operations it does not have yet: %s; use the cpu device",
        list);
    return MT_OK;
}

static mt_status arenas_open(struct mt_cuda *d, const struct mt_ledger *g, mt_err *e)
{
    const long long device = g->size[MT_DEVICE_ARENA], host = g->size[MT_HOST_ARENA];
    size_t unused = 0, total = 0;
    CUDA_TRY(cudaMemGetInfo(&unused, &total), e, MT_DEVICE, "asking CUDA device %d for its memory",
             d->device);
    if (device)
        CUDA_TRY(cudaMalloc(&d->arena[MT_DEVICE_ARENA], (size_t)device), e, MT_NOFIT,
                 "allocating the device arena, %lld bytes, of which device %d has %zu free of %zu", device,
                 d->device, unused, total);
    if (host)
        CUDA_TRY(cudaHostAlloc(&d->arena[MT_HOST_ARENA], (size_t)host, cudaHostAllocDefault), e, MT_NOFIT,
                 "allocating the pinned host arena, %lld bytes", host);
    return MT_OK;
}

static mt_status queue_open(struct mt_cuda *d, int i, size_t scratch_bytes, mt_err *e)
{
    struct mt_cuda_queue *q = &d->queue[i];
    q->lt = d->lt;
    q->scratch_bytes = scratch_bytes;
    CUDA_TRY(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking), e, MT_DEVICE, "making stream %d",
             i);
    CUDA_TRY(cudaMalloc(&q->scratch, scratch_bytes), e, MT_NOFIT,
             "allocating %zu bytes of scratch for stream %d", scratch_bytes, i);
    CUDA_TRY(cudaHostAlloc(&q->pinned, MT_CUDA_READ_BYTES, cudaHostAllocDefault), e, MT_NOFIT,
             "allocating %d pinned bytes for host reads", MT_CUDA_READ_BYTES);
    for (int k = 0; k < EVENTS; k++)
        CUDA_TRY(cudaEventCreateWithFlags(&d->event[i][k], cudaEventDisableTiming), e, MT_DEVICE,
                 "making event %d of stream %d", k, i);
    return MT_OK;
}

static mt_status open_all(struct mt_cuda *d, const struct mt_ledger *g, const struct mt_cuda_options *o,
                          mt_err *e)
{
    int n = 0;
    CUDA_TRY(cudaGetDeviceCount(&n), e, MT_DEVICE, "looking for CUDA devices");
    MT_REQUIRE(o->device >= 0 && o->device < n, e, MT_DEVICE, "opening CUDA device %d: there are %d",
               o->device, n);
    CUDA_TRY(cudaSetDevice(o->device), e, MT_DEVICE, "opening CUDA device %d", o->device);
    d->device = o->device;
    MT_TRY(mt_lt_open(&d->lt, e));
    MT_TRY(arenas_open(d, g, e));
    for (int i = 0; i < MT_N_STREAMS; i++) MT_TRY(queue_open(d, i, (size_t)o->scratch_bytes, e));
    return MT_OK;
}

mt_status mt_cuda_open(struct mt_cuda **cuda, struct mt_ctx *ctx, const struct mt_recording *step,
                       const struct mt_cuda_options *o, mt_err *e)
{
    *cuda = NULL;
    MT_TRY(check_step(step, e));
    struct mt_cuda *d = calloc(1, sizeof *d);
    MT_REQUIRE(d, e, MT_IO, "opening the cuda device: no memory for %zu bytes", sizeof *d);
    mt_status status = open_all(d, ctx->ledger, o, e);
    if (status) {
        mt_cuda_close(d);
        return status;
    }
    d->ctx = ctx;
    ctx->exec = d;
    for (int a = 0; a < MT_N_ARENAS; a++) ctx->arena[a] = d->arena[a];
    *cuda = d;
    return MT_OK;
}

/* Errors are of no use here: what can be freed is freed. */
void mt_cuda_close(struct mt_cuda *d)
{
    if (!d) return;
    for (int i = 0; i < MT_N_STREAMS; i++)
        if (d->queue[i].stream) cudaStreamSynchronize(d->queue[i].stream);
    for (int i = 0; i < MT_N_STREAMS; i++) {
        for (int k = 0; k < EVENTS; k++)
            if (d->event[i][k]) cudaEventDestroy(d->event[i][k]);
        cudaFreeHost(d->queue[i].pinned);
        cudaFree(d->queue[i].scratch);
        if (d->queue[i].stream) cudaStreamDestroy(d->queue[i].stream);
    }
    mt_lt_close(d->lt);
    cudaFreeHost(d->arena[MT_HOST_ARENA]);
    cudaFree(d->arena[MT_DEVICE_ARENA]);
    if (d->ctx) {
        d->ctx->exec = NULL;
        for (int a = 0; a < MT_N_ARENAS; a++) d->ctx->arena[a] = NULL;
    }
    free(d);
}

/* ---- the step ---- */

/* Host code is a fiber that moves between threads, and the current device belongs to a thread. */
static struct mt_cuda *device_of(const struct mt_stream *s)
{
    struct mt_cuda *d = s->ctx->exec;
    cudaSetDevice(d->device);
    return d;
}

static void blame(const struct mt_stream *s)
{
    mt_err_while(&s->ctx->err, "rank %d, stream %d, operation %lld", s->ctx->rank, s->id, (long long)s->seq);
}

/* The event of the position just enqueued. */
static mt_status mark(struct mt_cuda *d, const struct mt_stream *s, mt_err *e)
{
    CUDA_TRY(cudaEventRecord(d->event[s->id][s->seq % EVENTS], d->queue[s->id].stream), e, MT_DEVICE,
             "recording an event");
    return MT_OK;
}

static mt_status enqueue_op(struct mt_cuda *d, const struct mt_stream *s, struct mt_call *c, const mt_view *v,
                            mt_err *e)
{
    MT_REQUIRE(mt_cuda_kernel[c->op], e, MT_DEVICE, "%s: the cuda device does not have this operation yet",
               mt_op_info[c->op].name);
    MT_REQUIRE(s->id != MT_HOST || c->op == MT_OP_fresh || c->op == MT_OP_keep, e, MT_DEVICE,
               "%s: the cuda device does not run the host's arithmetic yet; set optim.compute: device",
               mt_op_info[c->op].name);
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) c->arg[i] = mt_address(s->ctx, v[i]);
    MT_TRY(mt_cuda_kernel[c->op](&d->queue[s->id], c, e));
    return mark(d, s, e);
}

static void cuda_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    mt_err *e = &s->ctx->err;
    if (e->code) return;
    if (enqueue_op(device_of(s), s, c, v, e)) blame(s);
}

static mt_status enqueue_wait(struct mt_cuda *d, const struct mt_stream *s, mt_event ev, mt_err *e)
{
    CUDA_TRY(cudaStreamWaitEvent(d->queue[s->id].stream, d->event[ev.stream][ev.seq % EVENTS], 0), e,
             MT_DEVICE, "waiting for operation %lld of stream %d", (long long)ev.seq, ev.stream);
    return mark(d, s, e);
}

static void cuda_wait(struct mt_stream *s, mt_event ev)
{
    mt_err *e = &s->ctx->err;
    if (e->code) return;
    if (enqueue_wait(device_of(s), s, ev, e)) blame(s);
}

static mt_status await(struct mt_cuda *d, const struct mt_stream *s, mt_err *e)
{
    CUDA_TRY(cudaEventSynchronize(d->event[s->id][s->seq % EVENTS]), e, MT_DEVICE, "waiting for a host read");
    return MT_OK;
}

/* The op read_back, enqueued just before, copies to pinned memory. After an error the host gets zeros. */
static void cuda_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    struct mt_ctx *ctx = s->ctx;
    if (ctx->tape[kind]) {
        memcpy(dst, ctx->tape[kind] + index * src.bytes, (size_t)src.bytes);
        return;
    }
    struct mt_cuda *d = device_of(s);
    if (!ctx->err.code && await(d, s, &ctx->err)) blame(s);
    if (ctx->err.code)
        memset(dst, 0, (size_t)src.bytes);
    else
        memcpy(dst, d->queue[s->id].pinned, (size_t)src.bytes);
}

mt_status mt_cuda_finish(struct mt_cuda *d, mt_err *e)
{
    const mt_err *first = &d->ctx->err;
    MT_REQUIRE(!first->code, e, first->code, "%s", first->msg);
    for (int i = 0; i < MT_N_STREAMS; i++)
        CUDA_TRY(cudaStreamSynchronize(d->queue[i].stream), e, MT_DEVICE, "waiting for stream %d", i);
    return MT_OK;
}

const struct mt_device_ops mt_device_cuda = {"cuda", cuda_enqueue, cuda_wait, cuda_host_read};
