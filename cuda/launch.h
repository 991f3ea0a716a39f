/* launch.h: how the ops of the table (src/device/op.def) reach a CUDA stream. */
#ifndef MT_CUDA_LAUNCH_H
#define MT_CUDA_LAUNCH_H
#include <cuda_runtime_api.h>

#include <stdbool.h>

#include "base/status.h"
#include "device/op.h"
#include "dnn_attention.h"
#include "gemm_lt.h"
#include "kernels.h"

enum { MT_CUDA_READ_BYTES = 64 << 10 }; /* the largest host read */

/* What a launch may use: one a stream, so that what it uses is ordered by the stream. */
struct mt_cuda_queue {
    struct mt_cuda_lane lane;
    struct mt_lt *lt;
    struct mt_sdpa *sdpa; /* NULL: our own attention alone */
    bool down_by_kernel;  /* copies to the host by a kernel: it was the faster one */
    void *pinned; /* MT_CUDA_READ_BYTES of host memory, where a read lands */
};

/* Enqueues one op. DEVICE: CUDA or cuBLASLt refused. */
typedef mt_status mt_cuda_launch(const struct mt_cuda_queue *q, const struct mt_call *c, mt_err *e);

/* By op; NULL: a collective. */
extern mt_cuda_launch *const mt_cuda_kernel[MT_N_OPS];
#endif
