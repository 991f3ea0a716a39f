#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/features.h"
#include "train/events.h"
#include "train/folder.h"
#include "train/parts.h"
#include "train/run.h"
#include "train/say.h"
#include "train/startup.h"
#include "train/usage.h"
#include "train/wire.h"

static mt_data_options data_options(const mt_config *c, const struct mt_job *job,
                                    mt_corpus_part part[MT_CONFIG_GROUPS])
{
    struct mt_shape d = mt_shape_of(c);
    return (mt_data_options){
        .train = part,
        .n_train = mt_parts_of(c, part),
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
        .steps = c->train_steps,
        .balance = c->data_balance == MT_BALANCE_ATTENTION,
        .together = c->train_micro_order == MT_MICRO_ORDER_LAYER && c->mesh_ep == 1,
        .price = mt_price_of(&d),
    };
}

static void say_loaded(const struct mt_run *r, const struct mt_ckpt_loaded *x, const char *path)
{
    if (r->job->me) return;
    mt_say("loaded    %s: %.1f MiB in %.2f s, %.0f MiB/s; read %.3f of what is needed, passed on %.3f\n",
           path, (double)x->read / (1 << 20), x->seconds, (double)x->read / x->seconds / (1 << 20),
           (double)x->read / (double)x->needed, (double)x->passed / (double)x->needed);
}

/* The newest checkpoint of the run, by ckpt.resume. */
static mt_status resume_run(struct mt_run *r, char path[MT_CKPT_PATH], mt_err *e)
{
    const mt_config *c = r->cfg;
    struct mt_ckpt_loaded x;
    path[0] = 0;
    if (c->ckpt_resume == MT_RESUME_NEVER) return MT_OK;
    MT_TRY(
        mt_ckpt_resume_tiers(c->run_dir, r->tier.node ? &r->tier : NULL, c, &r->items, r->job, path, &x, e));
    MT_REQUIRE(path[0] || c->ckpt_resume != MT_RESUME_REQUIRED, e, MT_CKPT,
               "ckpt.resume is 'required' and '%s/ckpt' holds no valid checkpoint; set ckpt.resume: auto to "
               "start anew",
               c->run_dir);
    if (!path[0]) return MT_OK;
    say_loaded(r, &x, path);
    r->at = x.meta;
    r->first_saved = 0;
    r->damaged = x.passed_over;
    r->saved = x.local ? -1 : x.meta.step; /* what is on the nodes is lost with them */
    r->verified = x.local ? 0 : x.meta.step;
    if (x.local) return MT_OK;
    return mt_job_agree(r->job, r->job->me ? MT_OK : mt_folder_metrics(c, path, e), e);
}

/* Masters from a checkpoint of this run, from another run's weights, or fresh; the working copies follow. */
static mt_status initial_state(struct mt_run *r, char resume[MT_CKPT_PATH], mt_err *e)
{
    const mt_config *c = r->cfg;
    struct mt_ckpt_loaded x;
    MT_TRY(resume_run(r, resume, e));
    if (resume[0]) return mt_job_agree(r->job, mt_session_run(&r->s, mt_pack_step, e), e);
    MT_TRY(mt_job_agree(r->job, mt_session_run(&r->s, mt_fill_step, e), e));
    if (!c->init_from[0]) return MT_OK;
    MT_TRY(mt_ckpt_load(c->init_from, &r->items, r->job, true, &x, e));
    say_loaded(r, &x, c->init_from);
    return mt_job_agree(r->job, mt_session_run(&r->s, mt_pack_step, e), e);
}

int64_t mt_run_rank_tokens(const struct mt_run *r)
{
    const struct mt_model *m = &r->s.rank[0].model;
    return m->opt.micro_batches * m->shape.N;
}
mt_sample mt_run_slot(const struct mt_run *r, int i, int64_t step)
{
    int64_t n = mt_run_rank_tokens(r);
    int32_t *p = r->staging + (step % r->cfg->data_prefetch * r->s.n_local + i) * 4 * n;
    return (mt_sample){p, p + n, p + 2 * n, p + 3 * n};
}
mt_status mt_run_prefetch(struct mt_run *r, int64_t step, mt_err *e)
{
    for (int i = 0; i < r->s.n_local; i++) {
        mt_sample out = mt_run_slot(r, i, step);
        MT_TRY(mt_loader_prefetch(r->loader, r->s.first + i, step, &out, e));
    }
    return MT_OK;
}

/* Processes of two builds, or of two configurations, would not do the same. */
static mt_status same_everywhere(const struct mt_run *r, mt_err *e)
{
    char build[160], id[48], *text = NULL;
    size_t bytes = 0;
    mt_startup_build(id, sizeof id);
    snprintf(build, sizeof build, "%s, operations %016" PRIx64 ", build %s", MT_VERSION, mt_op_table_hash(),
             id);
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
static mt_status same_layout(const struct mt_run *r, mt_err *e)
{
    char text[40];
    snprintf(text, sizeof text, "hash %016" PRIx64, mt_optim_hash(&r->s.rank[0].optim));
    return mt_job_same(r->job, "the table of owners", text, e);
}

/* The data, and what the configuration says of the number of ranks. */
static mt_status open_data(struct mt_run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    mt_corpus_part part[MT_CONFIG_GROUPS];
    mt_data_options data = data_options(c, r->job, part);
    MT_REQUIRE(!c->data_blend_count || !c->data_train[0], e, MT_CONFIG,
               "data.train and data.blend are both set: leave one empty");
    MT_REQUIRE(
        part[0].path[0], e, MT_CONFIG,
        "data.train is empty: name the PREFIX of a PREFIX.idx and PREFIX.bin made by `moetitan data pack`");
    MT_TRY(mt_config_check_world(c, r->world, e));
    return mt_loader_open(&r->loader, &data, e);
}

enum { STEPS_AHEAD = 8 }; /* whose imbalance is told at the start */
static mt_status open_rest(struct mt_run *r, mt_imbalance *ahead, mt_err *e)
{
    const mt_config *c = r->cfg;
    const struct mt_shape *d = &r->s.rank[0].model.shape;
    if (r->job->me == 0) MT_TRY(mt_exports_check(c, e));
    if (r->job->me == 0) MT_TRY(mt_folder_config(c, e));
    if (r->job->me == 0) MT_TRY(mt_loader_imbalance(r->loader, r->at.step, STEPS_AHEAD, ahead, e));
    MT_TRY(mt_metrics_open(&r->metrics, &r->s, r->at.step, e));
    if (c->run_trace_collectives) MT_TRY(mt_wire_trace(&r->s, e));
    MT_TRY(mt_tracing_open(&r->tracing, &r->s, e));
    r->staging =
        malloc((size_t)(c->data_prefetch * r->s.n_local * 4 * mt_run_rank_tokens(r)) * sizeof *r->staging);
    r->routed = calloc((size_t)(d->L * d->E + 1), sizeof *r->routed);
    MT_REQUIRE(r->staging && r->routed, e, MT_IO, "cannot allocate %lld prefetched batches",
               (long long)c->data_prefetch);
    for (int64_t i = 0; i < c->data_prefetch; i++) MT_TRY(mt_run_prefetch(r, r->at.step + i, e));
    return MT_OK;
}

static mt_status open_guards(struct mt_run *r, mt_err *e)
{
    MT_TRY(mt_guard_open(&r->guard, r->cfg, e));
    MT_TRY(mt_replicas_open(&r->replicas, &r->s, e));
    return mt_stragglers_open(&r->stragglers, &r->s, e);
}

static void say_imbalance(const struct mt_run *r, const mt_imbalance *x)
{
    if (!(x->data > 0)) return;
    mt_say("balance   the costliest rank takes %.3f times the mean by the lengths of documents", x->placed);
    if (r->cfg->data_balance == MT_BALANCE_ATTENTION) mt_say(", %.3f in the order of the data", x->data);
    mt_say(" (mean of the next %d steps)\n", STEPS_AHEAD);
}

mt_status mt_run_open(struct mt_run *r, mt_err *e)
{
    char resume[MT_CKPT_PATH] = "";
    mt_imbalance ahead = {0};
    struct mt_startup phases;
    double t0 = mt_now();
    mt_startup_begin(&phases);
    MT_TRY(same_everywhere(r, e));
    MT_TRY(mt_startup_binding(r->job, r->cfg, e));
    mt_startup_mark(&phases, "agreement");
    MT_TRY(mt_job_agree(r->job, open_data(r, e), e));
    mt_startup_mark(&phases, "data");
    MT_TRY(mt_session_open_job(&r->s, r->cfg, r->job, false, e));
    mt_watchdog_session(r->watchdog, &r->s);
    MT_TRY(same_layout(r, e));
    mt_startup_mark(&phases, "plan and arenas");
    MT_TRY(mt_job_agree(r->job, r->job->me ? MT_OK : mt_folder_open(r->cfg, &r->lock, e), e));
    if (r->job->me == 0) mt_ending_begin(&r->ending);
    (void)mt_job_any(r->job, false); /* what an earlier job left is gone before the others may write theirs */
    if (r->job->me != 0) mt_ending_begin(&r->ending);
    MT_TRY(mt_job_agree(r->job, mt_session_items(&r->s, &r->items, e), e));
    MT_TRY(mt_run_open_saves(r, e));
    r->control.x[MT_CONTROL_STOP] = mt_watchdog_stop(r->watchdog);
    mt_control_agree(&r->control, r->job);
    if (r->control.x[MT_CONTROL_STOP])
        MT_FAIL(e, MT_PREEMPTED, "stopped before the first step; what was saved before is as it was");
    mt_startup_mark(&phases, "folder");
    MT_TRY(initial_state(r, resume, e));
    mt_startup_mark(&phases, resume[0] ? "checkpoint" : "weights");
    MT_TRY(mt_job_agree(r->job, open_rest(r, &ahead, e), e));
    MT_TRY(mt_job_agree(r->job, open_guards(r, e), e));
    MT_TRY(mt_guard_recall(&r->guard, r->job, e));
    MT_TRY(mt_job_agree(r->job, r->cfg->run_memory ? mt_usage_report(&r->s, e) : MT_OK, e));
    mt_startup_mark(&phases, "first batches");
    mt_startup_say(&phases, r->job);
    mt_note(r->cfg, r->job, r->at.step, resume[0] ? MT_NOTE_RESUME : MT_NOTE_START,
            "%d rank%s, moetitan %s%s%s", r->world, r->world > 1 ? "s" : "", MT_VERSION,
            resume[0] ? ", from " : "", resume);
    if (r->job->me != 0) return MT_OK;
    mt_metrics_banner(&r->metrics, &r->s);
    say_imbalance(r, &ahead);
    mt_usage_warn(&r->s);
    if (r->cfg->run_print_owners) mt_muon_print(&r->s.rank[0].optim.muon, stdout);
    mt_say("start     %.2f s%s%s\n", mt_now() - t0, resume[0] ? "; going on from " : "", resume);
    return MT_OK;
}

void mt_run_close(struct mt_run *r)
{
    mt_loader_close(r->loader);
    mt_metrics_close(&r->metrics);
    mt_saver_close(r->saver);
    mt_exports_end(&r->exports, r->cfg, r->job, 0);
    mt_guard_close(&r->guard);
    mt_replicas_close(&r->replicas);
    mt_stragglers_close(&r->stragglers);
    mt_tier_close(&r->tier);
    mt_ckpt_items_close(&r->items);
    mt_wire_trace_end(&r->s);
    mt_tracing_close(&r->tracing);
    mt_watchdog_session(r->watchdog, NULL);
    mt_session_close(&r->s);
    free(r->staging);
    free(r->routed);
    free(r->gates);
    free(r->when);
    if (r->lock >= 0) close(r->lock);
}
