#include "device/cpu/measure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

double mt_measure_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t mt_measure_preempted(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_nivcsw;
}

mt_status mt_measure_open(struct mt_measure *m, const struct mt_cpu_dev *dev, mt_err *e)
{
    *m = (struct mt_measure){.dev = dev, .scratch = aligned_alloc(4096, MT_SCRATCH_BYTES), .clock_s = 1};
    MT_REQUIRE(m->scratch, e, MT_IO, "no memory to measure in");
    memset(m->scratch, 0, MT_SCRATCH_BYTES);
    mt_cpu_thread_setup();
    for (int i = 0; i < 200; i++) {
        double a = mt_measure_now(), b = mt_measure_now();
        if (b - a < m->clock_s) m->clock_s = b - a;
    }
    return MT_OK;
}
void mt_measure_close(struct mt_measure *m)
{
    free(m->scratch);
    *m = (struct mt_measure){0};
}

static void measure_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    struct mt_measure *m = s->ctx->exec;
    const struct mt_op_info *f = &mt_op_info[c->op];
    void *source;
    if (c->op == MT_OP_fresh || c->op == MT_OP_keep) return;
    for (int i = 0; i < f->n_args; i++) c->arg[i] = mt_address(s->ctx, v[i]);
    struct mt_call call = *c;
    if (f->kind == MT_COMM) { /* of one member: as the executor hands it out */
        source = call.arg[1];
        call.arg[1] = &source;
        call.arg[MT_MAX_ARGS - 1] = call.arg[MT_MAX_ARGS - 2] = NULL;
        call.dim['R' - 'A'] = 1;
        call.dim['I' - 'A'] = 0;
        if (c->op == MT_OP_gather_cut || c->op == MT_OP_gather_rest || c->op == MT_OP_scatter_cut ||
            c->op == MT_OP_collect_cut || c->op == MT_OP_spread_cut)
            call.scalar[1].i = (int64_t)(intptr_t)&s->ctx->cut[c->scalar[1].i];
    }
    int parts = mt_cpu_parts(&call, 1);
    int64_t preempted = mt_measure_preempted();
    double began = mt_measure_now();
    for (int i = 0; i < parts; i++) mt_cpu_kernel[c->op](&call, i, parts, m->scratch, m->dev);
    double took = mt_measure_now() - began - m->clock_s;
    if (m->sample) m->sample(m->arg, c, took > 0 ? took : 0, mt_measure_preempted() == preempted);
}

/* All that an event could stand for is over. */
static void measure_wait(struct mt_stream *s, mt_event ev)
{
    (void)s, (void)ev;
}
static void measure_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src,
                              void *dst)
{
    (void)kind, (void)index;
    memcpy(dst, mt_address(s->ctx, src), (size_t)src.bytes);
}
const struct mt_device_ops mt_device_measure = {"measure", measure_enqueue, measure_wait, measure_host_read,
                                                NULL};
