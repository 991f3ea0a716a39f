#include "train/loop.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/features.h"
#include "ckpt/ckpt.h"
#include "ckpt/share.h"
#include "data/loader.h"
#include "optim/schedule.h"
#include "train/folder.h"
#include "train/metrics.h"
#include "train/say.h"
#include "train/tracing.h"
#include "train/usage.h"
#include "train/wire.h"

struct run {
    const mt_config *cfg;
    const struct mt_job *job;
    struct mt_session s;
    struct mt_metrics metrics;
    struct mt_tracing tracing;
    struct mt_ckpt_items items; /* what a checkpoint holds, of all ranks */
    int64_t *routed;            /* rows of every block's experts, for the metrics */
    int world;
    struct mt_ckpt_meta at; /* steps done, tokens seen */
    mt_loader *loader;
    int32_t *staging; /* prefetched batches: [prefetch][ranks here][4][micro N] */
    int64_t saved;    /* step of the newest checkpoint, -1: none */
    int64_t stop;     /* end of this process by run.stop_after */
    int lock;         /* the run's folder, locked against a second job; -1: not open */
};

/* ---- signals: blocked in every thread and polled between steps, so no handler and no global is needed ---- */
static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    return set;
}
void mt_train_block_signals(void)
{
    sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
/* A launcher passes signals on to each process in its own time. */
static bool asked_to_stop(const struct run *r)
{
    sigset_t set = stop_signals();
    return mt_job_any(r->job, sigtimedwait(&set, NULL, &(struct timespec){0, 0}) > 0);
}

/* ---- start ---- */
static mt_data_options data_options(const mt_config *c, const struct mt_job *job)
{
    struct mt_shape d = mt_shape_of(c);
    return (mt_data_options){
        .train = c->data_train,
        .valid = c->data_valid,
        .valid_fraction = c->data_valid_fraction,
        .mode = c->data_mode == MT_DATA_MODE_PACKED ? MT_DATA_PACKED : MT_DATA_WINDOWS,
        .document_mask = c->data_document_mask,
        .reset_positions = c->data_reset_positions,
        .eod = c->data_eod,
        .seq_len = c->train_seq_len,
        .micro_batch = c->train_micro_batch,
        .global_batch = c->train_global_batch,
        .vocab = c->model_vocab,
        .n_ranks = job->world,
        .local_ranks = job->n_local,
        .prefetch = c->data_prefetch,
        .seed = (uint64_t)c->train_seed,
        .balance = c->data_balance == MT_BALANCE_ATTENTION,
        .together = c->train_micro_order == MT_MICRO_ORDER_LAYER && c->mesh_ep == 1,
        .price = mt_balance_price_of(mt_flops_per_token(&d, 0) / 6, d.L, d.H, d.A, d.B),
    };
}

/* Masters from a checkpoint of this run, from another run's weights, or fresh; the working copies follow. */
static mt_status initial_state(struct run *r, const char *resume, mt_err *e)
{
    const mt_config *c = r->cfg;
    if (resume[0]) {
        mt_config old;
        MT_TRY(mt_ckpt_config(resume, &old, e));
        MT_TRY(mt_config_resume_check(&old, c, e));
        MT_TRY(mt_ckpt_load(resume, &r->items, false, &r->at, e));
        r->saved = r->at.step;
        return mt_session_run(&r->s, mt_pack_step, e);
    }
    MT_TRY(mt_session_run(&r->s, mt_fill_step, e));
    if (!c->init_from[0]) return MT_OK;
    struct mt_ckpt_meta ignored;
    MT_TRY(mt_ckpt_load(c->init_from, &r->items, true, &ignored, e));
    return mt_session_run(&r->s, mt_pack_step, e);
}

/* Tokens of one rank in a step. */
static int64_t tokens_of_rank(const struct run *r)
{
    const struct mt_model *m = &r->s.rank[0].model;
    return m->opt.micro_batches * m->shape.N;
}
static mt_sample slot_of(const struct run *r, int i, int64_t step)
{
    int64_t n = tokens_of_rank(r);
    int32_t *p = r->staging + (step % r->cfg->data_prefetch * r->s.n_local + i) * 4 * n;
    return (mt_sample){p, p + n, p + 2 * n, p + 3 * n};
}
static mt_status prefetch(struct run *r, int64_t step, mt_err *e)
{
    for (int i = 0; i < r->s.n_local; i++) {
        mt_sample out = slot_of(r, i, step);
        MT_TRY(mt_loader_prefetch(r->loader, r->s.first + i, step, &out, e));
    }
    return MT_OK;
}

static mt_status open_items(struct run *r, mt_err *e)
{
    struct mt_ckpt_rank *rank = calloc((size_t)r->s.n_local, sizeof *rank);
    mt_status st = rank ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d ranks", r->s.n_local);
    for (int i = 0; i < r->s.n_local && rank; i++)
        rank[i] = (struct mt_ckpt_rank){&r->s.rank[i].model, &r->s.rank[i].ctx};
    if (rank) st = mt_ckpt_items_open(&r->items, rank, r->s.n_local, e);
    free(rank);
    st = mt_job_agree(r->job, st, e);
    return st == MT_OK ? mt_ckpt_items_share(&r->items, r->job, e) : st;
}

/* Processes of two builds, or of two configurations, would not do the same. */
static mt_status same_everywhere(const struct run *r, mt_err *e)
{
    char build[80], *text = NULL;
    size_t bytes = 0;
    snprintf(build, sizeof build, "%s, operations %016" PRIx64, MT_VERSION, mt_op_table_hash());
    MT_TRY(mt_job_same(r->job, "the program (its version)", build, e));
    FILE *f = open_memstream(&text, &bytes);
    mt_status st = f ? MT_OK : mt_err_set(e, MT_IO, "no memory for the configuration's text");
    if (f) mt_config_print_same(r->cfg, f);
    if (f && fclose(f)) st = mt_err_set(e, MT_IO, "no memory for the configuration's text");
    st = mt_job_agree(r->job, st, e);
    if (st == MT_OK) st = mt_job_same(r->job, "the configuration", text, e);
    free(text);
    return st;
}

/* Which rank has which rows, and which matrices it iterates on. */
static mt_status same_layout(const struct run *r, mt_err *e)
{
    char text[40];
    snprintf(text, sizeof text, "hash %016" PRIx64, mt_optim_hash(&r->s.rank[0].optim));
    return mt_job_same(r->job, "the table of owners", text, e);
}

/* The data, and what the configuration says of the number of ranks. */
static mt_status open_data(struct run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    mt_data_options data = data_options(c, r->job);
    MT_REQUIRE(
        c->data_train[0], e, MT_CONFIG,
        "data.train is empty: name the PREFIX of a PREFIX.idx and PREFIX.bin made by `moetitan data pack`");
    MT_TRY(mt_config_check_world(c, r->world, e));
    return mt_loader_open(&r->loader, &data, e);
}

enum { STEPS_AHEAD = 8 }; /* whose imbalance is told at the start */
static mt_status open_rest(struct run *r, mt_imbalance *ahead, mt_err *e)
{
    const mt_config *c = r->cfg;
    const struct mt_shape *d = &r->s.rank[0].model.shape;
    if (r->job->me == 0) MT_TRY(mt_folder_config(c, e));
    if (r->job->me == 0) MT_TRY(mt_loader_imbalance(r->loader, r->at.step, STEPS_AHEAD, ahead, e));
    MT_TRY(mt_metrics_open(&r->metrics, &r->s, r->at.step, e));
    if (c->run_trace_collectives) MT_TRY(mt_wire_trace(&r->s, e));
    MT_TRY(mt_tracing_open(&r->tracing, &r->s, e));
    r->staging =
        malloc((size_t)(c->data_prefetch * r->s.n_local * 4 * tokens_of_rank(r)) * sizeof *r->staging);
    r->routed = calloc((size_t)(d->L * d->E + 1), sizeof *r->routed);
    MT_REQUIRE(r->staging && r->routed, e, MT_IO, "cannot allocate %lld prefetched batches",
               (long long)c->data_prefetch);
    for (int64_t i = 0; i < c->data_prefetch; i++) MT_TRY(prefetch(r, r->at.step + i, e));
    return MT_OK;
}

static void say_imbalance(const struct run *r, const mt_imbalance *x)
{
    if (!(x->data > 0)) return;
    mt_say("balance   the costliest rank takes %.3f times the mean by the lengths of documents", x->placed);
    if (r->cfg->data_balance == MT_BALANCE_ATTENTION) mt_say(", %.3f in the order of the data", x->data);
    mt_say(" (mean of the next %d steps)\n", STEPS_AHEAD);
}

/* The processes agree on each part before the next: all of them leave, or none. */
static mt_status open_run(struct run *r, mt_err *e)
{
    char resume[MT_CKPT_PATH] = "";
    mt_imbalance ahead = {0};
    double t0 = mt_now();
    MT_TRY(same_everywhere(r, e));
    MT_TRY(mt_job_agree(r->job, open_data(r, e), e));
    MT_TRY(mt_session_open_job(&r->s, r->cfg, r->job, false, e));
    MT_TRY(same_layout(r, e));
    MT_TRY(mt_job_agree(r->job, r->job->me ? MT_OK : mt_folder_open(r->cfg, &r->lock, resume, e), e));
    mt_job_broadcast(r->job, resume, sizeof resume, 0);
    MT_TRY(open_items(r, e));
    if (asked_to_stop(r))
        MT_FAIL(e, MT_PREEMPTED, "stopped before the first step; what was saved before is as it was");
    MT_TRY(mt_job_agree(r->job, initial_state(r, resume, e), e));
    MT_TRY(mt_job_agree(r->job, open_rest(r, &ahead, e), e));
    MT_TRY(mt_job_agree(r->job, r->cfg->run_memory ? mt_usage_report(&r->s, e) : MT_OK, e));
    if (r->job->me != 0) return MT_OK;
    mt_metrics_banner(&r->metrics, &r->s);
    say_imbalance(r, &ahead);
    mt_usage_warn(&r->s);
    if (r->cfg->run_print_owners) mt_muon_print(&r->s.rank[0].optim.muon, stdout);
    mt_say("start     %.2f s%s%s\n", mt_now() - t0, resume[0] ? "; going on from " : "", resume);
    return MT_OK;
}

/* ---- a step ---- */
static void sample_to_arena(struct run *r, int rank, mt_sample p)
{
    const struct mt_batch *h = &r->s.rank[rank].model.host;
    const struct mt_ctx *c = &r->s.rank[rank].ctx;
    memcpy(mt_address(c, h->tokens), p.tokens, (size_t)h->tokens.bytes);
    memcpy(mt_address(c, h->labels), p.labels, (size_t)h->labels.bytes);
    memcpy(mt_address(c, h->begin), p.begin, (size_t)h->begin.bytes);
    memcpy(mt_address(c, h->pos), p.pos, (size_t)h->pos.bytes);
}

static mt_status batch_to_arenas(struct run *r, struct mt_metrics_step *x, mt_err *e)
{
    for (int i = 0; i < r->s.n_local; i++) {
        mt_batch_info info;
        MT_TRY(mt_loader_wait(r->loader, r->s.first + i, r->at.step, &info, e));
        sample_to_arena(r, i, slot_of(r, i, r->at.step));
        x->data_wait_s += info.waited_s;
        x->imbalance = info.imbalance; /* of the step: equal on all ranks */
    }
    return prefetch(r, r->at.step + r->cfg->data_prefetch, e);
}

/* The busiest expert's rows over the mean, in the block where that is worst, over all ranks and micro-batches. */
static double balance(const struct run *r)
{
    const struct mt_model *m = &r->s.rank[0].model;
    const struct mt_shape *d = &m->shape;
    double worst = 0,
           mean = (double)(r->world * m->opt.micro_batches * d->N * d->K) / (double)(d->E ? d->E : 1);
    memset(r->routed, 0, (size_t)(d->L * d->E) * sizeof *r->routed);
    for (int64_t l = 0; l < d->L; l++)
        for (int64_t x = 0; x < d->E && mt_is_moe(d, l); x++)
            for (int i = 0; i < r->s.n_local; i++)
                for (int64_t b = 0; b < m->opt.micro_batches; b++)
                    r->routed[l * d->E + x] += mt_rank_counts(&r->s.rank[i].step.rank, b, (int)l)[x];
    if (d->E) mt_job_sum(r->job, r->routed, d->L * d->E);
    for (int64_t i = 0; i < d->L * d->E; i++)
        if ((double)r->routed[i] / mean > worst) worst = (double)r->routed[i] / mean;
    return worst;
}

static void prepare_step(struct run *r)
{
    const mt_config *c = r->cfg;
    double factor = mt_lr_factor(r->at.step, c->train_steps, c->optim_warmup_steps, c->optim_decay_ratio,
                                 c->optim_decay, c->optim_min_lr_ratio);
    for (int i = 0; i < r->s.n_local; i++) {
        struct mt_step *t = &r->s.rank[i].step;
        t->step = r->at.step;
        t->micro = r->s.rank[i].model.opt.micro_batches;
        t->lr_factor = factor;
    }
}

/* Between these agreements a failure is this process's alone, and the others already wait for it in a collective. */
static mt_status fatal(const struct run *r, mt_status st, const mt_err *e)
{
    return mt_job_fatal(r->job, st, e);
}

static mt_status run_step(struct run *r, mt_err *e)
{
    bool traced = mt_tracing_wants(&r->s, r->at.step + 1);
    if (traced) mt_tracing_begin(&r->tracing, &r->s);
    mt_status st = mt_session_run(&r->s, mt_train_step, e);
    if (traced) mt_tracing_end(&r->tracing, &r->s);
    if (st != MT_OK) mt_wire_dump(&r->s);
    return st;
}

/* A trace that cannot be written is told, and does not end the run. */
static void tell_trace(struct run *r)
{
    mt_err e = {0};
    if (!mt_tracing_wants(&r->s, r->at.step)) return;
    if (mt_tracing_write(&r->tracing, &r->s, r->at.step, &e) != MT_OK && r->job->me == 0)
        fprintf(stderr, "moetitan: %s\n", e.msg);
}

/* What the step found is what it should be: equal on all ranks. */
static mt_status check_step(const struct run *r, mt_err *e)
{
    const struct mt_step *t = &r->s.rank[0].step;
    char newest[64] = "There is no checkpoint";
    MT_REQUIRE(t->valid > 0, e, MT_DATA,
               "step %lld: none of its tokens has a successor in its own document, so there is nothing to "
               "learn from; use longer documents, or "
               "a larger train.seq_len or train.global_batch",
               (long long)t->step + 1);
    if (t->updated) return MT_OK;
    if (r->saved >= 0)
        snprintf(newest, sizeof newest, "The newest checkpoint is of step %lld", (long long)r->saved);
    MT_FAIL(e, MT_NONFINITE,
            "step %lld: the loss is %g and the gradient norm %g; the weights were left as they were. %s; a "
            "lower optim.lr or a longer "
            "optim.warmup_steps may help",
            (long long)t->step + 1, t->loss / (double)t->valid, t->norm, newest);
}

static mt_status one_step(struct run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    const struct mt_step *t = &r->s.rank[0].step; /* what every rank found */
    struct mt_metrics_step x = {.steps = c->train_steps,
                                .step_tokens = c->train_global_batch * c->train_seq_len};
    double t0 = mt_now();
    MT_TRY(fatal(r, batch_to_arenas(r, &x, e), e));
    prepare_step(r);
    MT_TRY(fatal(r, run_step(r, e), e));
    MT_TRY(check_step(r, e));
    r->at.step++;
    r->at.tokens += x.step_tokens;
    x.step = r->at.step;
    x.tokens = r->at.tokens;
    x.loss = t->loss / (double)t->valid;
    x.grad_norm = t->norm;
    x.lr = c->optim_lr * t->lr_factor;
    x.balance = balance(r);
    x.step_s = mt_now() - t0;
    mt_metrics_step(&r->metrics, &r->s, &x,
                    r->at.step % c->train_log_interval == 0 || r->at.step == 1 ||
                        r->at.step == c->train_steps);
    if (c->run_traffic && x.step == r->metrics.first_step + 1) MT_TRY(mt_wire_report(&r->s, x.step, e));
    tell_trace(r);
    return MT_OK;
}

/* ---- validation ---- */
/* Validation micro-batch number `batch` of the i-th rank here into place b of its arena: the ranks take turns. */
static mt_status valid_to_arena(struct run *r, int i, int64_t b, int64_t batch, mt_err *e)
{
    const struct mt_batch *h = &r->s.rank[i].model.host;
    const struct mt_ctx *c = &r->s.rank[i].ctx;
    int64_t n = r->s.rank[i].model.shape.N, ignored = 0;
    mt_sample out = {(int32_t *)mt_address(c, h->tokens) + b * n, (int32_t *)mt_address(c, h->labels) + b * n,
                     (int32_t *)mt_address(c, h->begin) + b * n, (int32_t *)mt_address(c, h->pos) + b * n};
    return mt_loader_valid_batch(r->loader, (batch * r->world + r->s.first + i) * r->cfg->train_micro_batch,
                                 &out, &ignored, e);
}

static mt_status validate(struct run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    int64_t each = c->train_micro_batch * r->world,
            batches = (mt_loader_n_valid(r->loader) + each - 1) / each, valid = 0, micro,
            most = r->s.rank[0].model.opt.micro_batches;
    double loss = 0;
    if (batches > c->train_eval_batches) batches = c->train_eval_batches;
    for (int64_t at = 0; at < batches; at += micro) {
        micro = batches - at < most ? batches - at : most;
        for (int i = 0; i < r->s.n_local; i++) {
            r->s.rank[i].step.micro = micro;
            for (int64_t b = 0; b < micro; b++) MT_TRY(fatal(r, valid_to_arena(r, i, b, at + b, e), e));
        }
        MT_TRY(fatal(r, mt_session_run(&r->s, mt_eval_step, e), e));
        loss += r->s.rank[0].step.loss;
        valid += r->s.rank[0].step.valid;
    }
    if (valid) mt_metrics_valid(&r->metrics, r->at.step, loss / (double)valid);
    return MT_OK;
}

/* ---- checkpoints ---- */
/* The first process's part of a save. A save that fails is told and does not end the run: the next one is tried, and the
 * caller knows by r->saved. */
static void write_checkpoint(struct run *r)
{
    mt_err e = {0};
    double t0 = mt_now();
    mt_status st = mt_ckpt_save(r->cfg->run_dir, &r->items, &r->at, r->cfg, &e);
    mt_ckpt_fetched(&r->items);
    if (st != MT_OK) {
        fprintf(stderr, "moetitan: %s\n", e.msg);
        return;
    }
    r->saved = r->at.step;
    mt_say("step %5lld  checkpoint %s/ckpt/step-%08lld in %.2f s\n", (long long)r->at.step, r->cfg->run_dir,
           (long long)r->at.step, mt_now() - t0);
    if (mt_ckpt_prune(r->cfg->run_dir, r->cfg->ckpt_keep_last, &e) != MT_OK)
        fprintf(stderr, "moetitan: %s\n", e.msg);
}

static void save(struct run *r)
{
    if (r->saved == r->at.step) return;
    if (r->job->me == 0)
        write_checkpoint(r);
    else
        mt_ckpt_serve(&r->items);
    mt_job_broadcast(r->job, &r->saved, sizeof r->saved, 0);
}

static mt_status leave(struct run *r, bool early, mt_err *e)
{
    if (early || r->cfg->ckpt_at_end) {
        save(r);
        MT_REQUIRE(r->saved == r->at.step, e, MT_IO,
                   "the run ends at step %lld and its last checkpoint could not be written (see above)",
                   (long long)r->at.step);
    }
    if (early)
        MT_FAIL(e, MT_PREEMPTED,
                "stopped after step %lld of %lld; everything is saved, the same command goes on from there",
                (long long)r->at.step, (long long)r->cfg->train_steps);
    return MT_OK;
}

static mt_status loop(struct run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    if (r->at.step >= c->train_steps && r->job->me == 0)
        mt_say("step %5lld  nothing to do: train.steps is %lld\n", (long long)r->at.step,
               (long long)c->train_steps);
    while (r->at.step < c->train_steps) {
        MT_TRY(one_step(r, e));
        bool last = r->at.step == c->train_steps;
        if (c->train_eval_interval && (last || r->at.step % c->train_eval_interval == 0))
            MT_TRY(validate(r, e));
        if (!last && c->ckpt_interval && r->at.step % c->ckpt_interval == 0) save(r);
        if (!last && (asked_to_stop(r) || r->at.step == r->stop)) return leave(r, true, e);
    }
    return leave(r, false, e);
}

static void close_run(struct run *r)
{
    mt_loader_close(r->loader);
    mt_metrics_close(&r->metrics);
    mt_ckpt_items_close(&r->items);
    mt_wire_trace_end(&r->s);
    mt_tracing_close(&r->tracing);
    mt_session_close(&r->s);
    free(r->staging);
    free(r->routed);
    if (r->lock >= 0) close(r->lock);
}

mt_status mt_train(const mt_config *cfg, const struct mt_job *job, mt_err *e)
{
    struct run r = {.cfg = cfg, .job = job, .world = job->world, .saved = -1, .metrics.fd = -1, .lock = -1};
    mt_job_deadline(job, cfg->run_hang_timeout);
    mt_status st = open_run(&r, e);
    r.stop = cfg->run_stop_after ? r.at.step + cfg->run_stop_after : -1;
    if (st == MT_OK) st = loop(&r, e);
    close_run(&r);
    return st;
}
