/* Train steps on demand, for a driver that alternates them with somebody else's:
 *
 *   bench_step RANKS OPTION...      OPTION as on moetitan's command line
 *
 * prints "ready SECONDS BYTES" (from the start of the process to the end of the first step; parameters' and all other device
 * memory of a rank), then answers each line of standard input with one line:
 *
 *   step      a whole train step: WALL CPU PREEMPTED, seconds of the clock and of all threads' processor time
 *   update    the optimizer's update alone, on the gradients of the last step: the same
 *   ops       a step, each operation timed where it runs (one rank): a line "NAME CALLS SECONDS FLOPS BYTES" each, then "end"
 *   memory    PEAK, most memory the process had resident so far, in bytes */
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "device/cost.h"
#include "device/cpu/measure.h"
#include "train/ranks.h"

static double seconds_of(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static long preemptions(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nivcsw;
}

/* Whole sequences of random tokens, each its own document. */
static void fill_batch(struct training *t)
{
    for (int r = 0; r < t->s.world; r++) {
        const struct mt_model *m = &t->s.rank[r].model;
        const struct mt_ctx *c = &t->s.rank[r].ctx;
        int32_t *token = mt_address(c, m->host.tokens), *label = mt_address(c, m->host.labels),
                *begin = mt_address(c, m->host.begin), *pos = mt_address(c, m->host.pos);
        uint64_t state = (uint64_t)r + 1;
        int64_t n = m->opt.micro_batches * m->shape.N, S = m->shape.S;
        for (int64_t i = 0; i < n; i++) {
            token[i] = (int32_t)(training_random(&state) % (uint64_t)m->shape.V);
            label[i] = (int32_t)(training_random(&state) % (uint64_t)m->shape.V);
            pos[i] = (int32_t)(i % S);
            begin[i] = (int32_t)((i - i % S) % m->shape.N);
        }
    }
}

static void update(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_optim_update(t->optim, &t->rank, t->cfg, t->step, 1);
}

static bool run(struct training *t, void (*host)(struct mt_ctx *, void *))
{
    double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    long before = preemptions();
    if (!training_run(t, host)) return false;
    printf("%.6f %.6f %ld\n", seconds_of(CLOCK_MONOTONIC) - wall, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu,
           preemptions() - before);
    for (int r = 0; r < t->s.world; r++) t->s.rank[r].step.step++;
    return true;
}

struct tally {
    int64_t calls[MT_N_OPS];
    double seconds[MT_N_OPS], flops[MT_N_OPS], bytes[MT_N_OPS];
};
static void count(void *arg, const struct mt_call *c, double seconds, bool whole)
{
    struct tally *t = arg;
    struct mt_work w;
    (void)whole; /* a step is long: what others took is not in this thread's time */
    t->calls[c->op]++;
    t->seconds[c->op] += seconds;
    mt_work_of(&w, c, false);
    t->flops[c->op] += w.flops;
    t->bytes[c->op] += w.bytes;
}

static bool ops(struct training *t)
{
    struct mt_session_rank *r = &t->s.rank[0];
    struct mt_measure m;
    struct tally x = {0};
    mt_err e = {0};
    void *exec = r->ctx.exec;
    const struct mt_device_ops *dev = r->ctx.dev;
    if (mt_measure_open(&m, &t->s.dev, &e) != MT_OK) return false;
    m.sample = count;
    m.arg = &x;
    r->ctx.exec = &m;
    r->ctx.dev = &mt_device_measure;
    mt_streams_restart(&r->ctx);
    mt_train_step(&r->ctx, &r->step);
    r->ctx.exec = exec;
    r->ctx.dev = dev;
    mt_measure_close(&m);
    for (int i = 0; i < MT_N_OPS; i++)
        if (x.calls[i])
            printf("%s %lld %.6f %.0f %.0f\n", mt_op_info[i].name, (long long)x.calls[i], x.seconds[i],
                   x.flops[i], x.bytes[i]);
    printf("end\n");
    return true;
}

static bool answer(struct training *t, const char *line)
{
    struct rusage u;
    if (!strcmp(line, "step\n")) return run(t, mt_train_step);
    if (!strcmp(line, "update\n")) return run(t, update);
    if (!strcmp(line, "ops\n") && t->s.world == 1) return ops(t);
    getrusage(RUSAGE_SELF, &u);
    if (!strcmp(line, "memory\n")) return printf("%lld\n", (long long)u.ru_maxrss * 1024) > 0;
    fprintf(stderr, "bench_step: no command %s", line);
    return false;
}

static bool open_training(struct training *t, int argc, char **argv)
{
    mt_err e = {0};
    int world = atoi(argv[1]);
    if (mt_config_load(&t->cfg, NULL, argc - 2, argv + 2, &e) == MT_OK &&
        mt_session_open(&t->s, &t->cfg, world, false, &e) == MT_OK)
        return training_run(t, mt_fill_step);
    fprintf(stderr, "bench_step: %s\n", e.msg);
    return false;
}

int main(int argc, char **argv)
{
    static struct training t;
    char line[64];
    double start = seconds_of(CLOCK_MONOTONIC);
    if (argc < 3) {
        fprintf(stderr, "usage: bench_step RANKS OPTION...\n");
        return 2;
    }
    if (!open_training(&t, argc, argv)) return 1;
    fill_batch(&t);
    if (!training_run(&t, mt_train_step) || !t.s.rank[0].step.updated) return 1;
    printf("ready %.6f %lld\n", seconds_of(CLOCK_MONOTONIC) - start,
           (long long)t.s.plan.peak[MT_DEVICE_ARENA]);
    fflush(stdout);
    for (int r = 0; r < t.s.world; r++) t.s.rank[r].step.step++;
    while (fgets(line, sizeof line, stdin)) {
        if (!answer(&t, line)) return 1;
        fflush(stdout);
    }
    training_close(&t);
    return 0;
}
