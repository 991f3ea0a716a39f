/* Graphs: what is given to a capturing stream becomes nodes, with what each depends on; a launch gives them all to queues of the
 * graph's own, one for each stream that was captured, so that ThreadSanitizer takes what no edge orders for a race. */
#include "graph.h"

#include <algorithm>
#include <pthread.h>

using namespace cuemu;

struct CUgraphNode_st {
    const char *name;
    std::function<bool()> run;
    std::vector<size_t> deps;
    size_t queue; /* which of the captured streams it was given to */
};
struct CUgraph_st {
    std::vector<CUgraphNode_st> nodes;
    std::vector<const void *> pools; /* of the captured streams */
};
struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<cudaStream_t> queue;
    Ref last; /* of the launch before: one at a time */
};
namespace cuemu
{
struct Capture {
    CUgraph_st graph;
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    pthread_t by;
    std::vector<CUstream_st *> members;
    bool broken = false;
};

namespace
{
std::vector<Capture *> captures; /* under way */
unsigned long long launches;
}

void capture_add(CUstream_st *s, const char *name, std::function<bool()> run)
{
    Capture *c = s->capture;
    const size_t queue = (size_t)(std::find(c->members.begin(), c->members.end(), s) - c->members.begin());
    c->graph.nodes.push_back({name, std::move(run), s->tail, queue});
    s->tail = {c->graph.nodes.size() - 1};
}
cudaError_t capture_break(CUstream_st *s, cudaError_t why)
{
    if (s->capture) s->capture->broken = true;
    return err(why);
}
cudaError_t capture_refuses()
{
    cudaError_t e = cudaSuccess;
    for (auto *c : captures) {
        const bool here = pthread_equal(c->by, pthread_self());
        if (c->mode == cudaStreamCaptureModeRelaxed || (c->mode == cudaStreamCaptureModeThreadLocal && !here)) continue;
        e = capture_break(c->origin, cudaErrorStreamCaptureUnsupported);
    }
    return e;
}
cudaError_t capture_wait(CUstream_st *s, const CUevent_st *e)
{
    if (!e->capture) return s->capture ? capture_break(s, cudaErrorStreamCaptureIsolation) : cudaSuccess;
    if (s->capture && s->capture != e->capture) return capture_break(s, cudaErrorStreamCaptureMerge);
    if (!s->capture) {
        s->capture = e->capture;
        s->capture->members.push_back(s);
        s->tail.clear();
    }
    for (size_t n : e->nodes)
        if (std::find(s->tail.begin(), s->tail.end(), n) == s->tail.end()) s->tail.push_back(n);
    return cudaSuccess;
}
} // namespace cuemu

namespace
{
/* Whether all nodes of a joined stream are behind the origin's last. */
bool joined(const Capture *c)
{
    std::vector<bool> before(c->graph.nodes.size());
    std::vector<size_t> left = c->origin->tail;
    while (!left.empty()) {
        const size_t n = left.back();
        left.pop_back();
        if (before[n]) continue;
        before[n] = true;
        left.insert(left.end(), c->graph.nodes[n].deps.begin(), c->graph.nodes[n].deps.end());
    }
    return std::all_of(before.begin(), before.end(), [](bool b) { return b; });
}
cudaError_t outcome(const Capture *c)
{
    if (c->broken) return cudaErrorStreamCaptureInvalidated;
    if (c->mode == cudaStreamCaptureModeThreadLocal && !pthread_equal(c->by, pthread_self()))
        return cudaErrorStreamCaptureWrongThread;
    return joined(c) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}
} // namespace

extern "C" {
unsigned long long cuemu_graph_launches(void)
{
    Lock l(mu);
    return launches;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    Lock l(mu);
    CUstream_st *on = stream_of(s);
    if (is_legacy(on)) return err(cudaErrorStreamCaptureUnsupported);
    if (on->capture) return err(cudaErrorIllegalState);
    on->capture = new Capture{{}, on, mode, pthread_self(), {on}};
    on->tail.clear();
    captures.push_back(on->capture);
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *is)
{
    Lock l(mu);
    const Capture *c = stream_of(s)->capture;
    *is = !c          ? cudaStreamCaptureStatusNone
          : c->broken ? cudaStreamCaptureStatusInvalidated
                      : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
/* Events that were recorded meanwhile mean nothing afterwards. */
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    Lock l(mu);
    Capture *c = stream_of(s)->capture;
    *g = nullptr;
    if (!c) return err(cudaErrorIllegalState);
    if (c->origin != s) return capture_break(s, cudaErrorStreamCaptureUnmatched);
    const cudaError_t e = outcome(c);
    for (auto *m : c->members) m->capture = nullptr;
    forget_capture(c);
    captures.erase(std::find(captures.begin(), captures.end(), c));
    if (!e) {
        for (auto *m : c->members) c->graph.pools.push_back(m->pool);
        *g = new CUgraph_st(std::move(c->graph));
    }
    delete c;
    return err(e);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n)
{
    Lock l(mu);
    if (nodes)
        for (size_t i = 0; i < *n; i++) nodes[i] = i < g->nodes.size() ? &g->nodes[i] : nullptr;
    else
        *n = g->nodes.size();
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
    Lock l(mu);
    if (flags) return err(cudaErrorInvalidValue);
    if (*env("CUEMU_NO_GRAPHS", "")) return err(cudaErrorMemoryAllocation);
    *x = new CUgraphExec_st;
    (*x)->graph = *g;
    for (auto *pool : g->pools) {
        cudaStream_t q;
        cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking);
        q->pool = pool;
        (*x)->queue.push_back(q);
    }
    return cudaSuccess;
}
/* Its work begins behind what the stream has, and what the stream gets is behind all of it. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    Lock l(mu);
    if (stream_of(s)->capture) return capture_break(s, cudaErrorStreamCaptureUnsupported);
    const std::vector<CUgraphNode_st> &nodes = x->graph.nodes;
    std::vector<Ref> made;
    launches++;
    if (x->last) stream_of(s)->waits.push_back(x->last);
    const Ref begin = add(s, "graph", nullptr);
    for (auto &n : nodes) {
        CUstream_st *q = stream_of(x->queue[n.queue]);
        q->waits.push_back(begin);
        for (size_t d : n.deps) q->waits.push_back(made[d]);
        made.push_back(add(q, n.name, n.run));
    }
    for (auto &m : made) stream_of(s)->waits.push_back(m);
    x->last = add(s, "graph's end", nullptr);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    Lock l(mu);
    for (auto &q : x->queue) cudaStreamDestroy(q);
    delete x;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}
}
