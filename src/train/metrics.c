#include "train/metrics.h"

#include "train/say.h"
#include "train/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- opening ---- */
/* Copies the lines of steps up to `step` to a new file, which then replaces the old one. */
static mt_status keep_lines(const char *path, int64_t step, mt_err *e)
{
    char tmp[MT_CONFIG_PATH + 32], *line = NULL;
    size_t room = 0;
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    FILE *in = fopen(path, "r");
    if (!in) return MT_OK;
    FILE *out = fopen(tmp, "w");
    while (out && getline(&line, &room, in) > 0) {
        int64_t at;
        if (strchr(line, '\n') && sscanf(line, "{\"step\": %" SCNd64, &at) == 1 && at <= step)
            fputs(line, out);
    }
    free(line);
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

static mt_status open_lines(const mt_config *c, const char *name, int64_t step, int *fd, mt_err *e)
{
    char path[MT_CONFIG_PATH + 16];
    snprintf(path, sizeof path, "%s/%s", c->run_dir, name);
    MT_TRY(keep_lines(path, step, e));
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    MT_REQUIRE(*fd >= 0, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    return MT_OK;
}
static mt_status open_experts(struct mt_metrics *m, const struct mt_session *s, int64_t step, mt_err *e)
{
    enum { NUMBER = 22, FRAME = 256 }; /* characters of a count with its comma; of the rest of a line */
    const struct mt_shape *d = &s->rank[0].model.shape;
    if (!s->cfg->run_expert_interval || !d->E) return MT_OK;
    m->line_room = (size_t)(d->L * (d->E * NUMBER + NUMBER + 4)) + FRAME;
    m->line = malloc(m->line_room);
    MT_REQUIRE(m->line, e, MT_IO, "no memory for a line of experts.jsonl");
    return open_lines(s->cfg, "experts.jsonl", step, &m->experts_fd, e);
}

mt_status mt_metrics_open(struct mt_metrics *m, const struct mt_session *s, int64_t step, mt_err *e)
{
    const struct mt_shape *d = &s->rank[0].model.shape;
    *m = (struct mt_metrics){.fd = -1, .experts_fd = -1, .statm = -1, .first_step = step};
    if (s->job.me != 0) return MT_OK;
    MT_TRY(open_lines(s->cfg, "metrics.jsonl", step, &m->fd, e));
    MT_TRY(open_experts(m, s, step, e));
    MT_TRY(mt_telemetry_open(&m->telemetry, s->cfg, step, e));
    m->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    m->flops_per_token = mt_flops_per_token(d, (double)d->S);
    m->peak_flops = s->device ? s->device->peak_flops(s->backend, s->cfg->train_dtype) : measure_peak(s);
    m->started = m->last_log = mt_now();
    return MT_OK;
}

void mt_metrics_close(struct mt_metrics *m)
{
    if (m->fd >= 0) close(m->fd);
    /* Before it was opened all of it is zeros. */
    if (m->fd >= 0 && m->statm >= 0) close(m->statm);
    if (m->line && m->experts_fd >= 0) close(m->experts_fd);
    free(m->line);
    mt_telemetry_close(&m->telemetry);
    *m = (struct mt_metrics){.fd = -1, .experts_fd = -1, .statm = -1};
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
    if (s->cfg->moe_routing == MT_ROUTING_BALANCED)
        mt_say("\nrouting   balanced by force (moe.routing), to measure speed: what is learned is of no use");
    if (s->device)
        mt_say("\ndevice    %s, %s; %s; at most %.0f GFLOP/s by its clock\n", s->target->name,
               mt_dtype_name(s->cfg->train_dtype), s->found, m->peak_flops / 1e9);
    else
        mt_say("\ndevice    %s, %d workers, %s; GEMM peak %.0f GFLOP/s (best 256x512x512 product, measured, "
               "times workers)%s%s\n",
               s->target->name, mt_exec_workers(s->exec), mt_dtype_name(s->cfg->train_dtype),
               m->peak_flops / 1e9, s->found[0] ? "; " : "", s->found);
    if (s->chosen[0]) mt_say("chosen    %s\n", s->chosen);
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

/* Memory of this process that is really there, with the pages of libraries; 0: not told. */
static int64_t resident_bytes(const struct mt_metrics *m)
{
    char text[96];
    int64_t pages;
    ssize_t n = m->statm >= 0 ? pread(m->statm, text, sizeof text - 1, 0) : 0;
    if (n <= 0) return 0;
    text[n] = 0;
    return sscanf(text, "%*s %" SCNd64, &pages) == 1 ? pages * sysconf(_SC_PAGESIZE) : 0;
}

static bool tells_experts(const struct mt_metrics *m, const struct mt_session *s,
                          const struct mt_metrics_step *x)
{
    return m->line && x->routed &&
           (x->step == 1 || x->step == x->steps || x->step % s->cfg->run_expert_interval == 0);
}
/* {"step": 10, "layers": {"1": [12, 40, ...], ...}} */
static void tell_experts(const struct mt_metrics *m, const struct mt_session *s,
                         const struct mt_metrics_step *x)
{
    const struct mt_shape *d = &s->rank[0].model.shape;
    const char *comma = "";
    size_t n = 0;
#define PUT(...) n += (size_t)snprintf(m->line + n, m->line_room - n, __VA_ARGS__)
    PUT("{\"step\": %" PRId64 ", \"layers\": {", x->step);
    for (int64_t l = 0; l < d->L; l++) {
        if (!mt_is_moe(d, l)) continue;
        PUT("%s\"%" PRId64 "\": [", comma, l);
        for (int64_t k = 0; k < d->E; k++) PUT("%s%" PRId64, k ? "," : "", x->routed[l * d->E + k]);
        PUT("]");
        comma = ", ";
    }
    PUT("}}\n");
#undef PUT
    mt_say_to(m->experts_fd, m->line, (int)n);
}

/* Those that have a coefficient, by the names of their options. */
static int aux_fields(const struct mt_session *s, const struct mt_metrics_step *x, char *out, size_t size)
{
    static const char *const name[] = {
        [MT_AUX_SEQUENCE] = "aux_loss_sequence", [MT_AUX_GLOBAL] = "aux_loss_global", [MT_AUX_Z] = "z_loss"};
    int n = 0;
    for (int i = 0; i < MT_N_AUX; i++)
        if (s->rank[0].model.opt.aux[i] > 0)
            n += snprintf(out + n, size - (size_t)n, ", \"%s\": %.9g", name[i], x->aux[i]);
    return n;
}

static void tell_watchers(struct mt_metrics *m, const struct mt_session *of, const struct mt_metrics_step *x,
                          double rate, double mfu, bool show)
{
    static const int aux[] = {[MT_AUX_SEQUENCE] = MT_SCALAR_aux_loss_sequence,
                              [MT_AUX_GLOBAL] = MT_SCALAR_aux_loss_global,
                              [MT_AUX_Z] = MT_SCALAR_z_loss};
    struct mt_scalars s;
    mt_scalars_none(&s, x->step);
    s.x[MT_SCALAR_loss] = x->loss;
    s.x[MT_SCALAR_grad_norm] = x->grad_norm;
    s.x[MT_SCALAR_lr] = x->lr;
    s.x[MT_SCALAR_tokens] = (double)x->tokens;
    s.x[MT_SCALAR_tokens_per_s] = rate;
    s.x[MT_SCALAR_mfu] = mfu;
    s.x[MT_SCALAR_data_wait_s] = x->data_wait_s;
    if (x->mtp_loss > 0) s.x[MT_SCALAR_mtp_loss] = x->mtp_loss;
    if (x->balance > 0) s.x[MT_SCALAR_expert_balance] = x->balance;
    if (of->rank[0].model.shape.capacity) s.x[MT_SCALAR_dropped] = x->dropped;
    for (int i = 0; i < MT_N_AUX; i++)
        if (of->rank[0].model.opt.aux[i] > 0) s.x[aux[i]] = x->aux[i];
    if (of->rank[0].model.opt.tops) s.x[MT_SCALAR_max_score] = x->top;
    mt_telemetry_tell(&m->telemetry, &s, show);
}

void mt_metrics_step(struct mt_metrics *m, const struct mt_session *s, const struct mt_metrics_step *x,
                     bool show)
{
    char line[2040], wire[700] = "";
    if (s->world > 1)
        (void)mt_wire_fields(s, s->cfg->run_traffic, wire, sizeof wire); /* all processes add up theirs */
    if (m->fd < 0) return;
    double rate = (double)x->step_tokens / x->step_s;
    /* A row that was dropped is no work done. */
    double flops = m->flops_per_token - x->dropped * mt_flops_of_experts(&s->rank[0].model.shape);
    double mfu = m->peak_flops > 0 ? rate * flops / m->peak_flops : 0;
    int n =
        snprintf(line, sizeof line,
                 "{\"step\": %" PRId64 ", \"tokens\": %" PRId64
                 ", \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": %.9g, "
                 "\"tokens_per_s\": %.1f, \"mfu\": %.4f, \"data_wait_s\": %.6f, \"device_bytes\": %" PRId64
                 ", \"host_bytes\": %" PRId64 ", \"resident_bytes\": %" PRId64 ", \"exposed_s\": %.6f",
                 x->step, x->tokens, x->loss, x->grad_norm, x->lr, rate, mfu, x->data_wait_s,
                 s->plan.peak[MT_DEVICE_ARENA], s->plan.peak[MT_HOST_ARENA], resident_bytes(m), x->exposed_s);
    if (x->mtp_loss > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"mtp_loss\": %.17g", x->mtp_loss);
    if (x->balance > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"routing\": \"%s\", \"expert_balance\": %.3f",
                      mt_choices_routing[s->cfg->moe_routing], x->balance);
    if (s->rank[0].model.shape.capacity)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"dropped\": %.6f", x->dropped);
    n += aux_fields(s, x, line + n, sizeof line - (size_t)n);
    if (s->rank[0].model.opt.tops)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"max_score\": %.9g", x->top);
    if (x->imbalance.data > 0)
        n += snprintf(line + n, sizeof line - (size_t)n,
                      ", \"rank_imbalance\": %.4f, \"rank_imbalance_data_order\": %.4f", x->imbalance.placed,
                      x->imbalance.data);
    n += snprintf(line + n, sizeof line - (size_t)n, "%s%s}\n", wire, x->ranks);
    mt_say_to(m->fd, line, n);
    if (tells_experts(m, s, x)) tell_experts(m, s, x);
    tell_watchers(m, s, x, rate, mfu, show);
    m->tokens_since_log += x->step_tokens;
    m->step_s_since_log += x->step_s;
    if (!show) return;
    double now = mt_now(), each = (now - m->started) / (double)(x->step - m->first_step);
    rate = (double)m->tokens_since_log / m->step_s_since_log;
    mt_say("step %5lld/%lld %3.0f%%  loss %.4f  norm %.3f  lr %.2e  %6.0f tok/s  MFU %4.1f%%",
           (long long)x->step, (long long)x->steps, 100.0 * (double)x->step / (double)x->steps, x->loss,
           x->grad_norm, x->lr, rate, m->peak_flops > 0 ? 100 * rate * flops / m->peak_flops : 0);
    if (x->mtp_loss > 0) mt_say("  mtp %.4f", x->mtp_loss);
    if (x->balance > 0)
        mt_say("  experts %.2fx%s", x->balance, s->cfg->moe_routing == MT_ROUTING_BALANCED ? " forced" : "");
    if (s->rank[0].model.shape.capacity) mt_say("  dropped %.2f%%", 100 * x->dropped);
    mt_say("  data %.0f ms  mem %.0f MiB  ETA %.0f s\n", 1e3 * x->data_wait_s,
           (double)s->plan.peak[MT_DEVICE_ARENA] / (1 << 20), each * (double)(x->steps - x->step));
    m->tokens_since_log = 0;
    m->step_s_since_log = 0;
}

/* JSON has no other numbers than finite ones. */
static int json_number(char *out, size_t size, const char *key, double x)
{
    return isfinite(x) ? snprintf(out, size, ", \"%s\": %.17g", key, x)
                       : snprintf(out, size, ", \"%s\": null", key);
}
void mt_metrics_left_out(struct mt_metrics *m, const struct mt_metrics_step *x, bool spike, int64_t rollback)
{
    char line[320];
    if (m->fd < 0) return;
    int n = snprintf(line, sizeof line, "{\"step\": %" PRId64, x->step);
    if (rollback >= 0) n += snprintf(line + n, sizeof line - (size_t)n, ", \"rollback\": %" PRId64, rollback);
    n += snprintf(line + n, sizeof line - (size_t)n, ", \"skipped\": \"%s\"", spike ? "spike" : "nonfinite");
    n += json_number(line + n, sizeof line - (size_t)n, "loss", x->loss);
    n += json_number(line + n, sizeof line - (size_t)n, "grad_norm", x->grad_norm);
    n += snprintf(line + n, sizeof line - (size_t)n, "}\n");
    mt_say_to(m->fd, line, n);
}

void mt_metrics_valid(struct mt_metrics *m, int64_t step, double val_loss)
{
    char line[96];
    if (m->fd < 0) return;
    int n = snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"val_loss\": %.17g}\n", step, val_loss);
    mt_say_to(m->fd, line, n);
    struct mt_scalars s;
    mt_scalars_none(&s, step);
    s.x[MT_SCALAR_valid_loss] = val_loss;
    mt_telemetry_tell(&m->telemetry, &s, false);
    mt_say("step %5lld  validation loss %.4f nats a token\n", (long long)step, val_loss);
}
