/* Train steps on demand, for a driver that alternates them with somebody else's:
 *
 *   bench_step RANKS OPTION...      OPTION as on moetitan's command line
 *
 * prints "ready CPU ISA" (processor time to the end of the first step) when that is done, then answers each line of standard input with one line:
 *
 *   step      a whole train step: WALL CPU PREEMPTED, seconds of the clock and of all threads' processor time
 *   update    the optimizer's update alone, on the gradients of the last step: the same
 *   ops       a step, each operation timed where it runs (one rank): a line "NAME CALLS SECONDS FLOPS BYTES" each, then "end"
 *   roof      BF16 F32 READ READ UPDATE: GFLOP/s of a core, GB/s it reads of 4 MiB and of 256 MiB, reads and writes of 256
 *   memory    PEAK, most memory the process had resident so far, in bytes */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "device/cost.h"
#include "device/cpu/measure.h"
#include "roofline.h"
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

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* What is done in a second of this thread's time: the median, since clocks of shared machines jump both ways. */
static double rate(double (*call)(void *), void *arg, int runs)
{
    double each[32];
    for (int i = 0; i < runs && i < 32; i++) {
        double began = mt_measure_now(), done = call(arg);
        each[i] = done / (mt_measure_now() - began);
    }
    qsort(each, (size_t)runs, sizeof *each, ascending);
    return each[runs / 2];
}
static double peak_call(void *arg)
{
    return (*(peak_fn **)arg)();
}
struct area {
    float *at;
    int64_t bytes;
};
static double read_call(void *arg)
{
    const struct area *a = arg;
    volatile float sum = 0;
    int64_t times = ((int64_t)64 << 20) / a->bytes + 1;
    for (int64_t i = 0; i < times; i++) sum = sum + roofline_read(a->at, a->bytes / 4);
    return (double)(times * a->bytes) * 1e-9;
}
static double update_call(void *arg)
{
    const struct area *a = arg;
    roofline_update(a->at, a->bytes / 4);
    return (double)(2 * a->bytes) * 1e-9;
}
static bool roof(const struct training *t)
{
    double peak[2] = {0}, read[2], update = 0;
    for (int d = 0; d < 2; d++) {
        peak_fn *f = roofline_peak(t->s.dev.isa, d ? MT_F32 : MT_BF16);
        if (f) peak[d] = rate(peak_call, &f, 31);
    }
    for (int d = 0; d < 2; d++) {
        struct area a = {.bytes = (int64_t)(d ? 256 : 4) << 20};
        if (!(a.at = aligned_alloc(2 << 20, (size_t)a.bytes))) return false;
        madvise(a.at, (size_t)a.bytes, MADV_HUGEPAGE); /* as arenas are */
        memset(a.at, 0, (size_t)a.bytes);
        read[d] = rate(read_call, &a, 9);
        if (d) update = rate(update_call, &a, 9);
        free(a.at);
    }
    return printf("%.1f %.1f %.1f %.1f %.1f\n", peak[0], peak[1], read[0], read[1], update) > 0;
}

static bool answer(struct training *t, const char *line)
{
    struct rusage u;
    if (!strcmp(line, "step\n")) return run(t, mt_train_step);
    if (!strcmp(line, "update\n")) return run(t, update);
    if (!strcmp(line, "ops\n") && t->s.world == 1) return ops(t);
    if (!strcmp(line, "roof\n")) return roof(t);
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
    if (argc < 3) {
        fprintf(stderr, "usage: bench_step RANKS OPTION...\n");
        return 2;
    }
    if (!open_training(&t, argc, argv)) return 1;
    fill_batch(&t);
    if (!training_run(&t, mt_train_step) || !t.s.rank[0].step.updated) return 1;
    printf("ready %.6f %s\n", seconds_of(CLOCK_PROCESS_CPUTIME_ID), mt_isa_name(t.s.dev.isa));
    fflush(stdout);
    for (int r = 0; r < t.s.world; r++) t.s.rank[r].step.step++;
    while (fgets(line, sizeof line, stdin)) {
        if (!answer(&t, line)) return 1;
        fflush(stdout);
    }
    training_close(&t);
    return 0;
}
