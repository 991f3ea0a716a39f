/* nccl_core.h: what the files on NCCL share. nccl_comm.c: communicators; nccl_move.c: what moves on them. */
#ifndef MT_CUDA_NCCL_CORE_H
#define MT_CUDA_NCCL_CORE_H
#include <pthread.h>
#include <stdatomic.h>

#include "carrier.h"
#include "nccl_table.h"

struct mt_nccl_part {
    ncclComm_t comm; /* NULL: none */
    void *arena;     /* the device arena's registration with it */
};
struct mt_carrier {
    struct mt_nccl_table t;
    pthread_mutex_t
        mu; /* held by whoever calls NCCL on a communicator: no such call waits, they are all non-blocking */
    struct mt_nccl_part world, part[MT_MAX_GROUPS][MT_N_STREAMS];
    atomic_int aborted; /* a status; OK: it was not */
    bool failed;        /* nothing that takes all processes can be done any more */
};

/* A call's result, in words. RANKS: another process is gone; else DEVICE. */
mt_status mt_nccl_failed(struct mt_carrier *c, ncclResult_t r, mt_err *e);
/* Waits until the communicator has nothing in progress on the host; it may be NULL until then. seconds: at most; 0: no
 * limit but that of the caller's watchdog, which aborts. */
mt_status mt_nccl_settle(struct mt_carrier *c, const ncclComm_t *comm, double seconds, mt_err *e);
mt_status mt_nccl_start(struct mt_carrier *c, const struct mt_carried *x, mt_err *e);
#endif
