/* device_cuda.h: the device "cuda": a rank's streams as CUDA streams, its ledger's rows in one device and
 * one pinned host arena. */
#ifndef MT_CUDA_DEVICE_CUDA_H
#define MT_CUDA_DEVICE_CUDA_H
#include "base/status.h"
#include "device/device.h"
#include "device/record.h"

extern const struct mt_device_ops mt_device_cuda;

struct mt_cuda_options {
    int device;            /* index among the visible ones */
    int64_t scratch_bytes; /* of device memory a stream, for libraries; a multiple of 256 */
};

/* One rank's part. Streams, events and memory are made here; a step makes nothing. */
struct mt_cuda;
/* Opens the device for a laid-out ledger and joins it to ctx: arenas and state; the step may then be run.
 * `step`, if not NULL, is the record of what will be run: an op in it that this device lacks is an error
 * that names it (DEVICE). NOFIT: the arenas do not fit; DEVICE: no driver, no such device, no cuBLASLt.
 * ctx stays as it was on error. */
MT_MUST_USE mt_status mt_cuda_open(struct mt_cuda **cuda, struct mt_ctx *ctx, const struct mt_recording *step,
                                   const struct mt_cuda_options *o, mt_err *e);
/* Waits for all streams, frees everything, takes the arenas from ctx. NULL is fine. */
void mt_cuda_close(struct mt_cuda *cuda);
/* Waits until everything enqueued is done. DEVICE: the first error of the step, or one that shows only
 * now. */
MT_MUST_USE mt_status mt_cuda_finish(struct mt_cuda *cuda, mt_err *e);

/* Ops of the table that this device does not have yet: their number; the first `max` names are put in
 * `name`. */
int mt_cuda_missing(const char **name, int max);
#endif
