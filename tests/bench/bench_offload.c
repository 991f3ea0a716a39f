/* A train step with activations, optimizer state, or both in the host's arena, against one with all on the device. The copies
 * are done by the one core that computes: this is what they take of its time, and says nothing about a link. */
#include <stdlib.h>
#include <time.h>

#include "../train/training.h"

enum {
    REPEATS = 25,
    WARM_UP = 2,
    SLACK = 32 /* of a sample's time that others may have had, one part in so many */
};

#define SHAPE                                                                                           \
    "model.vocab=4096 model.dim=256 model.layers=4 model.heads=4 model.kv_heads=2 model.head_dim=64 "   \
    "model.experts=4 model.top_k=2 model.expert_ffn=256 model.shared_ffn=256 model.first_dense=0 "      \
    "train.seq_len=512 train.global_batch=1 train.micro_batch=1 train.dtype=bf16 optim.warmup_steps=0 " \
    "device.workers=1 "
#define STATE "offload.masters=host offload.moments=host offload.grads=host "
#define ACTIVATIONS "offload.activations.fraction=1 "

static const struct {
    const char *name, *options;
} mode[] = {
    {"all on the device", SHAPE},
    {"activations on the host", SHAPE ACTIVATIONS},
    {"optimizer state on the host", SHAPE STATE},
    {"both on the host", SHAPE ACTIVATIONS STATE},
    {"and the host's arithmetic", SHAPE ACTIVATIONS STATE "optim.compute=host "},
};
enum { MODES = sizeof mode / sizeof *mode };

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Processor time of a step: what others do with the core meanwhile does not count. */
static double step_time(struct training *t, int64_t i)
{
    double before = processor_seconds();
    if (!training_steps(t, i, i + 1)) exit(1);
    return processor_seconds() - before;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_ratios(int k, double time[MODES][REPEATS], const struct training *t)
{
    double ratio[REPEATS], own[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        own[i] = time[k][i];
        ratio[i] = time[k][i] / time[0][i];
    }
    qsort(ratio, REPEATS, sizeof *ratio, ascending);
    qsort(own, REPEATS, sizeof *own, ascending);
    printf("%-28s %8.1f ms   %.3f (%.3f to %.3f)   device %6.1f  host %6.1f MiB\n", mode[k].name,
           1e3 * own[REPEATS / 2], ratio[REPEATS / 2], ratio[REPEATS / 4], ratio[REPEATS - 1 - REPEATS / 4],
           (double)t[k].s.plan.peak[MT_DEVICE_ARENA] / (1 << 20),
           (double)t[k].s.plan.peak[MT_HOST_ARENA] / (1 << 20));
}

int main(void)
{
    static double time[MODES][REPEATS];
    struct training *t = calloc(MODES, sizeof *t);
    if (!t) return 1;
    for (int k = 0; k < MODES; k++)
        if (!training_open(&t[k], mode[k].options) || !training_run(&t[k], mt_fill_step)) return 1;
    for (int i = -WARM_UP; i < REPEATS; i++)
        for (int k = 0; k < MODES; k++) { /* in turns: what slows the machine slows all */
            double s = step_time(&t[k], i + WARM_UP);
            if (i >= 0) time[k][i] = s;
        }
    printf("processor time of a step: median; over the step of the same turn with all on the device: median "
           "(quartiles)\n");
    for (int k = 0; k < MODES; k++) print_ratios(k, time, t);
    for (int k = 0; k < MODES; k++) training_close(&t[k]);
    free(t);
    return 0;
}
