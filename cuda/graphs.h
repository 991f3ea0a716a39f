/* graphs.h: CUDA graphs of the compute stream. A stretch is a run of its calls that nothing comes between: no wait, nothing that the
 * host waits for, no other stream that waits for one of them, no call whose scalars change from step to step or follow routed
 * counts. Which stretches a step has is known from its record: those that are worth it are planned. While a step is enqueued, calls
 * of a stretch are noted, and at its end given to the stream: as the graph that was captured of the same calls before, else one by
 * one. So the loop that enqueues is the one schedule, and whatever it does otherwise than planned runs as without graphs. */
#ifndef MT_CUDA_GRAPHS_H
#define MT_CUDA_GRAPHS_H
#include "device/record.h"
#include "device_core.h"

/* Which stretches become graphs. PAYS: those whose launches take the host longer than the device, by their flops and bytes. */
enum mt_cuda_graphs_which { MT_CUDA_GRAPHS_PAYS, MT_CUDA_GRAPHS_ALL };
struct mt_cuda_graphs_info {
    int64_t calls,
        planned_calls; /* of the compute stream that launch something; those in planned stretches */
    int64_t stretches; /* planned */
    int64_t left[4];   /* calls that are not, by why: MT_CUDA_LEFT_... */
};
enum { MT_CUDA_LEFT_COUNTS, MT_CUDA_LEFT_CHANGES, MT_CUDA_LEFT_SHORT, MT_CUDA_LEFT_LONG };

/* Plans the stretches of a step that enqueues q; from then on the rank's compute stream is given graphs. IO: no memory. */
MT_MUST_USE mt_status mt_cuda_graphs_open(struct mt_cuda *d, const struct mt_recording *q,
                                          enum mt_cuda_graphs_which which, struct mt_cuda_graphs_info *info,
                                          mt_err *e);
void mt_cuda_graphs_close(struct mt_cuda *d); /* streams are idle */

/* ---- while a step is enqueued; d->graphs may be NULL ---- */
/* Call c of stream s, its addresses known, is noted; false: it is to be enqueued at once. DEVICE: what had been noted failed. */
MT_MUST_USE mt_status mt_cuda_graphs_note(struct mt_cuda *d, const struct mt_stream *s,
                                          const struct mt_call *c, bool *noted, mt_err *e);
/* A stream is about to wait for ev. */
MT_MUST_USE mt_status mt_cuda_graphs_wait(struct mt_cuda *d, const struct mt_stream *s, mt_event ev,
                                          mt_err *e);
/* The stream has all that was noted. */
MT_MUST_USE mt_status mt_cuda_graphs_flush(struct mt_cuda *d, mt_err *e);

/* Why a stretch that was planned could not be captured, the first such; false: all could that came up. */
bool mt_cuda_graphs_refused(const struct mt_cuda *d, mt_err *why);
#endif
