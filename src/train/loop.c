#include "train/loop.h"

#include <stdio.h>
#include <string.h>

#include "optim/schedule.h"
#include "train/run.h"
#include "train/say.h"
#include "train/wire.h"

static void sample_to_arena(struct mt_run *r, int rank, mt_sample p)
{
    const struct mt_batch *h = &r->s.rank[rank].model.host;
    const struct mt_ctx *c = &r->s.rank[rank].ctx;
    memcpy(mt_address(c, h->tokens), p.tokens, (size_t)h->tokens.bytes);
    memcpy(mt_address(c, h->labels), p.labels, (size_t)h->labels.bytes);
    memcpy(mt_address(c, h->begin), p.begin, (size_t)h->begin.bytes);
    memcpy(mt_address(c, h->pos), p.pos, (size_t)h->pos.bytes);
    mt_mtp_batch(c, &r->s.rank[rank].model);
}

static mt_status batch_to_arenas(struct mt_run *r, struct mt_metrics_step *x, mt_err *e)
{
    for (int i = 0; i < r->s.n_local; i++) {
        mt_batch_info info;
        MT_TRY(mt_loader_wait(r->loader, r->s.first + i, r->at.step, &info, e));
        sample_to_arena(r, i, mt_run_slot(r, i, r->at.step));
        x->data_wait_s += info.waited_s;
        mt_stragglers_data(&r->stragglers, &r->s, i, info.waited_s);
        x->imbalance = info.imbalance; /* of the step: equal on all ranks */
    }
    return mt_run_prefetch(r, r->at.step + r->cfg->data_prefetch, e);
}

/* The busiest expert's rows over the mean, in the block where that is worst, over all ranks and micro-batches. */
static double balance(const struct mt_run *r)
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

/* The share of rows that experts were asked for and did not get; after balance. */
static double dropped(const struct mt_run *r)
{
    const struct mt_shape *d = &r->s.rank[0].model.shape;
    double got = 0, asked = (double)(r->cfg->train_global_batch * d->S * d->K * (d->L - d->first_dense));
    for (int64_t i = 0; i < d->L * d->E; i++) got += (double)r->routed[i];
    return d->capacity ? 1 - got / asked : 0;
}

static void prepare_step(struct mt_run *r)
{
    const mt_config *c = r->cfg;
    double factor = mt_lr_factor(r->at.step, c->train_steps, c->optim_warmup_steps, c->optim_decay_ratio,
                                 c->optim_decay, c->optim_min_lr_ratio);
    for (int i = 0; i < r->s.n_local; i++) {
        struct mt_step *t = &r->s.rank[i].step;
        t->step = r->at.step;
        t->micro = r->s.rank[i].model.opt.micro_batches;
        t->lr_factor = factor;
        mt_guard_limit(&r->guard, t);
    }
}

static mt_status run_step(struct mt_run *r, mt_err *e)
{
    bool traced = mt_tracing_wants(&r->s, r->at.step + 1);
    if (traced) mt_tracing_begin(&r->tracing, &r->s);
    mt_status st = mt_session_run(&r->s, mt_train_step, e);
    if (traced) mt_tracing_end(&r->tracing, &r->s);
    if (st != MT_OK) mt_wire_dump(&r->s);
    return st;
}

/* A trace that cannot be written is told, and does not end the run. */
static void tell_trace(struct mt_run *r)
{
    mt_err e = {0};
    if (!mt_tracing_wants(&r->s, r->at.step)) return;
    if (mt_tracing_write(&r->tracing, &r->s, r->at.step, &e) != MT_OK && r->job->me == 0)
        fprintf(stderr, "moetitan: %s\n", e.msg);
}

/* Behind the first step, which was the first to do what had been chosen. */
static void tell_choices(const struct mt_run *r)
{
    char text[1024];
    if (r->s.device && r->job->me == 0 && r->s.device->fell_back(r->s.backend, text, sizeof text))
        mt_say("chosen    %s\n", text);
}

static mt_status check_step(const struct mt_step *t, mt_err *e)
{
    MT_REQUIRE(t->valid > 0, e, MT_DATA,
               "step %lld: none of its tokens has a successor in its own document, so there is nothing to "
               "learn from; use longer documents, or "
               "a larger train.seq_len or train.global_batch",
               (long long)t->step + 1);
    return MT_OK;
}

/* The step was applied: what it found, for the metrics and for those that watch. */
static mt_status tell_step(struct mt_run *r, struct mt_metrics_step *x, double begun, mt_err *e)
{
    const mt_config *c = r->cfg;
    bool show = x->step % c->train_log_interval == 0 || x->step == 1 || x->step == c->train_steps;
    char ranks[MT_STRAGGLERS_TEXT];
    mt_guard_add(&r->guard, x->loss, x->grad_norm);
    mt_stragglers_step(&r->stragglers, &r->s, &r->nodes, x->step, show, ranks);
    x->ranks = ranks;
    x->lr = c->optim_lr * r->s.rank[0].step.lr_factor;
    x->balance = balance(r);
    x->routed = r->routed;
    x->dropped = dropped(r);
    x->step_s = mt_now() - begun;
    mt_metrics_step(&r->metrics, &r->s, x, show);
    if (c->run_traffic && x->step == r->metrics.first_step + 1) MT_TRY(mt_wire_report(&r->s, x->step, e));
    tell_trace(r);
    if (x->step == r->metrics.first_step + 1) tell_choices(r);
    return MT_OK;
}

/* Nanoseconds, of all ranks here; the cuda device does not note them. */
static int64_t stood_still(const struct mt_run *r)
{
    return r->s.exec ? mt_exec_stood(r->s.exec) : 0;
}

/* Over modules, of the mean over labels that count: documents may be too short to have any. */
static double mtp_loss(const struct mt_run *r, const struct mt_step *t)
{
    int64_t n = r->s.rank[0].model.shape.mtp;
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += t->mtp_valid[k] ? t->mtp_loss[k] / (double)t->mtp_valid[k] : 0;
    return n ? sum / (double)n : 0;
}
/* Means over tokens and blocks of experts of what routers learn besides. */
static void mean_aux(const struct mt_run *r, const struct mt_step *t, double aux[MT_N_AUX])
{
    const struct mt_shape *d = &r->s.rank[0].model.shape;
    double n = (double)(r->cfg->train_global_batch * d->S * (d->L - d->first_dense));
    for (int i = 0; i < MT_N_AUX && d->E; i++) aux[i] = t->aux[i] / n;
}

static mt_status one_step(struct mt_run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    const struct mt_step *t = &r->s.rank[0].step; /* what every rank found */
    struct mt_metrics_step x = {.steps = c->train_steps,
                                .step_tokens = c->train_global_batch * c->train_seq_len};
    double begun = mt_now();
    int64_t stood = stood_still(r);
    MT_TRY(mt_run_fatal(r, batch_to_arenas(r, &x, e), e));
    prepare_step(r);
    MT_TRY(mt_run_fatal(r, run_step(r, e), e));
    MT_TRY(check_step(t, e));
    x.step = r->at.step + 1;
    x.tokens = r->at.tokens + x.step_tokens;
    x.loss = t->loss / (double)t->valid;
    x.mtp_loss = mtp_loss(r, t);
    x.grad_norm = t->norm;
    mean_aux(r, t, x.aux);
    x.top = (double)t->top;
    if (!t->updated) MT_TRY(mt_run_left_out(r, &x, e));
    r->at.step = x.step;
    r->ending.steps = x.step;
    r->at.tokens = x.tokens;
    x.exposed_s = 1e-9 * (double)(stood_still(r) - stood) / r->s.n_local;
    if (t->updated) MT_TRY(tell_step(r, &x, begun, e));
    if (!c->guard_replica_hash_interval || x.step % c->guard_replica_hash_interval) return MT_OK;
    return mt_replicas_check(&r->replicas, &r->s, &r->nodes, x.step, e);
}

static void save(struct mt_run *r)
{
    mt_watchdog_enter(r->watchdog, MT_PHASE_SAVE, r->at.step);
    mt_run_save(r);
}
static mt_status leave(struct mt_run *r, bool early, mt_err *e)
{
    mt_watchdog_enter(r->watchdog, MT_PHASE_SAVE, r->at.step);
    return mt_run_leave(r, early, e);
}

static mt_status loop(struct mt_run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    if (r->at.step >= c->train_steps && r->job->me == 0)
        mt_say("step %5lld  nothing to do: train.steps is %lld\n", (long long)r->at.step,
               (long long)c->train_steps);
    while (r->at.step < c->train_steps) {
        mt_watchdog_enter(r->watchdog,
                          r->at.step == r->metrics.first_step ? MT_PHASE_FIRST_STEP : MT_PHASE_STEP,
                          r->at.step + 1);
        MT_TRY(one_step(r, e));
        bool last = r->at.step == c->train_steps;
        if (c->train_eval_interval && (last || r->at.step % c->train_eval_interval == 0)) {
            mt_watchdog_enter(r->watchdog, MT_PHASE_VALIDATION, r->at.step);
            MT_TRY(mt_run_validate(r, e));
        }
        if (!last && c->ckpt_interval && r->at.step % c->ckpt_interval == 0) save(r);
        if (last) break;
        mt_run_ask(r);
        if (r->control.x[MT_CONTROL_STOP] || r->at.step == r->stop) return leave(r, true, e);
        if (r->control.x[MT_CONTROL_SAVE]) save(r);
        if (r->tier.node && r->at.step % c->ckpt_local_interval == 0) mt_run_save_local(r);
    }
    return leave(r, false, e);
}

mt_status mt_train(const mt_config *cfg, const struct mt_job *job, mt_err *e)
{
    struct mt_run r = {.cfg = cfg,
                       .job = job,
                       .world = job->world,
                       .saved = -1,
                       .first_saved = -1,
                       .metrics.fd = -1,
                       .lock = -1,
                       .ending = {.cfg = cfg, .job = job}};
    mt_status st = mt_nodes_open(&r.nodes, job, e);
    if (st == MT_OK) st = mt_job_agree(job, mt_watchdog_open(&r.watchdog, &r.ending, &r.nodes, e), e);
    mt_run_find_end(&r);
    if (st == MT_OK) st = mt_run_open(&r, e);
    r.stop = cfg->run_stop_after ? r.at.step + cfg->run_stop_after : -1;
    r.ending.steps = r.at.step;
    if (st == MT_OK) st = loop(&r, e);
    if (r.lock >= 0 && !r.ending.ours) mt_ending_begin(&r.ending); /* it got no further than its folder */
    mt_ending_last(&r.ending, st, e);
    mt_run_close(&r);
    mt_watchdog_close(r.watchdog);
    mt_nodes_close(&r.nodes);
    return st;
}
