/* test: variants=cuemu */
/* Captured work: of two streams that events join, run again and again on what memory holds by then; what a capture does not bear.
 * Uses the CUDA runtime alone: under the emulator, and on a GPU, what a graph means is the same. */
#include <cuda_runtime_api.h>

#include "check.h"
#include "device_memory.h"
#include "wrappers.h"

enum { N = 256 };
struct work {
    cudaStream_t one, two;
    cudaEvent_t fork, join;
    float *x, *y, *z; /* on the device */
    float *pinned, *out;
};
static void work_open(struct work *w)
{
    *w = (struct work){
        .x = device_new(NULL, N * 4), .y = device_new(NULL, N * 4), .z = device_new(NULL, N * 4)};
    CHECK(!cudaStreamCreateWithFlags(&w->one, cudaStreamNonBlocking));
    CHECK(!cudaStreamCreateWithFlags(&w->two, cudaStreamNonBlocking));
    CHECK(!cudaEventCreateWithFlags(&w->fork, cudaEventDisableTiming));
    CHECK(!cudaEventCreateWithFlags(&w->join, cudaEventDisableTiming));
    CHECK(!cudaMallocHost((void **)&w->pinned, N * 4));
    CHECK(!cudaMallocHost((void **)&w->out, N * 4));
}
static void work_close(struct work *w)
{
    CHECK(!cudaDeviceSynchronize());
    cudaStreamDestroy(w->one), cudaStreamDestroy(w->two);
    cudaEventDestroy(w->fork), cudaEventDestroy(w->join);
    cudaFree(w->x), cudaFree(w->y), cudaFree(w->z);
    cudaFreeHost(w->pinned), cudaFreeHost(w->out);
    (void)cudaGetLastError();
}

/* one: x <- pinned, y = 2 x; two, behind that: z = 3 y; one, behind both: out <- z. */
static void capture(struct work *w, cudaGraph_t *g)
{
    enum cudaStreamCaptureStatus status;
    CHECK(!cudaStreamBeginCapture(w->one, cudaStreamCaptureModeThreadLocal));
    CHECK(!cudaMemcpyAsync(w->x, w->pinned, N * 4, cudaMemcpyHostToDevice, w->one));
    CHECK(!wrap_scale(w->y, w->x, 2, N, w->one));
    CHECK(!cudaEventRecord(w->fork, w->one));
    CHECK(!cudaStreamWaitEvent(w->two, w->fork, 0));
    CHECK(!wrap_scale(w->z, w->y, 3, N, w->two));
    CHECK(!cudaEventRecord(w->join, w->two));
    CHECK(!cudaStreamIsCapturing(w->two, &status) && status == cudaStreamCaptureStatusActive);
    CHECK(!cudaStreamWaitEvent(w->one, w->join, 0));
    CHECK(!cudaMemcpyAsync(w->out, w->z, N * 4, cudaMemcpyDeviceToHost, w->one));
    CHECK(!cudaStreamEndCapture(w->one, g));
    CHECK(!cudaStreamIsCapturing(w->two, &status) && status == cudaStreamCaptureStatusNone);
}
static int wrong(const struct work *w, float factor, float first)
{
    int n = 0;
    for (int i = 0; i < N; i++) n += !(w->out[i] == factor * (first + (float)i));
    return n;
}
static void fill(struct work *w, float first)
{
    for (int i = 0; i < N; i++) w->pinned[i] = first + (float)i;
}
TEST(two_streams)
{
    struct work w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    work_open(&w);
    fill(&w, 1);
    for (int i = 0; i < N; i++) w.out[i] = -1;
    capture(&w, &graph);
    CHECK(!cudaDeviceSynchronize());
    CHECK(w.out[0] == -1); /* nothing ran */
    CHECK(!cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK_INT(nodes, 4);
    CHECK(!cudaGraphInstantiate(&exec, graph, 0));
    CHECK(!cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        fill(&w, (float)(10 * i));
        CHECK(!cudaGraphLaunch(exec, w.two)); /* any stream */
        if (i == 1) CHECK(!cudaGraphLaunch(exec, w.one));
        if (i == 1) CHECK(!cudaStreamSynchronize(w.one));
        CHECK(!cudaStreamSynchronize(w.two));
        CHECK_INT(wrong(&w, 6, (float)(10 * i)), 0);
    }
    CHECK(!cudaGraphExecDestroy(exec));
    work_close(&w);
}

/* What comes behind a launch in its stream waits for all branches, and they for what came before it. */
TEST(in_its_stream)
{
    struct work w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    work_open(&w);
    fill(&w, 0);
    CHECK(!cudaStreamBeginCapture(w.two, cudaStreamCaptureModeThreadLocal));
    CHECK(!wrap_scale(w.z, w.y, 3, N, w.two));
    CHECK(!cudaStreamEndCapture(w.two, &graph));
    CHECK(!cudaGraphInstantiate(&exec, graph, 0));
    CHECK(!cudaMemcpyAsync(w.x, w.pinned, N * 4, cudaMemcpyHostToDevice, w.one));
    CHECK(!wrap_scale(w.y, w.x, 5, N, w.one));
    CHECK(!cudaGraphLaunch(exec, w.one));
    CHECK(!cudaMemcpyAsync(w.out, w.z, N * 4, cudaMemcpyDeviceToHost, w.one));
    CHECK(!cudaStreamSynchronize(w.one));
    CHECK_INT(wrong(&w, 15, 0), 0);
    CHECK(!cudaGraphExecDestroy(exec));
    CHECK(!cudaGraphDestroy(graph));
    work_close(&w);
}

static bool refused(cudaError_t got, cudaError_t want)
{
    (void)cudaGetLastError(); /* else the next launch reports it */
    return CHECK_INT(got, want);
}
/* Each call that fails, and whether the capture is worth something afterwards. */
TEST(refusals)
{
    struct work w;
    cudaGraph_t graph;
    void *p;
    work_open(&w);
    refused(cudaStreamEndCapture(w.one, &graph), cudaErrorIllegalState);

    CHECK(!cudaStreamBeginCapture(w.one, cudaStreamCaptureModeThreadLocal));
    refused(cudaStreamBeginCapture(w.one, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
    CHECK(!cudaEventRecord(w.fork, w.one));
    refused(cudaEventSynchronize(w.fork), cudaErrorCapturedEvent);
    CHECK(cudaStreamEndCapture(w.one, &graph) != cudaSuccess || !cudaGraphDestroy(graph));

    CHECK(!cudaStreamBeginCapture(w.one, cudaStreamCaptureModeThreadLocal));
    CHECK(!cudaEventRecord(w.fork, w.one));
    CHECK(!cudaStreamWaitEvent(w.two, w.fork, 0));
    CHECK(!wrap_scale(w.z, w.y, 3, N, w.two));
    refused(cudaStreamEndCapture(w.one, &graph), cudaErrorStreamCaptureUnjoined);

    CHECK(!cudaEventRecord(w.join, w.two));
    CHECK(!cudaStreamBeginCapture(w.one, cudaStreamCaptureModeThreadLocal));
    refused(cudaStreamWaitEvent(w.one, w.join, 0), cudaErrorStreamCaptureIsolation);
    refused(cudaStreamEndCapture(w.one, &graph), cudaErrorStreamCaptureInvalidated);

    CHECK(!cudaStreamBeginCapture(w.one, cudaStreamCaptureModeThreadLocal));
    refused(cudaStreamSynchronize(w.one), cudaErrorStreamCaptureUnsupported);
    refused(cudaStreamEndCapture(w.one, &graph), cudaErrorStreamCaptureInvalidated);

    CHECK(!cudaStreamBeginCapture(w.one, cudaStreamCaptureModeThreadLocal));
    refused(cudaMalloc(&p, 64), cudaErrorStreamCaptureUnsupported);
    refused(cudaStreamEndCapture(w.one, &graph), cudaErrorStreamCaptureInvalidated);
    work_close(&w);
}

int main(void)
{
    RUN(two_streams);
    RUN(in_its_stream);
    RUN(refusals);
    return DONE();
}
