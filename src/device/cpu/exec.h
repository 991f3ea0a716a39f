/* exec.h: the executor of the cpu device: one per process, any number of ranks, a few workers.
 *
 * A stream is a queue, a rank's host code a fiber; workers run both. An operation is ready when its stream's
 * predecessor is done and the waits before it are met; large ones are run in parts by several workers. Host
 * code parks at mt_host_read and when its ring is full. Everything is allocated when it is opened. */
#ifndef MT_DEVICE_CPU_EXEC_H
#define MT_DEVICE_CPU_EXEC_H
#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

struct mt_exec;
/* A collective inside this process that a rank is kept from joining until nothing else can run. */
struct mt_exec_hold {
    int rank, stream;
    int64_t seq;                                       /* its position in the rank's stream */
    bool held, let_go;                                 /* out */
    int64_t before[MT_N_STREAMS], after[MT_N_STREAMS]; /* out: positions the rank had reached when it was
                                                          held and let go */
};
struct mt_exec_options {
    int workers;    /* 0: one a core */
    int ring;       /* operations a rank may have queued: a power of two, 8 at least; 0: 512 */
    int order_seed; /* tests: 0 as it comes; else an adversarial order of streams and ranks */
    bool pin;       /* workers to cores, where there is a core for each */
    bool
        compare; /* debugging: processes compare their calls before each collective; debug builds always do */
    bool poison; /* debugging: what becomes undefined (fresh, SOME, WS) is filled with NaN bytes */
    int delay_seed, delay_us;  /* tests: seed not 0: some work begins late, by up to so many microseconds */
    struct mt_exec_hold *hold; /* tests: borrowed; NULL: none */
};
enum { MT_HOST_STACK_BYTES = 256 << 10 };

/* The contexts must be on mt_device_cpu, with arenas and groups in place before the first run; they and dev
 * are borrowed. CONFIG: options out of range. IO: memory or threads. */
MT_MUST_USE mt_status mt_exec_open(struct mt_exec **exec, struct mt_exec_options o,
                                   struct mt_ctx *const ctxs[], int n, const struct mt_cpu_dev *dev,
                                   mt_err *e);
/* Runs host(ctx, args[i]) for every rank until all have returned and all queues are empty (args NULL: all get
 * NULL). Stream positions start at 1. Returns the first rank's sticky error (ctx->err). HANG: nothing can
 * ever run again (an event of the future, a collective whose members do not all come); the executor is then fit only to be
 * closed. A collective between processes may take for ever: that is a watchdog's to see. */
MT_MUST_USE mt_status mt_exec_run(struct mt_exec *x, void (*host)(struct mt_ctx *ctx, void *arg),
                                  void *const args[]);
int mt_exec_workers(const struct mt_exec *x);
/* Nanoseconds, since opening, that the compute streams of all ranks here stood still for operations of other streams, or in
 * collectives of their own, added up. Between runs. */
int64_t mt_exec_stood(const struct mt_exec *x);
int64_t mt_exec_ops(const struct mt_exec *x); /* completed so far, for rates */
/* Nanoseconds that workers have run operations and host code of the i-th rank, together. While no rank runs. */
int64_t mt_exec_busy_ns(const struct mt_exec *x, int i);
void mt_exec_close(struct mt_exec *x); /* NULL is fine */
#endif
