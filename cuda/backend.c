/* backend.c: the device as a session opens it. */
#include "device/backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "graphs.h"
#include "prepare.h"

struct backend {
    struct mt_cuda **rank; /* n of them */
    int n;
    struct mt_sdpa *sdpa; /* of all of them; NULL: there is none */
};

static bool find(char *what, size_t size)
{
    int n = 0, driver = 0;
    struct cudaDeviceProp p;
    cudaError_t e = cudaDriverGetVersion(&driver);
    if (!e && !driver) {
        snprintf(what, size, "no CUDA driver");
        return false;
    }
    if (!e) e = cudaGetDeviceCount(&n);
    if (!e && n) e = cudaGetDeviceProperties(&p, 0);
    (void)cudaGetLastError();
    if (e || !n) {
        snprintf(what, size, "no CUDA device: %s", e ? cudaGetErrorString(e) : "the driver has none");
        return false;
    }
    const bool fits = p.major == 9 && p.minor == 0;
    snprintf(what, size, "%d CUDA device%s, %s, %.1f GiB, compute capability %d.%d%s, driver for CUDA %d.%d",
             n, n > 1 ? "s" : "", p.name, (double)p.totalGlobalMem / (1 << 30), p.major, p.minor,
             fits ? "" : " (kernels are built for 9.0)", driver / 1000, driver % 1000 / 10);
    return fits;
}

static void backend_close(void *backend)
{
    struct backend *b = backend;
    if (!b) return;
    for (int i = 0; i < b->n; i++) mt_cuda_close(b->rank[i]);
    mt_sdpa_close(b->sdpa);
    free(b->rank);
    free(b);
}

static bool joins(char *what, size_t size)
{
    if (&mt_carrier_nccl) return mt_carrier_nccl.find(what, size);
    snprintf(what, size, "this program was built without NCCL");
    return false;
}

/* The ranks of one process share a device. */
static mt_status backend_open(void **out, struct mt_ctx *const ctxs[], int n, int gpu, int threads,
                              bool several, mt_err *e)
{
    *out = NULL;
    struct backend *b = calloc(1, sizeof *b);
    if (b) b->rank = calloc((size_t)n, sizeof *b->rank);
    if (!b || !b->rank) {
        backend_close(b);
        MT_FAIL(e, MT_IO, "opening the cuda device: no memory for %d ranks", n);
    }
    const struct mt_cuda_options o = {
        .device = gpu, .several = several, .host_threads = threads, .scratch_bytes = MT_CUDA_SCRATCH_BYTES};
    mt_status status = MT_OK;
    for (; b->n < n && !status; b->n += !status)
        status = mt_cuda_open(&b->rank[b->n], ctxs[b->n], mt_target_cuda(), &o, e);
    if (status) {
        backend_close(b);
        return status;
    }
    *out = b;
    return MT_OK;
}

/* Planned for each rank from the first one's record: where another's differs, its calls are launched one by one. */
static mt_status plan_graphs(const struct backend *b, enum mt_backend_graphs graphs,
                             const struct mt_recording *q, struct mt_chosen *chosen, mt_err *e)
{
    struct mt_cuda_graphs_info i = {0};
    if (graphs == MT_GRAPHS_OFF) {
        mt_chosen_add(chosen, "graphs: none (device.graphs)");
        return MT_OK;
    }
    const enum mt_cuda_graphs_which which = graphs == MT_GRAPHS_ON ? MT_CUDA_GRAPHS_ALL : MT_CUDA_GRAPHS_PAYS;
    for (int r = b->n - 1; r >= 0; r--) MT_TRY(mt_cuda_graphs_open(b->rank[r], q, which, &i, e));
    mt_chosen_add(
        chosen,
        "graphs: %lld, of %lld of the compute stream's %lld operations (counts decide about %lld, %lld "
        "change from step to step, %lld are too few together, %lld take long enough)",
        (long long)i.stretches, (long long)i.planned_calls, (long long)i.calls,
        (long long)i.left[MT_CUDA_LEFT_COUNTS], (long long)i.left[MT_CUDA_LEFT_CHANGES],
        (long long)i.left[MT_CUDA_LEFT_SHORT], (long long)i.left[MT_CUDA_LEFT_LONG]);
    return MT_OK;
}

/* Ranks have the same shapes: the first one tries them out. */
static mt_status prepare(void *backend, const struct mt_backend_choices *want, const struct mt_recording *q,
                         char *text, size_t size, mt_err *e)
{
    struct backend *b = backend;
    struct mt_chosen chosen = {.text = text, .size = size};
    mt_err why = {0};
    if (want->own_attention)
        mt_chosen_add(&chosen, "attention: own (device.attention)");
    else if (mt_sdpa_open(&b->sdpa, &why))
        mt_chosen_add(&chosen, "attention: own (%s)", why.msg);
    for (int i = 0; i < b->n; i++) b->rank[i]->queue[MT_COMPUTE].sdpa = b->sdpa;
    MT_TRY(mt_cuda_prepare(b->rank[0], b->sdpa, q, &chosen, e));
    for (int i = 1; i < b->n; i++)
        b->rank[i]->queue[MT_D2H].down_by_kernel = b->rank[0]->queue[MT_D2H].down_by_kernel;
    return plan_graphs(b, want->graphs, q, &chosen, e);
}

static bool fell_back(void *backend, char *text, size_t size)
{
    mt_err why = {0};
    if (!mt_cuda_graphs_refused(((const struct backend *)backend)->rank[0], &why)) return false;
    snprintf(text, size, "graphs: some of them not: %s", why.msg);
    return true;
}

static mt_status backend_join(void *backend, const struct mt_job *job, const uint8_t used[MT_MAX_GROUPS],
                              mt_err *e)
{
    const struct mt_cuda *d = ((const struct backend *)backend)->rank[0];
    MT_REQUIRE(d->carrier, e, MT_INTERNAL, "joining processes: the device was opened for one alone");
    cudaSetDevice(d->device);
    return mt_carrier_nccl.join(d->carrier, job, d->ctx, used, e);
}

static mt_status backend_run(void *backend, void (*host)(struct mt_ctx *ctx, void *arg), void *const args[],
                             mt_err *e)
{
    const struct backend *b = backend;
    return mt_cuda_run(b->rank, b->n, host, args, e);
}

double mt_cuda_peak_flops(int device, mt_dtype t)
{
    int clock_khz = 0, multiprocessors = 0;
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device) ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)) {
        (void)cudaGetLastError(); /* else the next launch reports it */
        return 0;
    }
    return 2e3 * clock_khz * multiprocessors * (t == MT_BF16 ? 2048 : 128);
}
static double peak_flops(void *backend, mt_dtype t)
{
    const struct backend *b = backend;
    return mt_cuda_peak_flops(b->rank[0]->device, t);
}

static bool stand(void *backend, int i, struct mt_rank_stand *out)
{
    return mt_cuda_stand(((const struct backend *)backend)->rank[i], out);
}

static bool look(void *backend, struct mt_backend_fault *fault)
{
    struct mt_cuda *d = ((const struct backend *)backend)->rank[0];
    struct mt_carrier_fault f;
    if (!d->carrier || !mt_carrier_nccl.look(d->carrier, &f)) return false;
    *fault = (struct mt_backend_fault){.err = f.err};
    cudaSetDevice(d->device);
    fault->known = f.group >= 0 && mt_cuda_stand_in(d, f.group, f.stream, &fault->what);
    return true;
}

static void give_up(void *backend, mt_status why)
{
    struct mt_cuda *d = ((const struct backend *)backend)->rank[0];
    if (d->carrier) mt_carrier_nccl.abort(d->carrier, why);
}

const struct mt_backend_ops mt_backend_cuda = {
    .device = &mt_device_cuda,
    .target = mt_target_cuda,
    .most_ranks = MT_CUDA_RANKS,
    .find = find,
    .joins = joins,
    .open = backend_open,
    .prepare = prepare,
    .fell_back = fell_back,
    .join = backend_join,
    .run = backend_run,
    .peak_flops = peak_flops,
    .close = backend_close,
    .stand = stand,
    .look = look,
    .abort = give_up,
    .probe = &mt_cuda_probe,
};
