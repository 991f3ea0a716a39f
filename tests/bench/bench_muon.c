/* The optimizer's update on 4 fake ranks: dense matrices exchanged with their owners, or placed there, against gathered by
 * everyone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "optim/update_record.h"

enum { RANKS = 4, REPEATS = 9, WARM_UP = 2 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Gradients to work on, and none of them clipped. */
static void prepare(struct mt_ctx *ctx, void *arg)
{
    const struct mt_step *t = arg;
    const struct mt_store *st = &t->rank.m->store;
    struct mt_stream *s = &ctx->stream[MT_COMPUTE];
    for (int i = 0; i < st->n_buckets; i++)
        for (int w = 0; w < MT_N_STATES; w++) {
            mt_view v = mt_store_piece(st, i, (enum mt_state)w);
            if (!mt_view_given(v)) continue;
            if (w == MT_STATE_M || w == MT_STATE_V)
                mt_fill0(s, v);
            else
                mt_init_normal(s, v, 7 * i + w, 1000003 * ctx->rank, 0.02);
        }
    mt_fill_f32(s, t->optim->scale, 1);
}
static void update(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    (void)ctx;
    mt_optim_update(t->optim, &t->rank, t->cfg, t->step, 1);
}

struct mode {
    mt_config cfg;
    struct mt_session s;
    double seconds[REPEATS];
    int64_t bytes;
};
static mt_status open_mode(struct mode *m, const char *option, mt_err *e)
{
    static const char *const shape[] = {
        "model.dim=384",        "model.layers=6",        "model.heads=6",   "model.kv_heads=2",
        "model.head_dim=64",    "model.experts=8",       "model.top_k=2",   "model.expert_ffn=256",
        "model.shared_ffn=256", "model.first_dense=0",   "model.vocab=512", "train.seq_len=32",
        "train.global_batch=4", "muon.batch_bytes=1MiB",
    };
    char *arg[32];
    int n = (int)(sizeof shape / sizeof *shape);
    for (int i = 0; i < n; i++) arg[i] = (char *)(uintptr_t)shape[i];
    arg[n++] = (char *)(uintptr_t)option;
    MT_TRY(mt_config_load(&m->cfg, NULL, n, arg, e));
    MT_TRY(mt_session_open(&m->s, &m->cfg, RANKS, false, e));
    m->bytes = update_received(&m->s);
    return mt_session_run(&m->s, prepare, e);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* Median, and the smallest and largest beside it. */
static void print_spread(const char *what, const double *x, const char *unit, double factor)
{
    double y[REPEATS];
    memcpy(y, x, sizeof y);
    qsort(y, REPEATS, sizeof *y, ascending);
    printf("%-34s %9.3f %-3s (%.3f to %.3f)\n", what, y[REPEATS / 2] * factor, unit, y[0] * factor,
           y[REPEATS - 1] * factor);
}

static void print_against(const char *name, const struct mode *m, const struct mode *gather)
{
    double ratio[REPEATS];
    char text[48];
    for (int i = 0; i < REPEATS; i++) ratio[i] = m->seconds[i] / gather->seconds[i];
    snprintf(text, sizeof text, "time, %s / gather", name);
    print_spread(text, ratio, "", 1);
    printf("%-34s %9.3f     (%.2f MiB / %.2f MiB)\n", "bytes on the wire, the same ratio",
           (double)m->bytes / (double)gather->bytes, (double)m->bytes / (1 << 20),
           (double)gather->bytes / (1 << 20));
    printf("%-34s %9.3f     busiest rank over the mean\n", "balance of the owners",
           mt_owners_imbalance(m->s.rank[0].optim.muon.load, RANKS));
}

enum { GATHER, EXCHANGE, OWNED, MODES };
static mt_status run(struct mode *m, mt_err *e)
{
    static const char *const option[MODES] = {"muon.dense=gather", "muon.dense=exchange",
                                              "shard.groups=[{match: 'layers.*.attn.*.weight', placement: "
                                              "owned}, {match: '*.shared.*', placement: owned}]"};
    for (int k = 0; k < MODES; k++) MT_TRY(open_mode(&m[k], option[k], e));
    for (int i = -WARM_UP; i < REPEATS; i++)
        for (int k = 0; k < MODES; k++) { /* in turns: what disturbs the machine disturbs all */
            double t0 = now();
            MT_TRY(mt_session_run(&m[k].s, update, e));
            if (i >= 0) m[k].seconds[i] = now() - t0;
        }
    printf("Muon update on %d ranks, %d dense matrices, median of %d (smallest to largest)\n", RANKS,
           m[EXCHANGE].s.rank[0].optim.muon.n_dense, REPEATS);
    print_spread("gather, every rank iterates", m[GATHER].seconds, "ms", 1e3);
    print_spread("exchange, owners iterate", m[EXCHANGE].seconds, "ms", 1e3);
    print_spread("owned, placed where iterated on", m[OWNED].seconds, "ms", 1e3);
    print_against("exchange", &m[EXCHANGE], &m[GATHER]);
    print_against("owned", &m[OWNED], &m[GATHER]);
    return MT_OK;
}

int main(void)
{
    struct mode *m = calloc(MODES, sizeof *m);
    mt_err e = {0};
    mt_status st = m ? run(m, &e) : MT_IO;
    if (st != MT_OK) fprintf(stderr, "bench_muon: %s\n", e.msg);
    for (int k = 0; m && k < MODES; k++) mt_session_close(&m[k].s);
    free(m);
    return st;
}
