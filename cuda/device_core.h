/* device_core.h: what the device's files share.
 *
 * device_cuda.c: opening, and the functions of the device. launch.c: one op. host_ops.c: those of MT_HOST. collective.c:
 * between ranks of this process, or of several. graphs.c: runs of the compute stream's calls. run.c: their host code. stand.c: notes of where streams are. probe.c: copies for
 * `moetitan doctor`. */
#ifndef MT_CUDA_DEVICE_CORE_H
#define MT_CUDA_DEVICE_CORE_H
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "carrier.h"
#include "device/cpu/fiber.h"
#include "device_cuda.h"
#include "launch.h"
#include "stand.h"

/* Events of the last positions of a stream. A wait for an older one is a wait for the position that took its event: a later
 * one of the same stream, enqueued before the wait, so it may wait longer but never for ever. */
enum { MT_CUDA_EVENTS = 256, MT_CUDA_RANKS = 16 };

/* MT_CUDA_RANKS: of one process, which take turns. */
struct mt_cuda_graphs;
struct mt_cuda_host;
struct mt_cuda_run;
struct mt_cuda_times;
struct mt_cuda {
    struct mt_ctx *ctx;
    int device;
    void *arena[MT_N_ARENAS];
    void *scratch; /* owned; NULL: it is a row of the ledger */
    struct mt_cuda_queue queue[MT_N_STREAMS];
    cudaEvent_t event[MT_N_STREAMS][MT_CUDA_EVENTS];
    /* Which of them position p has, at p % MT_CUDA_EVENTS: that place's own, or that of the last position it was launched with. */
    atomic_ushort mark[MT_N_STREAMS][MT_CUDA_EVENTS];
    cudaEvent_t meet[MT_N_STREAMS][2]; /* of the collective on a stream: it is reached, it has pulled */
    cudaStream_t copies;               /* mt_copy_now's, by any thread, beside what the other streams do */
    struct mt_lt *lt;
    struct mt_cuda_host *host;
    struct mt_cuda_graphs *graphs; /* NULL: calls are launched one by one */
    struct mt_cuda_times *times;   /* of the traced step; NULL: none was traced */
    struct mt_carrier *carrier;    /* one of several processes: what joins them; NULL: alone */
    struct mt_cuda_stand *stand;   /* likewise */
    /* While it runs. */
    struct mt_cuda_run *run;
    struct mt_fiber fiber;
    void *arg;
    bool ended;
};

/* The program's message with CUDA's. */
mt_status mt_cuda_failed(mt_err *e, mt_status code, cudaError_t why, const char *fmt, ...) MT_PRINTF(4, 5);
#define MT_CUDA_TRY(call, e, code, ...)                                                \
    do {                                                                               \
        cudaError_t cuda_error_ = (call);                                              \
        if (cuda_error_) return mt_cuda_failed((e), (code), cuda_error_, __VA_ARGS__); \
    } while (0)
/* The event of a position. */
static inline cudaEvent_t mt_cuda_event(struct mt_cuda *d, int stream, int64_t seq)
{
    return d
        ->event[stream][atomic_load_explicit(&d->mark[stream][seq % MT_CUDA_EVENTS], memory_order_relaxed)];
}
/* Records the event of positions [first, last], fewer than MT_CUDA_EVENTS, which the stream was just given. */
MT_MUST_USE mt_status mt_cuda_mark(struct mt_cuda *d, int stream, int64_t first, int64_t last, mt_err *e);

/* backend.c. Nominal, at the highest clock: multiply-adds a clock and multiprocessor of sm_90 are 2048 on tensor cores in bf16,
 * 128 in f32. 0: the device does not tell. */
double mt_cuda_peak_flops(int device, mt_dtype t);

/* host_ops.c. The calls that are under way lie in a ring, by position. threads: that run one together; 0: as many as there are
 * processors for this process. IO. */
MT_MUST_USE mt_status mt_cuda_host_open(struct mt_cuda_host **host, int threads, mt_err *e);
void mt_cuda_host_close(struct mt_cuda_host *host); /* its stream is idle; NULL is fine */
/* Enqueues an op of MT_HOST: the cpu device's kernel, on memory of the host arena, by a thread of the driver's. May wait for
 * the position MT_CUDA_EVENTS earlier. */
MT_MUST_USE mt_status mt_cuda_host_op(struct mt_cuda *d, const struct mt_stream *s, const struct mt_call *c,
                                      mt_err *e);

/* times.c. Around a run, with all streams idle: what it needs where ctx->times is set, and the times of what was noted meanwhile. */
MT_MUST_USE mt_status mt_cuda_times_begin(struct mt_cuda *d, mt_err *e);
MT_MUST_USE mt_status mt_cuda_times_end(struct mt_cuda *d, mt_err *e);
void mt_cuda_times_close(struct mt_cuda *d);
/* The stream has come to the operation that is being enqueued; it moves bytes from now on (a collective); it is over. */
enum mt_cuda_note { MT_CUDA_BEGIN, MT_CUDA_MOVES, MT_CUDA_END, MT_CUDA_NOTES };
MT_MUST_USE mt_status mt_cuda_note(struct mt_cuda *d, int stream, enum mt_cuda_note what, mt_err *e);

/* collective.c. Returns when every member's share is enqueued. RANKS: members' calls differ; HANG: not all came. */
MT_MUST_USE mt_status mt_cuda_collective(struct mt_cuda *d, const struct mt_stream *s, struct mt_call *c,
                                         mt_err *e);

/* probe.c. */
extern const struct mt_probe_ops mt_cuda_probe;

/* run.c. From host code: lets the other ranks go on; false: nobody can, and what is waited for will never come. */
bool mt_cuda_park(struct mt_cuda *d);
/* Something came about that another rank may be waiting for. */
void mt_cuda_progress(struct mt_cuda *d);
#endif
