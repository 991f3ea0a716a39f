/* graph.h: streams and events, as far as captures have to do with them. */
#ifndef CUEMU_GRAPH_H
#define CUEMU_GRAPH_H
#include "runtime.h"

namespace cuemu
{
struct Capture;
}
struct CUstream_st {
    cuemu::Ref last;
    bool blocking = true;          /* synchronises with the legacy default stream */
    std::vector<cuemu::Ref> waits; /* events the next op waits for */
    void *tsan = nullptr;          /* made with the stream: a later one would know too much */
    cuemu::Capture *capture = nullptr; /* what it is given goes there, */
    std::vector<size_t> tail;          /* behind these nodes */
    const void *pool = this; /* whose fibers its kernels run on: a graph's queue has those of the captured stream, which are dear */
    CUstream_st()
    {
#if CUEMU_WITH_TSAN
        tsan = __tsan_create_fiber(0);
        __tsan_set_fiber_name(tsan, "cuda stream");
#endif
    }
};
struct CUevent_st {
    cuemu::Ref op;
    bool timing = true;
    cuemu::Capture *capture = nullptr; /* it was recorded there, */
    std::vector<size_t> nodes;         /* behind these nodes */
};

namespace cuemu
{
CUstream_st *stream_of(cudaStream_t s);
bool is_legacy(const CUstream_st *s);
void forget_capture(const Capture *c); /* by all events */
/* graph.cc. The stream captures: it has a node more. */
void capture_add(CUstream_st *s, const char *name, std::function<bool()> run);
/* The stream waits for the event, where one of the two has to do with a capture. */
cudaError_t capture_wait(CUstream_st *s, const CUevent_st *e);
/* A call that a capture does not bear: the capture is worth nothing any more. */
cudaError_t capture_break(CUstream_st *s, cudaError_t why);
/* Of calls that no capture of this thread bears, nor a global one of any: allocations, waits for the device. */
cudaError_t capture_refuses();
} // namespace cuemu
#endif
