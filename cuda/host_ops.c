#include <stdlib.h>

#include "device/cpu/kernels.h"
#include "device_core.h"

struct job {
    struct mt_call call;
    struct mt_cuda_host *host;
};
struct mt_cuda_host {
    struct mt_cpu_dev dev;
    void *scratch; /* of the one op that runs */
    struct job job[MT_CUDA_EVENTS];
};

mt_status mt_cuda_host_open(struct mt_cuda_host **host, mt_err *e)
{
    struct mt_cuda_host *h = calloc(1, sizeof *h);
    *host = NULL;
    if (h) h->scratch = aligned_alloc(4096, MT_SCRATCH_BYTES);
    if (!h || !h->scratch) {
        mt_cuda_host_close(h);
        MT_FAIL(e, MT_IO, "opening the cuda device: no memory for the host's operations");
    }
    mt_cpu_dev_init(&h->dev, mt_isa_best());
    *host = h;
    return MT_OK;
}

void mt_cuda_host_close(struct mt_cuda_host *h)
{
    if (h) free(h->scratch);
    free(h);
}

/* On a thread of the driver's, which may make no calls of CUDA. Parts run one after another: how many there are changes no
 * bit. */
static void CUDART_CB run(void *arg)
{
    const struct job *j = arg;
    const int parts = mt_cpu_parts(&j->call, 1);
    for (int i = 0; i < parts; i++)
        mt_cpu_kernel[j->call.op](&j->call, i, parts, j->host->scratch, &j->host->dev);
}

mt_status mt_cuda_host_op(struct mt_cuda *d, const struct mt_stream *s, const struct mt_call *c, mt_err *e)
{
    struct job *j = &d->host->job[s->seq % MT_CUDA_EVENTS];
    MT_CUDA_TRY(cudaEventSynchronize(mt_cuda_event(d, s->id, s->seq)), e, MT_DEVICE,
                "waiting for the host's operations");
    *j = (struct job){*c, d->host};
    MT_CUDA_TRY(cudaLaunchHostFunc(d->queue[s->id].lane.stream, run, j), e, MT_DEVICE, "%s",
                mt_op_info[c->op].name);
    return MT_OK;
}
