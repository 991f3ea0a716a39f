/* host_ops.c: operations of MT_HOST. The driver's thread takes one up, and runs its parts together with helpers of its own. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "device/cpu/kernels.h"
#include "device_core.h"

enum { MOST_THREADS = 128 };
struct job {
    struct mt_call call;
    struct mt_cuda_host *host;
};
/* One that runs parts, with memory of its own. */
struct hand {
    struct mt_cuda_host *host;
    void *scratch;
    pthread_t thread;
};
struct mt_cuda_host {
    struct mt_cpu_dev dev;
    struct job job[MT_CUDA_EVENTS];
    int n; /* hands: the first is the driver's thread, n - 1 have threads */
    int started;
    struct hand hand[MOST_THREADS];
    /* Under mu: the call whose parts are given out, those not given out yet, and those not over. */
    pthread_mutex_t mu;
    pthread_cond_t more, over;
    const struct mt_call *call;
    int parts, given, left;
    bool closing;
};

/* Runs parts of the call under way, as long as there are some; mu is held before and after. */
static void take_parts(struct hand *w)
{
    struct mt_cuda_host *h = w->host;
    while (h->given < h->parts) {
        const struct mt_call *c = h->call;
        const int part = h->given++, parts = h->parts;
        pthread_mutex_unlock(&h->mu);
        mt_cpu_kernel[c->op](c, part, parts, w->scratch, &h->dev);
        pthread_mutex_lock(&h->mu);
        if (!--h->left) pthread_cond_signal(&h->over);
    }
}
static void *help(void *arg)
{
    struct hand *w = arg;
    struct mt_cuda_host *h = w->host;
    pthread_mutex_lock(&h->mu);
    while (!h->closing) {
        take_parts(w);
        if (!h->closing) pthread_cond_wait(&h->more, &h->mu);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}
/* On a thread of the driver's, which may make no calls of CUDA. How many parts there are changes no bit, nor who runs them. */
static void CUDART_CB run(void *arg)
{
    const struct job *j = arg;
    struct mt_cuda_host *h = j->host;
    pthread_mutex_lock(&h->mu);
    h->call = &j->call;
    h->parts = h->left = mt_cpu_parts(&j->call, h->n);
    h->given = 0;
    if (h->parts > 1) pthread_cond_broadcast(&h->more);
    take_parts(&h->hand[0]);
    while (h->left) pthread_cond_wait(&h->over, &h->mu);
    h->parts = 0;
    pthread_mutex_unlock(&h->mu);
}

static mt_status hands_open(struct mt_cuda_host *h, mt_err *e)
{
    for (int i = 0; i < h->n; i++) {
        h->hand[i] = (struct hand){.host = h, .scratch = aligned_alloc(4096, MT_SCRATCH_BYTES)};
        MT_REQUIRE(h->hand[i].scratch, e, MT_IO,
                   "opening the cuda device: no memory for the host's operations");
    }
    for (; h->started < h->n - 1; h->started++) {
        struct hand *w = &h->hand[h->started + 1];
        MT_REQUIRE(!pthread_create(&w->thread, NULL, help, w), e, MT_IO,
                   "opening the cuda device: thread %d of %d for the host's operations cannot be started",
                   h->started + 2, h->n);
    }
    return MT_OK;
}

mt_status mt_cuda_host_open(struct mt_cuda_host **host, int threads, mt_err *e)
{
    cpu_set_t mine;
    struct mt_cuda_host *h = calloc(1, sizeof *h);
    *host = NULL;
    MT_REQUIRE(h, e, MT_IO, "opening the cuda device: no memory for the host's operations");
    if (threads < 1 && !sched_getaffinity(0, sizeof mine, &mine)) threads = CPU_COUNT(&mine);
    h->n = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    pthread_mutex_init(&h->mu, NULL);
    pthread_cond_init(&h->more, NULL);
    pthread_cond_init(&h->over, NULL);
    mt_cpu_dev_init(&h->dev, mt_isa_best());
    mt_status status = hands_open(h, e);
    if (status)
        mt_cuda_host_close(h);
    else
        *host = h;
    return status;
}

void mt_cuda_host_close(struct mt_cuda_host *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->mu);
    h->closing = true;
    pthread_cond_broadcast(&h->more);
    pthread_mutex_unlock(&h->mu);
    for (int i = 1; i <= h->started; i++) pthread_join(h->hand[i].thread, NULL);
    for (int i = 0; i < h->n; i++) free(h->hand[i].scratch);
    pthread_cond_destroy(&h->more);
    pthread_cond_destroy(&h->over);
    pthread_mutex_destroy(&h->mu);
    free(h);
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
