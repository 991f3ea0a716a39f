/* When operations of a traced step ran: three events an operation, made before the step, read after it. */
#include <stdlib.h>

#include "device/timeline.h"
#include "device_core.h"

struct mt_cuda_times {
    cudaEvent_t anchor;
    int64_t anchor_ns; /* the host's clock when it came */
    int64_t n;         /* records there are events for */
    cudaEvent_t *event[MT_CUDA_NOTES];
};

void mt_cuda_times_close(struct mt_cuda *d)
{
    struct mt_cuda_times *t = d->times;
    if (!t) return;
    for (int k = 0; k < MT_CUDA_NOTES; k++) {
        for (int64_t i = 0; t->event[k] && i < t->n; i++)
            if (t->event[k][i]) cudaEventDestroy(t->event[k][i]);
        free(t->event[k]);
    }
    if (t->anchor) cudaEventDestroy(t->anchor);
    free(t);
    d->times = NULL;
}

static mt_status times_open(struct mt_cuda *d, int64_t n, mt_err *e)
{
    struct mt_cuda_times *t = d->times = calloc(1, sizeof *t);
    MT_REQUIRE(t, e, MT_IO, "tracing: no memory for %zu bytes", sizeof *t);
    t->n = n;
    MT_CUDA_TRY(cudaEventCreate(&t->anchor), e, MT_DEVICE, "making an event for the trace");
    for (int k = 0; k < MT_CUDA_NOTES; k++) {
        t->event[k] = calloc((size_t)n + 1, sizeof *t->event[k]);
        MT_REQUIRE(t->event[k], e, MT_IO, "tracing: no memory for %lld events", (long long)n);
        for (int64_t i = 0; i < n; i++)
            MT_CUDA_TRY(cudaEventCreate(&t->event[k][i]), e, MT_DEVICE, "making %lld events for the trace",
                        (long long)n);
    }
    return MT_OK;
}

/* The device is idle: its clock and the host's meet at the anchor. */
mt_status mt_cuda_times_begin(struct mt_cuda *d, mt_err *e)
{
    struct mt_times *times = d->ctx->times;
    if (!times) return MT_OK;
    cudaSetDevice(d->device);
    if (!d->times || d->times->n < times->q.cap) {
        mt_cuda_times_close(d);
        MT_TRY(times_open(d, times->q.cap, e));
    }
    MT_CUDA_TRY(cudaEventRecord(d->times->anchor, d->queue[MT_COMPUTE].lane.stream), e, MT_DEVICE,
                "recording the trace's first event");
    MT_CUDA_TRY(cudaEventSynchronize(d->times->anchor), e, MT_DEVICE, "waiting for the trace's first event");
    d->times->anchor_ns = times->host_since = mt_now_ns();
    return MT_OK;
}

mt_status mt_cuda_note(struct mt_cuda *d, int stream, enum mt_cuda_note what, mt_err *e)
{
    const int64_t i = mt_times_place(d->ctx);
    if (i < 0 || !d->times) return MT_OK;
    MT_CUDA_TRY(cudaEventRecord(d->times->event[what][i], d->queue[stream].lane.stream), e, MT_DEVICE,
                "recording an event for the trace");
    return MT_OK;
}

static mt_status read_clock(const struct mt_cuda_times *t, cudaEvent_t event, int64_t *ns, mt_err *e)
{
    float ms = 0;
    MT_CUDA_TRY(cudaEventElapsedTime(&ms, t->anchor, event), e, MT_DEVICE, "reading an event of the trace");
    *ns = t->anchor_ns + (int64_t)((double)ms * 1e6);
    return MT_OK;
}
mt_status mt_cuda_times_end(struct mt_cuda *d, mt_err *e)
{
    struct mt_times *times = d->ctx->times;
    const struct mt_cuda_times *t = d->times;
    if (!times || !t) return MT_OK;
    cudaSetDevice(d->device);
    for (int64_t i = 0; i < times->q.n; i++) {
        const uint16_t op = times->q.rec[i].op;
        MT_TRY(read_clock(t, t->event[MT_CUDA_BEGIN][i], &times->begin[i], e));
        MT_TRY(read_clock(t, t->event[MT_CUDA_END][i], &times->end[i], e));
        if (op < MT_N_OPS && mt_op_info[op].kind == MT_COMM)
            MT_TRY(read_clock(t, t->event[MT_CUDA_MOVES][i], &times->ready[i], e));
    }
    return MT_OK;
}
