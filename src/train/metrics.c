#include "train/metrics.h"

#include "train/say.h"
#include "train/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double mt_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ---- */
/* Copies the lines of steps up to `step` to a new file, which then replaces the old one. */
static mt_status keep_lines(const char *path, int64_t step, mt_err *e)
{
    char tmp[MT_CONFIG_PATH + 32], line[2048];
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    FILE *in = fopen(path, "r");
    if (!in) return MT_OK;
    FILE *out = fopen(tmp, "w");
    while (out && fgets(line, sizeof line, in)) {
        int64_t at;
        if (strchr(line, '\n') && sscanf(line, "{\"step\": %" SCNd64, &at) == 1 && at <= step)
            fputs(line, out);
    }
    fclose(in);
    bool ok = out && !fflush(out) && !ferror(out);
    if (out) fclose(out);
    MT_REQUIRE(ok && !rename(tmp, path), e, MT_IO, "cannot rewrite '%s' for the step it goes on from: %s",
               path, strerror(errno));
    return MT_OK;
}

/* Rate of a product that lives in the caches, once the clock has settled: the peak that MFU names. */
static double measure_peak(const struct mt_session *s)
{
    enum { M = 256, K = 512 };
    const struct mt_gemm *g = s->dev.gemm[s->cfg->train_dtype];
    int64_t el = mt_dtype_bytes(s->cfg->train_dtype),
            packed = mt_packed_bytes(s->target, s->cfg->train_dtype, MT_PACKED_NT, K, K);
    size_t bytes = (size_t)(packed + 2 * M * (K + 32) * el + MT_SCRATCH_BYTES + 256);
    char *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    double best = 0;
    if (!p) return 0;
    memset(p, 0, bytes);
    struct mt_gemm_mul x = {.m = M,
                            .n = K,
                            .k = K,
                            .a = p,
                            .lda = K + 32,
                            .b = p + M * (K + 32) * el,
                            .c = p + M * (K + 32) * el + packed,
                            .ldc = K + 32,
                            .c_dtype = s->cfg->train_dtype,
                            .groups = 1};
    char *scratch = p + 2 * M * (K + 32) * el + packed;
    scratch += -(uintptr_t)scratch % 64;
    mt_cpu_thread_setup();
    for (int i = 0; i < 40; i++) {
        double t = mt_now();
        g->mul(&x, 0, 1, scratch);
        t = mt_now() - t;
        if (2.0 * M * K * K / t > best) best = 2.0 * M * K * K / t;
    }
    free(p);
    return best * mt_exec_workers(s->exec) * s->job.n;
}

mt_status mt_metrics_open(struct mt_metrics *m, const struct mt_session *s, int64_t step, mt_err *e)
{
    char path[MT_CONFIG_PATH + 16];
    const struct mt_shape *d = &s->rank[0].model.shape;
    *m = (struct mt_metrics){.fd = -1, .first_step = step};
    if (s->job.me != 0) return MT_OK;
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->cfg->run_dir);
    MT_TRY(keep_lines(path, step, e));
    *m = (struct mt_metrics){.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644),
                             .first_step = step};
    MT_REQUIRE(m->fd >= 0, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    m->flops_per_token = mt_flops_per_token(d, (double)d->S);
    m->peak_flops = s->device ? s->device->peak_flops(s->backend, s->cfg->train_dtype) : measure_peak(s);
    m->started = m->last_log = mt_now();
    return MT_OK;
}

void mt_metrics_close(struct mt_metrics *m)
{
    if (m->fd >= 0) close(m->fd);
    *m = (struct mt_metrics){.fd = -1};
}

/* ---- lines ---- */
void mt_metrics_banner(const struct mt_metrics *m, const struct mt_session *s)
{
    const struct mt_shape *d = &s->rank[0].model.shape;
    if (m->fd < 0) return;
    mt_say("model     %.3f M parameters, %.3f M active a token; %lld layers, width %lld",
           (double)mt_params_total(d) / 1e6, (double)mt_params_active(d) / 1e6, (long long)d->L,
           (long long)d->D);
    if (d->E) mt_say(", %lld experts top-%lld", (long long)d->E, (long long)d->K);
    if (s->device)
        mt_say("\ndevice    %s, %s; %s; at most %.0f GFLOP/s by its clock\n", s->target->name,
               mt_dtype_name(s->cfg->train_dtype), s->found, m->peak_flops / 1e9);
    else
        mt_say("\ndevice    %s, %d workers, %s; GEMM peak %.0f GFLOP/s (best 256x512x512 product, measured, "
               "times workers)%s%s\n",
               s->target->name, mt_exec_workers(s->exec), mt_dtype_name(s->cfg->train_dtype),
               m->peak_flops / 1e9, s->found[0] ? "; " : "", s->found);
    mt_say("memory    device %.1f MiB (%.1f without sharing), host %.1f MiB, on each of %d rank%s; %d rows, "
           "every byte placed before step 1\n",
           (double)s->plan.peak[MT_DEVICE_ARENA] / (1 << 20),
           (double)s->plan.unshared[MT_DEVICE_ARENA] / (1 << 20),
           (double)s->plan.peak[MT_HOST_ARENA] / (1 << 20), s->world, s->world > 1 ? "s" : "", s->ledger.n);
    mt_say("step      %lld sequences of %lld tokens in %lld micro-batches; MFU by 6 N_active + causal "
           "attention\n",
           (long long)s->cfg->train_global_batch, (long long)d->S,
           (long long)s->rank[0].model.opt.micro_batches);
}

void mt_metrics_step(struct mt_metrics *m, const struct mt_session *s, const struct mt_metrics_step *x,
                     bool show)
{
    char line[1600], wire[700] = "";
    if (s->world > 1)
        (void)mt_wire_fields(s, s->cfg->run_traffic, wire, sizeof wire); /* all processes add up theirs */
    if (m->fd < 0) return;
    double rate = (double)x->step_tokens / x->step_s;
    double mfu = m->peak_flops > 0 ? rate * m->flops_per_token / m->peak_flops : 0;
    int n =
        snprintf(line, sizeof line,
                 "{\"step\": %" PRId64 ", \"tokens\": %" PRId64
                 ", \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": %.9g, "
                 "\"tokens_per_s\": %.1f, \"mfu\": %.4f, \"data_wait_s\": %.6f, \"device_bytes\": %" PRId64
                 ", \"host_bytes\": %" PRId64,
                 x->step, x->tokens, x->loss, x->grad_norm, x->lr, rate, mfu, x->data_wait_s,
                 s->plan.peak[MT_DEVICE_ARENA], s->plan.peak[MT_HOST_ARENA]);
    if (x->balance > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"expert_balance\": %.3f", x->balance);
    if (x->imbalance.data > 0)
        n += snprintf(line + n, sizeof line - (size_t)n,
                      ", \"rank_imbalance\": %.4f, \"rank_imbalance_data_order\": %.4f", x->imbalance.placed,
                      x->imbalance.data);
    n += snprintf(line + n, sizeof line - (size_t)n, "%s}\n", wire);
    mt_say_to(m->fd, line, n);
    m->tokens_since_log += x->step_tokens;
    m->step_s_since_log += x->step_s;
    if (!show) return;
    double now = mt_now(), each = (now - m->started) / (double)(x->step - m->first_step);
    rate = (double)m->tokens_since_log / m->step_s_since_log;
    mt_say("step %5lld/%lld %3.0f%%  loss %.4f  norm %.3f  lr %.2e  %6.0f tok/s  MFU %4.1f%%",
           (long long)x->step, (long long)x->steps, 100.0 * (double)x->step / (double)x->steps, x->loss,
           x->grad_norm, x->lr, rate,
           m->peak_flops > 0 ? 100 * rate * m->flops_per_token / m->peak_flops : 0);
    if (x->balance > 0) mt_say("  experts %.2fx", x->balance);
    mt_say("  data %.0f ms  mem %.0f MiB  ETA %.0f s\n", 1e3 * x->data_wait_s,
           (double)s->plan.peak[MT_DEVICE_ARENA] / (1 << 20), each * (double)(x->steps - x->step));
    m->tokens_since_log = 0;
    m->step_s_since_log = 0;
}

void mt_metrics_valid(struct mt_metrics *m, int64_t step, double val_loss)
{
    char line[96];
    if (m->fd < 0) return;
    int n = snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"val_loss\": %.17g}\n", step, val_loss);
    mt_say_to(m->fd, line, n);
    mt_say("step %5lld  validation loss %.4f nats a token\n", (long long)step, val_loss);
}
