/* left_out.c: a run's answer to a step that was not applied. */
#include <stdio.h>

#include "train/run.h"
#include "train/say.h"

static mt_status refuse(const struct mt_run *r, const struct mt_guard_verdict *v, mt_err *e)
{
    char newest[64] = "There is no checkpoint";
    const struct mt_guard *g = &r->guard;
    int64_t left_out = g->skips + g->backs;
    if (r->saved >= 0)
        snprintf(newest, sizeof newest, "The newest checkpoint is of step %lld", (long long)r->saved);
    MT_REQUIRE(v->what == MT_GUARD_ABORT, e, MT_NONFINITE,
               "step %lld: %s; the weights were left as they were. %lld steps were left out before this one, "
               "as many as "
               "guard.max_skips allows. %s; a lower optim.lr may help",
               (long long)r->at.step + 1, v->why, (long long)left_out, newest);
    MT_FAIL(e, MT_NONFINITE,
            "step %lld: %s; the weights were left as they were. %s; a lower optim.lr or a longer "
            "optim.warmup_steps may "
            "help, and %s may leave such a batch out",
            (long long)r->at.step + 1, v->why, newest, v->spike ? "guard.spike" : "guard.nonfinite");
}

int64_t mt_run_interval_step(const struct mt_run *r)
{
    int64_t every = r->cfg->ckpt_interval;
    return every ? r->at.step / every * every : 0;
}

/* The step to go back to: of the last checkpoint that ckpt.interval asked for, since those that a stop made are elsewhere in a
 * run that was not stopped; where that one could not be written, of the newest. */
static int64_t step_to_go_back_to(const struct mt_run *r)
{
    char path[MT_CKPT_PATH];
    int64_t step = mt_run_interval_step(r);
    mt_ckpt_folder(r->cfg->run_dir, step, path);
    if (r->job->me == 0 && !(step && mt_ckpt_was_complete(path)))
        step = r->saved >= 0 ? r->saved : r->metrics.first_step;
    mt_job_broadcast(r->job, &step, sizeof step, 0);
    return step;
}

/* Weights and optimizer state of the newest sound checkpoint up to the one to go back to; *step is -1: there is none. All ranks come
 * to the same, or none goes on. */
static mt_status load_back(struct mt_run *r, int64_t *step, mt_err *e)
{
    char path[MT_CKPT_PATH] = "";
    struct mt_ckpt_loaded then = {0};
    mt_run_save_wait(r); /* it may be the one to go back to, and reads what is about to be replaced */
    const struct mt_ckpt_range steps = {r->first_saved, step_to_go_back_to(r)};
    if (r->first_saved >= 0)
        MT_TRY(mt_ckpt_back(r->cfg->run_dir, steps, r->cfg, &r->items, r->job, path, &then, e));
    for (int64_t i = 0; i < then.passed_over.n; i++) mt_ckpt_steps_add(&r->damaged, then.passed_over.step[i]);
    *step = path[0] ? then.meta.step : -1;
    if (path[0]) r->verified = *step;
    return MT_OK;
}

static void say_left_out(const struct mt_run *r, const struct mt_metrics_step *x, const char *why, int64_t to)
{
    if (r->job->me) return;
    mt_say("step %5lld  left out: %s", (long long)x->step, why);
    if (to >= 0) mt_say("; back to the weights of step %lld", (long long)to);
    mt_say("\n");
}

mt_status mt_run_left_out(struct mt_run *r, const struct mt_metrics_step *x, mt_err *e)
{
    struct mt_guard *g = &r->guard;
    struct mt_guard_verdict v = mt_guard_judge(g, &r->s.rank[0].step);
    bool back = v.what == MT_GUARD_ROLLBACK;
    int64_t to = -1;
    if (v.what == MT_GUARD_ABORT || g->skips + g->backs >= r->cfg->guard_max_skips) return refuse(r, &v, e);
    if (back) MT_TRY(load_back(r, &to, e));
    MT_REQUIRE(!back || to >= 0, e, MT_NONFINITE,
               "step %lld: %s, and there is no checkpoint yet to go back to; a smaller ckpt.interval makes "
               "one sooner",
               (long long)r->at.step + 1, v.why);
    say_left_out(r, x, v.why, to);
    mt_metrics_left_out(&r->metrics, x, v.spike, to);
    g->skips += !back;
    if (!back) return MT_OK;
    MT_TRY(mt_run_fatal(r, mt_session_run(&r->s, mt_pack_step, e), e));
    return mt_guard_recall(g, r->job, e);
}
