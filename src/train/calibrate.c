/* calibrate.c: train steps of small models, each operation timed where it runs in the step. */
#include "train/calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/rng.h"
#include "device/cpu/measure.h"

enum { MOST_OPTIONS = 64, STEPS = 5, QUICK_STEPS = 2, QUICK_MODELS = 2 };

/* Shapes between which those of real runs lie, the small ones first: a quick calibration has only these. The optimizers are the default ones: Muon for matrices of blocks. */
static const char *const models[] = {
    "model.dim=64 model.layers=2 model.heads=2 model.kv_heads=1 model.head_dim=32 model.ffn=128 "
    "model.vocab=64 model.experts=4 model.top_k=2 model.expert_ffn=32 model.shared_ffn=32 "
    "model.first_dense=1 train.seq_len=64 train.micro_batch=1 train.global_batch=2",
    "model.dim=96 model.layers=2 model.heads=2 model.kv_heads=1 model.head_dim=32 model.ffn=160 "
    "model.vocab=128 model.experts=4 model.top_k=2 model.expert_ffn=64 model.shared_ffn=32 "
    "model.first_dense=1 train.seq_len=96 train.micro_batch=1 train.global_batch=2",
    "model.dim=128 model.layers=2 model.heads=4 model.kv_heads=2 model.head_dim=32 model.ffn=384 "
    "model.vocab=512 train.seq_len=128 train.micro_batch=2 train.global_batch=4",
    "model.dim=384 model.layers=2 model.heads=6 model.kv_heads=2 model.head_dim=64 model.ffn=1024 "
    "model.vocab=2048 train.seq_len=512 train.micro_batch=1 train.global_batch=1",
    "model.dim=192 model.layers=2 model.heads=4 model.kv_heads=2 model.head_dim=64 model.ffn=384 "
    "model.vocab=256 model.experts=16 model.top_k=2 model.expert_ffn=96 model.shared_ffn=96 "
    "model.first_dense=0 model.qk_norm=true train.seq_len=256 train.micro_batch=4 train.global_batch=8",
    "model.dim=256 model.layers=2 model.heads=4 model.kv_heads=4 model.head_dim=64 model.ffn=512 "
    "model.vocab=1024 model.experts=8 model.top_k=2 model.expert_ffn=256 model.shared_ffn=256 "
    "model.first_dense=1 model.score=sigmoid train.seq_len=512 train.micro_batch=2 train.global_batch=2",
    "model.dim=512 model.layers=1 model.heads=8 model.kv_heads=2 model.head_dim=64 model.ffn=512 "
    "model.vocab=4096 model.experts=8 model.top_k=4 model.expert_ffn=128 model.shared_ffn=128 "
    "model.first_dense=0 model.qk_norm=true train.seq_len=256 train.micro_batch=2 train.global_batch=4",
    /* narrow heads over longer sequences, and wide ones */
    "model.dim=160 model.layers=2 model.heads=5 model.kv_heads=5 model.head_dim=32 model.ffn=448 "
    "model.vocab=600 train.seq_len=640 train.micro_batch=1 train.global_batch=2",
    "model.dim=256 model.layers=1 model.heads=2 model.kv_heads=1 model.head_dim=128 model.ffn=768 "
    "model.vocab=512 train.seq_len=768 train.micro_batch=1 train.global_batch=1",
};

mt_status mt_calibrate_config(mt_config *cfg, const char *options, mt_err *e)
{
    char text[2048], *arg[MOST_OPTIONS], *rest = text;
    int n = 0;
    snprintf(text, sizeof text, "%s device.workers=1 device.type=cpu", options);
    for (char *word; (word = strtok_r(rest, " ", &rest)) && n < MOST_OPTIONS;) arg[n++] = word;
    return mt_config_load(cfg, NULL, n, arg, e);
}

void mt_calibrate_batch(const struct mt_session *s, uint64_t seed)
{
    const struct mt_session_rank *r = &s->rank[0];
    const struct mt_model *m = &r->model;
    int32_t *token = mt_address(&r->ctx, m->host.tokens), *label = mt_address(&r->ctx, m->host.labels),
            *begin = mt_address(&r->ctx, m->host.begin), *pos = mt_address(&r->ctx, m->host.pos);
    int64_t n = m->opt.micro_batches * m->shape.N, S = m->shape.S;
    uint64_t key = mt_rng_key(seed, "calibration tokens");
    for (int64_t i = 0; i < n; i++) {
        token[i] = (int32_t)(mt_hash_mix(key, (uint64_t)i) % (uint64_t)m->shape.V);
        pos[i] = (int32_t)(i % S);
        begin[i] = (int32_t)((i - i % S) % m->shape.N);
    }
    for (int64_t i = 0; i < n; i++) label[i] = i % S == S - 1 ? -1 : token[i + 1];
    mt_mtp_batch(&r->ctx, m);
}

static double process_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

mt_status mt_calibrate_step(struct mt_session *s, double *seconds, mt_err *e)
{
    double began = process_seconds();
    MT_TRY(mt_session_run(s, mt_train_step, e));
    *seconds = process_seconds() - began;
    return MT_OK;
}

/* ---- samples of one model ---- */
/* What was timed, in order: written while kernels run, so nothing is looked up. */
struct taken {
    struct mt_work work;
    double seconds;
};
struct log {
    struct taken *at; /* owned */
    int64_t n, cap, preempted, calls;
    double step; /* seconds of the operations of the present step */
};
static void take(void *arg, const struct mt_call *c, double seconds, bool whole)
{
    struct log *l = arg;
    l->step += seconds;
    l->calls++;
    l->preempted += !whole;
    if (!whole || l->n == l->cap) return;
    mt_work_of(&l->at[l->n].work, c, false);
    l->at[l->n++].seconds = seconds;
}

static int by_work(const void *a, const void *b)
{
    const struct taken *x = a, *y = b;
    int d = memcmp(&x->work, &y->work, sizeof x->work);
    return d ? d : x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* The medians of a log go to the calibration. */
static mt_status reduce(struct mt_calibration *k, struct log *l, mt_err *e)
{
    qsort(l->at, (size_t)l->n, sizeof *l->at, by_work);
    for (int64_t i = 0, j; i < l->n; i = j) {
        for (j = i; j < l->n && !memcmp(&l->at[i].work, &l->at[j].work, sizeof l->at[i].work);) j++;
        if (k->n == k->cap) {
            int64_t cap = k->cap ? 2 * k->cap : 256;
            struct mt_op_timing *more = realloc(k->timing, (size_t)cap * sizeof *more);
            MT_REQUIRE(more, e, MT_IO, "no memory for measurements");
            k->timing = more;
            k->cap = cap;
        }
        k->timing[k->n++] = (struct mt_op_timing){l->at[i].work, l->at[(i + j) / 2].seconds, j - i};
    }
    k->taken += l->calls;
    k->preempted += l->preempted;
    return MT_OK;
}

/* Seconds of the executor's own an operation, over all models: each step counts by how many operations it has for its time, as what
 * it takes is uncertain in proportion to itself. */
struct overhead {
    double more, weight;
};

/* One step on the measuring device, and the same on the executor: what it takes more is the executor's. */
static mt_status step_pair(struct mt_session *s, struct mt_measure *m, struct log *l, double *more,
                           double *rate, mt_err *e)
{
    struct mt_session_rank *r = &s->rank[0];
    void *exec = r->ctx.exec;
    const struct mt_device_ops *dev = r->ctx.dev;
    double step = 0;
    int64_t calls = l->calls;
    l->step = 0;
    r->ctx.exec = m;
    r->ctx.dev = &mt_device_measure;
    mt_streams_restart(&r->ctx);
    mt_train_step(&r->ctx, &r->step);
    r->ctx.exec = exec;
    r->ctx.dev = dev;
    calls = l->calls - calls;
    MT_TRY(mt_calibrate_step(s, &step, e));
    *rate = (double)calls / step; /* operations a second */
    *more = (step - l->step) / (double)calls;
    return MT_OK;
}

static mt_status measure(struct mt_calibration *k, struct mt_session *s, int steps, struct overhead *over,
                         mt_err *e)
{
    struct mt_measure m;
    struct log l = {.cap = INT64_C(1) << 17};
    double each[STEPS], rate = 0, warm;
    mt_status st = mt_measure_open(&m, &s->dev, e);
    l.at = calloc((size_t)l.cap, sizeof *l.at);
    if (st == MT_OK && !l.at) st = mt_err_set(e, MT_IO, "no memory for measurements");
    if (st == MT_OK) st = mt_session_run(s, mt_fill_step, e);
    m.arg = &l;
    mt_calibrate_batch(s, 1);
    for (int i = 0; i < 2 && st == MT_OK; i++) st = mt_calibrate_step(s, &warm, e);
    m.sample = take;
    for (int i = 0; i < steps && st == MT_OK; i++) {
        s->rank[0].step.step = 2 + i;
        st = step_pair(s, &m, &l, &each[i], &rate, e);
    }
    if (st == MT_OK) st = reduce(k, &l, e);
    if (st == MT_OK) {
        over->more += median(each, steps) * rate * rate;
        over->weight += rate * rate;
    }
    mt_measure_close(&m);
    free(l.at);
    return st;
}

static mt_status measure_model(struct mt_calibration *k, const char *model, const char *dtype, int steps,
                               struct overhead *over, mt_err *e)
{
    char options[1024];
    struct mt_session s = {0};
    mt_config *cfg = calloc(1, sizeof *cfg);
    MT_REQUIRE(cfg, e, MT_IO, "no memory for a configuration");
    snprintf(options, sizeof options, "%s train.dtype=%s", model, dtype);
    mt_status st = mt_calibrate_config(cfg, options, e);
    if (st == MT_OK) {
        st = mt_session_open(&s, cfg, 1, false, e);
        if (st == MT_OK) snprintf(k->cluster.target, sizeof k->cluster.target, "%s", mt_isa_name(s.dev.isa));
        if (st == MT_OK) st = measure(k, &s, steps, over, e);
        mt_session_close(&s);
    }
    free(cfg);
    return st;
}

/* ---- memory ---- */
/* Bytes read and written a second by copies inside a buffer of so many bytes; 0: no memory. */
static double copy_rate(size_t bytes)
{
    double rate[9];
    char *p = malloc(bytes);
    if (!p) return 0;
    memset(p, 1, bytes);
    size_t half = bytes / 2, times = ((size_t)32 << 20) / bytes + 1;
    for (int i = 0; i < 9; i++) {
        double began = mt_measure_now();
        for (size_t j = 0; j < times; j++) {
            memcpy(p + half * (j & 1), p + half * (~j & 1), half);
            __asm__ volatile("" ::: "memory"); /* the copies are wanted, not their result */
        }
        rate[i] = 2.0 * (double)half * (double)times / (mt_measure_now() - began);
    }
    free(p);
    return median(rate, 9);
}

/* ---- all ---- */
static void processor_name(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " ");
        colon[strcspn(colon, "\n\"\\")] = 0;
        snprintf(out, size, "%.60s", colon);
        break;
    }
    if (f) fclose(f);
}

mt_status mt_calibrate(struct mt_calibration *k, bool quick, mt_err *e)
{
    enum { MODELS = sizeof models / sizeof *models };
    struct overhead over = {0};
    char cpu[64], source[MT_CLUSTER_TEXT], date[16];
    time_t now = time(NULL);
    struct tm day;
    *k = (struct mt_calibration){0};
    for (int i = 0; i < (quick ? QUICK_MODELS : MODELS); i++)
        for (int f32 = 0; f32 < 2; f32++)
            MT_TRY(measure_model(k, models[i], f32 ? "f32" : "bf16", quick ? QUICK_STEPS : STEPS, &over, e));
    for (int i = 0; i < 3; i++) {
        k->copy[i] = copy_rate((size_t)1 << (20 + 4 * i));
        MT_REQUIRE(k->copy[i] > 0, e, MT_IO, "no memory to copy in");
    }
    processor_name(cpu, sizeof cpu);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    snprintf(source, sizeof source, "measured here, %s, %s, %s, one thread%s", date, cpu, k->cluster.target,
             quick ? ", quickly" : "");
    snprintf(k->cluster.name, sizeof k->cluster.name, "%s", cpu);
    k->cluster.of[MT_CLUSTER_launch_kernel].value = over.more > 0 ? over.more / over.weight : 0;
    mt_calibrate_fit(k, source);
    return MT_OK;
}

void mt_calibration_release(struct mt_calibration *k)
{
    free(k->timing);
    k->timing = NULL;
}
