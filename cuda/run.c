/* Ranks of one process run their host code in turn. */
#include "device/timeline.h"
#include "device_core.h"
#include "graphs.h"

struct mt_cuda_run {
    void (*host)(struct mt_ctx *ctx, void *arg);
    int64_t progress; /* counts what others may be waiting for */
    bool stuck;
};

enum { STACK_BYTES = 1 << 20 }; /* the runtime's own calls run on it */

void mt_cuda_progress(struct mt_cuda *d)
{
    if (d->run) d->run->progress++;
}
bool mt_cuda_park(struct mt_cuda *d)
{
    if (!d->run || d->run->stuck) return false;
    mt_fiber_yield(&d->fiber);
    return !d->run->stuck;
}

static void host_main(void *arg)
{
    struct mt_cuda *d = arg;
    for (;;) {
        d->run->host(d->ctx, d->arg);
        if (!d->ctx->err.code && mt_cuda_graphs_flush(d, &d->ctx->err))
            mt_err_while(&d->ctx->err, "rank %d", d->ctx->rank);
        if (d->ctx->times) mt_times_host_left(d->ctx->times, MT_LEFT_END, 0, 0);
        d->ended = true;
        d->run->progress++;
        mt_fiber_yield(&d->fiber);
    }
}

/* Until all have ended. A round in which nothing came about is the last one for those who wait. */
static void take_turns(struct mt_cuda *const cuda[], int n, struct mt_cuda_run *run)
{
    for (int left = n; left;) {
        const int64_t before = run->progress;
        left = 0;
        for (int i = 0; i < n; i++) {
            if (!cuda[i]->ended) mt_fiber_resume(&cuda[i]->fiber);
            left += !cuda[i]->ended;
        }
        if (run->progress == before) run->stuck = true;
    }
}

/* Of several, an error that is not that the others did not come. */
static mt_status first_error(struct mt_cuda *const cuda[], int n, mt_err *e)
{
    const struct mt_ctx *worst = NULL;
    for (int i = 0; i < n; i++) {
        const struct mt_ctx *c = cuda[i]->ctx;
        if (c->err.code && (!worst || (worst->err.code == MT_HANG && c->err.code != MT_HANG))) worst = c;
    }
    MT_REQUIRE(!worst, e, worst->err.code, "%s", worst->err.msg);
    for (int i = 0; i < n; i++) MT_TRY(mt_cuda_finish(cuda[i], e));
    for (int i = 0; i < n; i++) MT_TRY(mt_cuda_times_end(cuda[i], e));
    return MT_OK;
}

mt_status mt_cuda_run(struct mt_cuda *const cuda[], int n, void (*host)(struct mt_ctx *ctx, void *arg),
                      void *const args[], mt_err *e)
{
    struct mt_cuda_run run = {.host = host};
    mt_status status = MT_OK;
    for (int i = 0; i < n; i++) {
        struct mt_cuda *d = cuda[i];
        mt_streams_restart(d->ctx);
        d->run = &run;
        d->arg = args ? args[i] : NULL;
        d->ended = false;
        mt_cuda_stand_run(d, true);
        if (!status) status = mt_cuda_times_begin(d, e);
        if (!status && !d->fiber.map) status = mt_fiber_open(&d->fiber, STACK_BYTES, true, host_main, d, e);
    }
    if (!status) take_turns(cuda, n, &run);
    for (int i = 0; i < n; i++) cuda[i]->run = NULL;
    for (int i = 0; i < n; i++) mt_cuda_stand_run(cuda[i], false);
    return status ? status : first_error(cuda, n, e);
}
