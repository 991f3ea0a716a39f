/* Predicted against measured step time, on one worker of this machine: six configurations that the calibration did not use.
 *
 *   bench_plan CLUSTER.yaml      as `moetitan doctor --calibrate` wrote it
 *
 * Measured is the processor time of whole steps on the executor, median; predicted is `moetitan plan`'s step_s. Then, by class
 * of operations, what it predicted and what was measured in the same steps on the measuring device, to see where a miss is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/measure.h"
#include "train/calibrate.h"
#include "train/forecast.h"

enum { STEPS = 7, CONFIGS = 6 };

static const struct {
    const char *name, *options;
} config[CONFIGS] = {
    {"dense, f32",
     "model.dim=256 model.layers=3 model.heads=4 model.kv_heads=2 model.head_dim=64 model.ffn=640 "
     "model.vocab=1000 train.seq_len=256 train.micro_batch=2 train.global_batch=4 train.dtype=f32"},
    {"dense, bf16, long sequences",
     "model.dim=320 model.layers=2 model.heads=5 model.kv_heads=1 model.head_dim=64 model.ffn=896 "
     "model.vocab=3000 train.seq_len=1024 train.micro_batch=1 train.global_batch=2 train.dtype=bf16"},
    {"the quickstart's model, bf16",
     "model.dim=192 model.layers=4 model.heads=4 model.kv_heads=2 model.head_dim=64 model.qk_norm=true "
     "model.first_dense=1 model.ffn=384 model.experts=16 model.top_k=2 model.expert_ffn=96 "
     "model.shared_ffn=96 model.score=sigmoid model.vocab=256 train.seq_len=512 train.micro_batch=4 "
     "train.global_batch=8 train.dtype=bf16"},
    {"experts, f32, small",
     "model.dim=96 model.layers=3 model.heads=3 model.kv_heads=3 model.head_dim=32 model.first_dense=0 "
     "model.experts=8 model.top_k=2 model.expert_ffn=64 model.shared_ffn=64 model.vocab=300 "
     "train.seq_len=192 train.micro_batch=2 train.global_batch=6 train.dtype=f32"},
    {"experts, bf16, wide",
     "model.dim=448 model.layers=2 model.heads=7 model.kv_heads=7 model.head_dim=64 model.first_dense=0 "
     "model.experts=12 model.top_k=3 model.expert_ffn=160 model.shared_ffn=320 model.vocab=2000 "
     "train.seq_len=384 train.micro_batch=2 train.global_batch=4 train.dtype=bf16"},
    {"dense, bf16, nothing recomputed, AdamW",
     "model.dim=224 model.layers=4 model.heads=7 model.kv_heads=7 model.head_dim=32 model.ffn=576 "
     "model.vocab=700 model.tied=true recompute.policy=none train.seq_len=320 train.micro_batch=3 "
     "train.global_batch=6 train.dtype=bf16 "
     "optim.groups=[{\"match\":\"*norm.weight\",\"optimizer\":\"adamw\",\"weight_decay\":0},{\"match\":\"*\","
     "\"optimizer\":\"adamw\"}]"},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* ---- predicted ---- */
static mt_status predict(mt_config *cfg, const struct mt_cluster *c, double *step,
                         double kind[MT_N_WORK_KINDS], mt_err *e)
{
    struct mt_forecast f;
    struct mt_forecast_times t = {0};
    struct mt_forecast_options o = {.world = 1, .seed = 1};
    const struct mt_target *target;
    MT_TRY(mt_work_check(c, e));
    MT_TRY(mt_forecast_target(c, &target, e));
    mt_status st = mt_forecast_open(&f, cfg, c, target, &o, e);
    if (st == MT_OK) st = mt_forecast_replay(&f, c, MT_ALG_DIRECT, &t, e);
    if (st == MT_OK) {
        *step = t.step_s;
        for (int i = 0; i < MT_N_WORK_KINDS; i++) kind[i] = t.mean.busy[i];
        kind[MT_WORK_NONE] = t.mean.side; /* other streams' kernels: element-wise ones */
    }
    mt_forecast_times_release(&t);
    mt_forecast_close(&f);
    return st;
}

/* ---- measured ---- */
static void add(void *arg, const struct mt_call *c, double seconds, bool whole)
{
    double *kind = arg;
    (void)whole;
    kind[mt_work_kind_of((enum mt_op)c->op)] += seconds;
}
static mt_status by_kind(struct mt_session *s, double kind[MT_N_WORK_KINDS], mt_err *e)
{
    struct mt_measure m;
    struct mt_session_rank *r = &s->rank[0];
    void *exec = r->ctx.exec;
    double each[STEPS][MT_N_WORK_KINDS] = {{0}}, one[STEPS];
    MT_TRY(mt_measure_open(&m, &s->dev, e));
    m.sample = add;
    r->ctx.exec = &m;
    r->ctx.dev = &mt_device_measure;
    for (int i = 0; i < STEPS; i++) {
        m.arg = each[i];
        mt_streams_restart(&r->ctx);
        mt_train_step(&r->ctx, &r->step);
    }
    r->ctx.exec = exec;
    r->ctx.dev = &mt_device_cpu;
    mt_measure_close(&m);
    for (int k = 0; k < MT_N_WORK_KINDS; k++) {
        for (int i = 0; i < STEPS; i++) one[i] = each[i][k];
        qsort(one, STEPS, sizeof *one, by_value);
        kind[k] = one[STEPS / 2];
    }
    return MT_OK;
}
static mt_status run(mt_config *cfg, double *step, double *spread, double kind[MT_N_WORK_KINDS], mt_err *e)
{
    struct mt_session s = {0};
    double each[STEPS] = {0};
    mt_status st = mt_session_open(&s, cfg, 1, false, e);
    if (st == MT_OK) st = mt_session_run(&s, mt_fill_step, e);
    for (int i = -2; i < STEPS && st == MT_OK; i++) {
        mt_calibrate_batch(&s, (uint64_t)(i + 3));
        s.rank[0].step.step = i + 2;
        st = mt_calibrate_step(&s, &each[i < 0 ? 0 : i], e);
    }
    if (st == MT_OK) st = by_kind(&s, kind, e);
    mt_session_close(&s);
    qsort(each, STEPS, sizeof *each, by_value);
    *step = each[STEPS / 2];
    *spread = (each[STEPS - 2] - each[1]) / *step;
    return st;
}

static mt_status compare(int i, const struct mt_cluster *c, double *ratio, mt_err *e)
{
    double want[MT_N_WORK_KINDS] = {0}, got[MT_N_WORK_KINDS] = {0}, predicted = 0, measured = 0, spread = 0;
    mt_config *cfg = calloc(1, sizeof *cfg);
    MT_REQUIRE(cfg, e, MT_IO, "no memory for a configuration");
    mt_status st = mt_calibrate_config(cfg, config[i].options, e);
    if (st == MT_OK) st = run(cfg, &measured, &spread, got, e);
    cfg->mesh_ranks_per_node = 1;
    if (st == MT_OK) st = predict(cfg, c, &predicted, want, e);
    free(cfg);
    if (st != MT_OK) return st;
    *ratio = predicted / measured;
    printf("%-40s %9.2f %9.2f %6.2f  +-%.0f%%\n", config[i].name, 1e3 * predicted, 1e3 * measured, *ratio,
           50 * spread);
    want[MT_WORK_STREAM] += want[MT_WORK_NONE];
    for (int k = MT_WORK_GEMM; k < MT_N_WORK_KINDS; k++)
        if (got[k] > 0.02 * measured)
            printf("    %-36s %9.2f %9.2f %6.2f\n", mt_work_kind_name((enum mt_work_kind)k), 1e3 * want[k],
                   1e3 * got[k], want[k] / got[k]);
    return MT_OK;
}

int main(int argc, char **argv)
{
    mt_err e = {0};
    struct mt_cluster *c = calloc(1, sizeof *c);
    int close = 0;
    mt_status st = argc == 2 && c ? mt_cluster_load(c, argv[1], &e)
                                  : mt_err_set(&e, MT_CONFIG, "usage: bench_plan CLUSTER.yaml");
    if (st == MT_OK)
        printf("%-40s %9s %9s %6s  %s\n", "ms a step", "predicted", "measured", "ratio", "scatter");
    for (int i = 0; i < CONFIGS && st == MT_OK; i++) {
        double ratio = 0;
        st = compare(i, c, &ratio, &e);
        close += ratio > 0.8 && ratio < 1.2;
    }
    if (st == MT_OK) printf("%d of %d within 20%%\n", close, CONFIGS);
    if (st != MT_OK) fprintf(stderr, "bench_plan: %s\n", e.msg);
    free(c);
    return (int)st;
}
