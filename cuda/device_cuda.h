/* device_cuda.h: the device "cuda": a rank's streams as CUDA streams, its ledger's rows in one device and one pinned host
 * arena. */
#ifndef MT_CUDA_DEVICE_CUDA_H
#define MT_CUDA_DEVICE_CUDA_H
#include "base/status.h"
#include "device/device.h"
#include "device/target.h"

extern const struct mt_device_ops mt_device_cuda;

struct mt_cuda_options {
    int device;   /* index among the visible ones */
    bool several; /* this is one of several processes, to be joined */
    int host_threads; /* for the operations of MT_HOST; 0: as many as there are processors for this process */
    int64_t
        scratch_bytes; /* of device memory for the compute stream's kernels and libraries, where ctx->scratch is none; a multiple of 256 */
};
/* Enough for cuBLASLt's fastest algorithms on sm_90. */
enum { MT_CUDA_SCRATCH_BYTES = 32 << 20 };

/* One rank's part. Streams, events and memory are made here; a step makes nothing. */
struct mt_cuda;
/* Opens the device for a laid-out ledger and joins it to ctx: arenas and state; the step may then be run. `target` is what
 * the ledger was laid out for. INTERNAL: the target states what this device does not do. NOFIT: the arenas do not fit.
 * DEVICE: no driver, no such device, a device that the kernels are not built for, no cuBLASLt. ctx stays as it was on error. */
MT_MUST_USE mt_status mt_cuda_open(struct mt_cuda **cuda, struct mt_ctx *ctx, const struct mt_target *target,
                                   const struct mt_cuda_options *o, mt_err *e);
/* Waits for all streams, frees everything, takes the arenas from ctx. NULL is fine. */
void mt_cuda_close(struct mt_cuda *cuda);
/* Waits until everything enqueued is done. DEVICE: the first error of the step, or one that shows only now. */
MT_MUST_USE mt_status mt_cuda_finish(struct mt_cuda *cuda, mt_err *e);

/* Runs host(ctx, args[i]) for each of n opened ranks of this process to its end (args NULL: all get NULL), and waits for all
 * streams. Their contexts have their groups; the ranks' host code takes turns on the calling thread, and changes over where
 * one waits for the others at a collective. Stream positions start at 1. Returns the first failed rank's sticky error
 * (ctx->err); HANG: a collective's members never all came. After an error the ranks are fit only to be closed. */
MT_MUST_USE mt_status mt_cuda_run(struct mt_cuda *const cuda[], int n,
                                  void (*host)(struct mt_ctx *ctx, void *arg), void *const args[], mt_err *e);
#endif
