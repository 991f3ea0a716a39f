/* carrier.h: what moves pieces between processes, each of which has one rank and one device: NCCL, where the program was built
 * with its headers. */
#ifndef MT_CUDA_CARRIER_H
#define MT_CUDA_CARRIER_H
#include <cuda_runtime_api.h>

#include "comm/job.h"
#include "device/device.h"
#include "device/move.h"

struct mt_carrier;
/* One collective as this process's member sees it: its place in the group, its moves with all n members. */
struct mt_carried {
    int group, stream, n, me;
    const struct mt_move *move;
    cudaStream_t on;
};
/* What went wrong with a communicator, found by looking. */
struct mt_carrier_fault {
    int group, stream; /* -1: of the world, which carries nothing itself */
    mt_err err;
};
struct mt_carrier_ops {
    /* What this machine has of it; false: why it cannot be used. */
    bool (*find)(char *what, size_t size);
    /* Opens the library. DEVICE. */
    mt_status (*open)(struct mt_carrier **c, mt_err *e);
    /* Memory of the current device that it moves to and from without copies of its own. */
    bool (*alloc)(struct mt_carrier *c, void **p, size_t bytes);
    void (*free)(struct mt_carrier *c, void *p); /* after part */
    /* Makes the communicators of a rank: for each group of it with several members, one a stream in used[group] (a bit each),
     * so that streams do not wait for each other; registers the device arena with each. All processes of the job call it
     * together and come to one status. RANKS: they have different versions, or one was lost; DEVICE. */
    mt_status (*join)(struct mt_carrier *c, const struct mt_job *job, const struct mt_ctx *ctx,
                      const uint8_t used[MT_MAX_GROUPS], mt_err *e);
    /* Enqueues a collective. May wait until the library has enqueued it, never for the device; the first time on a
     * communicator, for its peers. RANKS, DEVICE. */
    mt_status (*start)(struct mt_carrier *c, const struct mt_carried *x, mt_err *e);
    /* ---- by any thread, at any time between open and close ---- */
    /* Whether some communicator has failed by itself: which. */
    bool (*look)(struct mt_carrier *c, struct mt_carrier_fault *fault);
    /* Ends whatever is under way, as it is: streams go on, and what they find is worth nothing. why: what calls fail with
     * from now on; the first counts. */
    void (*abort)(struct mt_carrier *c, mt_status why);
    mt_status (*aborted)(const struct mt_carrier *c); /* why; OK: it was not */
    /* Takes the communicators apart, together with the other processes, while streams are empty; after a failure, alone. */
    void (*part)(struct mt_carrier *c);
    void (*close)(struct mt_carrier *c);
};
/* Not linked: &mt_carrier_nccl is NULL. */
extern const struct mt_carrier_ops mt_carrier_nccl __attribute__((weak));
#endif
