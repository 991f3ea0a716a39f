#include "device/timeline.h"
#include "device_core.h"
#include "graphs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mt_status mt_cuda_failed(mt_err *e, mt_status code, cudaError_t why, const char *fmt, ...)
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

/* What the kernels take for granted, against what the layout was made for. */
static mt_status check_target(const struct mt_target *t, const struct mt_ledger *g, mt_err *e)
{
    const struct mt_target own = {"cuda/sm90", 256, 1, 1, 1, true, 0, true};
    MT_REQUIRE(!strcmp(t->name, own.name) && t->align == own.align && t->panel == own.panel &&
                   t->k_align_f32 == own.k_align_f32 && t->k_align_bf16 == own.k_align_bf16 &&
                   t->one_form == own.one_form && t->scratch == own.scratch &&
                   t->row_pad_bytes == own.row_pad_bytes,
               e, MT_INTERNAL,
               "opening the cuda device: laid out for the target %s with rows at multiples of %lld and "
               "weights in panels of "
               "%d, and the device has %s, %lld and %d",
               t->name, (long long)t->align, t->panel, own.name, (long long)own.align, own.panel);
    MT_REQUIRE(g->align == own.align, e, MT_INTERNAL,
               "opening the cuda device: rows at multiples of %lld, not %lld", (long long)g->align,
               (long long)own.align);
    return MT_OK;
}

static mt_status choose_device(struct mt_cuda *d, int index, mt_err *e)
{
    int n = 0, major = 0, minor = 0;
    MT_CUDA_TRY(cudaGetDeviceCount(&n), e, MT_DEVICE, "looking for CUDA devices");
    MT_REQUIRE(index >= 0 && index < n, e, MT_DEVICE, "opening CUDA device %d: there are %d", index, n);
    MT_CUDA_TRY(cudaSetDevice(index), e, MT_DEVICE, "opening CUDA device %d", index);
    MT_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), e, MT_DEVICE,
                "asking CUDA device %d what it is", index);
    MT_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), e, MT_DEVICE,
                "asking CUDA device %d what it is", index);
    MT_REQUIRE(
        major == 9 && minor == 0, e, MT_DEVICE,
        "CUDA device %d has compute capability %d.%d; the kernels are built for 9.0 (H100, H200, GH200)",
        index, major, minor);
    d->device = index;
    return MT_OK;
}

static mt_status carrier_open(struct mt_cuda *d, mt_err *e)
{
    MT_REQUIRE(&mt_carrier_nccl, e, MT_DEVICE,
               "joining several processes: this program was built without NCCL");
    MT_TRY(mt_carrier_nccl.open(&d->carrier, e));
    return mt_cuda_stand_open(&d->stand, e);
}

static mt_status arenas_open(struct mt_cuda *d, const struct mt_ledger *g, mt_err *e)
{
    const long long device = g->size[MT_DEVICE_ARENA], host = g->size[MT_HOST_ARENA];
    size_t unused = 0, total = 0;
    cudaError_t failed = cudaSuccess;
    MT_CUDA_TRY(cudaMemGetInfo(&unused, &total), e, MT_DEVICE, "asking CUDA device %d for its memory",
                d->device);
    if (device && !d->carrier) failed = cudaMalloc(&d->arena[MT_DEVICE_ARENA], (size_t)device);
    if (device && d->carrier &&
        !mt_carrier_nccl.alloc(d->carrier, &d->arena[MT_DEVICE_ARENA], (size_t)device))
        failed = cudaErrorMemoryAllocation;
    MT_CUDA_TRY(failed, e, MT_NOFIT,
                "allocating the device arena, %lld bytes, of which device %d has %zu free of %zu", device,
                d->device, unused, total);
    if (host)
        MT_CUDA_TRY(cudaHostAlloc(&d->arena[MT_HOST_ARENA], (size_t)host, cudaHostAllocDefault), e, MT_NOFIT,
                    "allocating the pinned host arena, %lld bytes", host);
    return MT_OK;
}

static mt_status event_open(cudaEvent_t *event, int stream, mt_err *e)
{
    MT_CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming), e, MT_DEVICE,
                "making an event of stream %s", mt_stream_name(stream));
    return MT_OK;
}
/* The ledger's row, or, where it has none, as many bytes as were asked for. */
static mt_status scratch_open(struct mt_cuda *d, const struct mt_ctx *ctx, int64_t bytes, mt_err *e)
{
    struct mt_cuda_lane *lane = &d->queue[MT_COMPUTE].lane;
    const mt_view v = ctx->scratch;
    if (mt_view_given(v)) {
        lane->scratch = (char *)d->arena[MT_DEVICE_ARENA] + ctx->ledger->row[v.row].off + v.off;
        lane->scratch_bytes = (size_t)v.bytes;
        return MT_OK;
    }
    if (bytes)
        MT_CUDA_TRY(cudaMalloc(&d->scratch, (size_t)bytes), e, MT_NOFIT, "allocating %lld bytes of scratch",
                    (long long)bytes);
    lane->scratch = d->scratch;
    lane->scratch_bytes = (size_t)bytes;
    return MT_OK;
}
static mt_status queue_open(struct mt_cuda *d, int i, mt_err *e)
{
    struct mt_cuda_queue *q = &d->queue[i];
    q->lt = d->lt;
    MT_CUDA_TRY(cudaStreamCreateWithFlags(&q->lane.stream, cudaStreamNonBlocking), e, MT_DEVICE,
                "making the stream %s", mt_stream_name(i));
    MT_CUDA_TRY(cudaHostAlloc(&q->pinned, MT_CUDA_READ_BYTES, cudaHostAllocDefault), e, MT_NOFIT,
                "allocating %d pinned bytes for host reads", MT_CUDA_READ_BYTES);
    for (int k = 0; k < MT_CUDA_EVENTS; k++) {
        d->mark[i][k] = (unsigned short)k;
        MT_TRY(event_open(&d->event[i][k], i, e));
    }
    for (int k = 0; k < 2; k++) MT_TRY(event_open(&d->meet[i][k], i, e));
    return MT_OK;
}

static mt_status open_all(struct mt_cuda *d, const struct mt_ctx *ctx, const struct mt_cuda_options *o,
                          mt_err *e)
{
    MT_TRY(choose_device(d, o->device, e));
    MT_TRY(mt_lt_open(&d->lt, e));
    MT_TRY(mt_cuda_host_open(&d->host, o->host_threads, e));
    if (o->several) MT_TRY(carrier_open(d, e));
    MT_TRY(arenas_open(d, ctx->ledger, e));
    MT_CUDA_TRY(cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking), e, MT_DEVICE,
                "making the stream of copies to and from the host");
    /* Only the compute stream's ops need scratch. */
    MT_TRY(scratch_open(d, ctx, o->scratch_bytes, e));
    for (int i = 0; i < MT_N_STREAMS; i++) MT_TRY(queue_open(d, i, e));
    return MT_OK;
}

mt_status mt_cuda_open(struct mt_cuda **cuda, struct mt_ctx *ctx, const struct mt_target *target,
                       const struct mt_cuda_options *o, mt_err *e)
{
    *cuda = NULL;
    MT_TRY(check_target(target, ctx->ledger, e));
    struct mt_cuda *d = calloc(1, sizeof *d);
    MT_REQUIRE(d, e, MT_IO, "opening the cuda device: no memory for %zu bytes", sizeof *d);
    mt_status status = open_all(d, ctx, o, e);
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

static void queue_close(struct mt_cuda *d, int i)
{
    for (int k = 0; k < MT_CUDA_EVENTS; k++)
        if (d->event[i][k]) cudaEventDestroy(d->event[i][k]);
    for (int k = 0; k < 2; k++)
        if (d->meet[i][k]) cudaEventDestroy(d->meet[i][k]);
    cudaFreeHost(d->queue[i].pinned);
    if (d->queue[i].lane.stream) cudaStreamDestroy(d->queue[i].lane.stream);
}

static void device_arena_close(struct mt_cuda *d)
{
    if (d->carrier)
        mt_carrier_nccl.free(d->carrier, d->arena[MT_DEVICE_ARENA]);
    else
        cudaFree(d->arena[MT_DEVICE_ARENA]);
    if (d->carrier) mt_carrier_nccl.close(d->carrier);
}

/* Errors are of no use here: what can be freed is freed. */
void mt_cuda_close(struct mt_cuda *d)
{
    if (!d) return;
    cudaSetDevice(d->device);
    if (d->carrier && d->ctx && d->ctx->err.code)
        mt_carrier_nccl.abort(d->carrier, d->ctx->err.code); /* else streams wait for ever */
    for (int i = 0; i < MT_N_STREAMS; i++)
        if (d->queue[i].lane.stream) cudaStreamSynchronize(d->queue[i].lane.stream);
    mt_cuda_graphs_close(d);
    if (d->carrier) mt_carrier_nccl.part(d->carrier);
    mt_cuda_stand_close(d->stand);
    for (int i = 0; i < MT_N_STREAMS; i++) queue_close(d, i);
    cudaFree(d->scratch);
    mt_cuda_times_close(d);
    if (d->copies) cudaStreamDestroy(d->copies);
    mt_lt_close(d->lt);
    mt_fiber_close(&d->fiber);
    mt_cuda_host_close(d->host);
    cudaFreeHost(d->arena[MT_HOST_ARENA]);
    device_arena_close(d);
    if (d->ctx) {
        d->ctx->exec = NULL;
        for (int a = 0; a < MT_N_ARENAS; a++) d->ctx->arena[a] = NULL;
    }
    free(d);
}

/* ---- the step ---- */

/* The current device belongs to a thread. */
static struct mt_cuda *device_of(const struct mt_stream *s)
{
    struct mt_cuda *d = s->ctx->exec;
    cudaSetDevice(d->device);
    return d;
}

static void blame(const struct mt_stream *s)
{
    mt_err_while(&s->ctx->err, "rank %d, stream %s, operation %lld", s->ctx->rank, mt_stream_name(s->id),
                 (long long)s->seq);
}

mt_status mt_cuda_mark(struct mt_cuda *d, int stream, int64_t first, int64_t last, mt_err *e)
{
    const int at = (int)(last % MT_CUDA_EVENTS);
    MT_CUDA_TRY(cudaEventRecord(d->event[stream][at], d->queue[stream].lane.stream), e, MT_DEVICE,
                "recording an event");
    for (int64_t p = first; p <= last; p++)
        atomic_store_explicit(&d->mark[stream][p % MT_CUDA_EVENTS], (unsigned short)at, memory_order_relaxed);
    mt_cuda_stand_end(d, stream, last);
    return MT_OK;
}
/* Of the position just enqueued. */
static mt_status mark(struct mt_cuda *d, const struct mt_stream *s, mt_err *e)
{
    MT_TRY(mt_cuda_note(d, s->id, MT_CUDA_END, e));
    return mt_cuda_mark(d, s->id, s->seq, s->seq, e);
}

static mt_status enqueue_op(struct mt_cuda *d, const struct mt_stream *s, struct mt_call *c, const mt_view *v,
                            mt_err *e)
{
    const bool comm = mt_op_info[c->op].kind == MT_COMM;
    bool noted;
    for (int i = 0; i < mt_op_info[c->op].n_args; i++) c->arg[i] = mt_address(s->ctx, v[i]);
    MT_TRY(mt_cuda_graphs_note(d, s, c, &noted, e));
    if (noted) return MT_OK;
    MT_TRY(
        mt_cuda_stand_begin(d, s, c->op, (mt_event){0, 0}, comm ? mt_trace_last(&s->ctx->trace) : NULL, e));
    MT_TRY(mt_cuda_note(d, s->id, MT_CUDA_BEGIN, e));
    if (comm)
        MT_TRY(mt_cuda_collective(d, s, c, e));
    else if (s->id == MT_HOST && c->op != MT_OP_fresh && c->op != MT_OP_keep)
        MT_TRY(mt_cuda_host_op(d, s, c, e));
    else
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
    MT_TRY(mt_cuda_graphs_wait(d, s, ev, e));
    MT_TRY(mt_cuda_stand_begin(d, s, MT_OP_wait, ev, NULL, e));
    MT_TRY(mt_cuda_note(d, s->id, MT_CUDA_BEGIN, e));
    MT_CUDA_TRY(cudaStreamWaitEvent(d->queue[s->id].lane.stream, mt_cuda_event(d, ev.stream, ev.seq), 0), e,
                MT_DEVICE, "waiting for operation %lld of stream %s", (long long)ev.seq,
                mt_stream_name(ev.stream));
    return mark(d, s, e);
}

static void cuda_wait(struct mt_stream *s, mt_event ev)
{
    mt_err *e = &s->ctx->err;
    if (e->code) return;
    if (enqueue_wait(device_of(s), s, ev, e)) blame(s);
}

/* What lies behind a collective that was given up is worth nothing. */
static mt_status not_aborted(const struct mt_cuda *d, mt_err *e)
{
    const mt_status why = d->carrier ? mt_carrier_nccl.aborted(d->carrier) : MT_OK;
    MT_REQUIRE(!why, e, why, "the collectives under way were given up");
    return MT_OK;
}

static mt_status await(struct mt_cuda *d, const struct mt_stream *s, mt_err *e)
{
    mt_cuda_stand_waits(d, true);
    cudaError_t r = cudaEventSynchronize(mt_cuda_event(d, s->id, s->seq));
    mt_cuda_stand_waits(d, false);
    MT_CUDA_TRY(r, e, MT_DEVICE, "waiting for a host read");
    return not_aborted(d, e);
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
    if (ctx->times) mt_times_host_left(ctx->times, MT_LEFT_READ, kind, index);
    if (!ctx->err.code && await(d, s, &ctx->err)) blame(s);
    if (ctx->times) ctx->times->host_since = mt_now_ns();
    if (ctx->err.code)
        memset(dst, 0, (size_t)src.bytes);
    else
        memcpy(dst, d->queue[s->id].pinned, (size_t)src.bytes);
}

mt_status mt_cuda_finish(struct mt_cuda *d, mt_err *e)
{
    const mt_err *first = &d->ctx->err;
    MT_REQUIRE(!first->code, e, first->code, "%s", first->msg);
    cudaSetDevice(d->device);
    MT_TRY(mt_cuda_graphs_flush(d, e));
    for (int i = 0; i < MT_N_STREAMS; i++)
        MT_CUDA_TRY(cudaStreamSynchronize(d->queue[i].lane.stream), e, MT_DEVICE, "waiting for the stream %s",
                    mt_stream_name(i));
    return not_aborted(d, e);
}

static mt_status cuda_copy(const struct mt_ctx *ctx, void *to, const void *from, int64_t bytes, mt_err *e)
{
    const struct mt_cuda *d = ctx->exec;
    cudaSetDevice(d->device);
    if (!bytes) return MT_OK;
    MT_CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, d->copies), e, MT_DEVICE,
                "copying %lld bytes", (long long)bytes);
    MT_CUDA_TRY(cudaStreamSynchronize(d->copies), e, MT_DEVICE, "copying %lld bytes", (long long)bytes);
    return MT_OK;
}

const struct mt_device_ops mt_device_cuda = {"cuda", cuda_enqueue, cuda_wait, cuda_host_read, cuda_copy};
