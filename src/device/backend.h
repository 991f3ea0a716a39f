/* backend.h: a device besides the cpu's executor, as a session opens it. It may be linked into the program or not, and the
 * machine may have one or not. */
#ifndef MT_DEVICE_BACKEND_H
#define MT_DEVICE_BACKEND_H
#include "base/dtype.h"
#include "device/device.h"
#include "device/target.h"

/* What a person asks of its choices. */
struct mt_backend_choices {
    bool own_attention; /* no library's */
    enum mt_backend_graphs {
        MT_GRAPHS_AUTO, /* where they pay */
        MT_GRAPHS_ON,
        MT_GRAPHS_OFF
    } graphs; /* of operations that are the same in every step: launched together */
};
struct mt_recording;
struct mt_job; /* comm/job.h, for the backends that join processes */
struct mt_rank_stand;
/* A failure that nobody's call has come upon. */
struct mt_backend_fault {
    bool known;                /* what was under way: */
    struct mt_collective what; /* the collective that it broke off */
    mt_err err;
};
/* Copies that are timed, of a device that nothing else uses. A call that fails, or bytes that arrive as others: DEVICE. */
enum { MT_PROBE_OFFER = 64 };
struct mt_probe_ops {
    int (*devices)(void); /* that this process sees */
    /* Where a device is attached, as CUDA writes it; "": it does not tell. */
    void (*bus)(int device, char *out, size_t size);
    /* `bytes` on the device, and in pinned host memory of its memory node; one whose node is not told: of this process's.
     * IO, NOFIT: no host memory. Nothing is left open then. */
    mt_status (*open)(void **probe, int device, int64_t bytes, mt_err *e);
    /* Seconds to the device, and back. */
    mt_status (*host)(void *probe, double *to_device, double *to_host, mt_err *e);
    /* Seconds from another device of this process to this one. */
    mt_status (*peer)(void *probe, int peer, double *seconds, mt_err *e);
    /* What another process of the node needs to take what `host` brought to the device, while the probe is open. */
    mt_status (*offer)(void *probe, char offer[MT_PROBE_OFFER], mt_err *e);
    /* Seconds from the device of the process that made the offer to this one; *reached is false, and nothing else is, where the two
     * cannot reach each other. */
    mt_status (*take)(void *probe, const char offer[MT_PROBE_OFFER], bool *reached, double *seconds,
                      mt_err *e);
    void (*close)(void *probe); /* NULL is fine */
};

struct mt_backend_ops {
    const struct mt_device_ops *device;
    const struct mt_target *(*target)(void); /* what ledgers are laid out for */
    int most_ranks;                          /* of one process */
    /* Whether this machine has one that can be used; what was found, or why there is none, in words. */
    bool (*find)(char *what, size_t size);
    /* Whether it can carry collectives between processes, one rank in each; by what, or why not, in words. */
    bool (*joins)(char *what, size_t size);
    /* Opens it for the ranks of this process, whose ledger is laid out and whose groups are there: their arenas are
     * made, too. gpu: which of the visible devices. threads: for a rank's operations on the host; 0: one a core of this process.
     * several: of several processes, which are to be joined. DEVICE, NOFIT; nothing is left open then. */
    mt_status (*open)(void **backend, struct mt_ctx *const ctxs[], int n, int gpu, int threads, bool several,
                      mt_err *e);
    /* Its choices among kernels, libraries and ways to copy for a step that enqueues q, once, before anything is in the arenas, whose
     * contents are lost; and what they are, in words. DEVICE: it failed. */
    mt_status (*prepare)(void *backend, const struct mt_backend_choices *want, const struct mt_recording *q,
                         char *chosen, size_t size, mt_err *e);
    /* Which of its choices did not hold in the first step, and why, in words; false: all did. */
    bool (*fell_back)(void *backend, char *text, size_t size);
    /* Joins the processes, which call it together and come to one status: of group g, streams used[g] (a bit each) have
     * collectives. DEVICE, RANKS, HANG. */
    mt_status (*join)(void *backend, const struct mt_job *job, const uint8_t used[MT_MAX_GROUPS], mt_err *e);
    /* As mt_exec_run, with the first error's message in e. */
    mt_status (*run)(void *backend, void (*host)(struct mt_ctx *ctx, void *arg), void *const args[],
                     mt_err *e);
    double (*peak_flops)(void *backend,
                         mt_dtype t); /* of the devices in use: what products may reach at most */
    void (*close)(void *backend);     /* NULL is fine */
    const struct mt_probe_ops *probe;
    /* By any thread, of a backend whose processes are joined: */
    bool (*stand)(void *backend, int i, struct mt_rank_stand *out); /* as mt_exec_stand */
    bool (*look)(void *backend, struct mt_backend_fault *fault);    /* whether something has failed */
    void (*abort)(void *backend,
                  mt_status why); /* gives up the collectives under way: what runs ends with this */
};

/* The device "cuda"; NULL: this program was built without. */
const struct mt_backend_ops *mt_backend_find_cuda(void);
#endif
