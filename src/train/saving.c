#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "model/touch.h"
#include "train/events.h"
#include "train/run.h"
#include "train/say.h"

/* ---- opening ---- */
/* The order of the update, while it is found. */
struct order {
    int64_t *when, next;
};
static void note(void *arg, int what)
{
    struct order *o = arg;
    if (o->when[what] == INT64_MAX) o->when[what] = o->next++;
}

/* What is never overwritten comes last. */
static mt_status find_order(struct mt_run *r, mt_err *e)
{
    int n = mt_touches(&r->s.rank[0].model);
    r->when = malloc((size_t)(n + 1) * sizeof *r->when);
    MT_REQUIRE(r->when, e, MT_IO, "no memory for the order of the update of %d states", n);
    for (int i = 0; i < n; i++) r->when[i] = INT64_MAX;
    struct order o = {r->when, 0};
    return mt_session_touches(&r->s, &(struct mt_touching){note, &o}, e);
}

static void gate(void *arg, int what)
{
    const struct mt_run_gate *g = arg;
    mt_saver_gate(g->run->saver, g->rank, g->run->when[what]);
}

static mt_status open_gates(struct mt_run *r, mt_err *e)
{
    r->gates = calloc((size_t)r->s.n_local, sizeof *r->gates);
    MT_REQUIRE(r->gates, e, MT_IO, "no memory for %d ranks", r->s.n_local);
    for (int i = 0; i < r->s.n_local; i++) {
        r->gates[i] = (struct mt_run_gate){r, r->s.first + i};
        r->s.rank[i].step.rank.touch = (struct mt_touching){gate, &r->gates[i]};
    }
    return find_order(r, e);
}

/* The writers of a process use the buffers of its first rank. */
static char *row_of(const struct mt_run *r, int32_t index)
{
    const struct mt_row *row = &r->s.ledger.row[index];
    return (char *)r->s.rank[0].ctx.arena[row->arena] + row->off;
}
static char *buffers(const struct mt_run *r)
{
    char *p = row_of(r, r->s.save_row);
    return p + (-(uintptr_t)p & (MT_PART_ALIGN - 1));
}
static struct mt_tier_copies copies(const struct mt_run *r)
{
    if (r->s.slice_row < 0) return (struct mt_tier_copies){0};
    return (struct mt_tier_copies){row_of(r, r->s.slice_row), r->cfg->ckpt_local_slice};
}

mt_status mt_run_open_saves(struct mt_run *r, mt_err *e)
{
    const mt_config *c = r->cfg;
    MT_TRY(mt_job_agree(r->job, open_gates(r, e), e));
    MT_TRY(mt_run_open_tier(r, e));
    const struct mt_saver_options o = {.run_dir = c->run_dir,
                                       .cfg = c,
                                       .job = r->job,
                                       .writers = {.threads = (int)c->ckpt_writers,
                                                   .chunk = c->ckpt_buffer,
                                                   .buffer = buffers(r),
                                                   .rate = c->ckpt_rate_limit,
                                                   .check = c->ckpt_verify},
                                       .timeout_s = c->ckpt_timeout,
                                       .step_waits_s = c->run_hang_timeout / 2,
                                       .when = r->when,
                                       .tier = r->tier.node ? &r->tier : NULL,
                                       .copies = copies(r)};
    r->save_begun = mt_now();
    MT_TRY(mt_saver_open(&r->saver, &o, &r->items, e));
    return mt_run_tier_room(r, e);
}

/* ---- between two steps ---- */
void mt_run_save_tell(struct mt_run *r)
{
    double every = r->cfg->ckpt_interval_time;
    int64_t *x = r->control.x;
    x[MT_CONTROL_SAVE_TIME] = r->job->me == 0 && every > 0 && mt_now() - r->save_begun >= every;
    mt_saver_tell(r->saver, &x[MT_CONTROL_SAVE_BUSY], &x[MT_CONTROL_SAVE_FAILED]);
}

static void say_saved(const struct mt_run *r)
{
    struct mt_saver_report p = mt_saver_report(r->saver);
    double mb = 1e-6 * (double)p.bytes;
    if (r->saving_local) {
        mt_say("step %5lld  local checkpoint on %d node%s in %.2f s: %.1f MB; steps waited %.3f s for it\n",
               (long long)r->saving, r->tier.nodes, r->tier.nodes > 1 ? "s" : "", p.seconds, mb, p.stalled_s);
        return;
    }
    mt_say("step %5lld  checkpoint %s/ckpt/step-%08lld in %.2f s: %.1f MB at %.0f MB/s; steps waited %.3f s "
           "for it\n",
           (long long)r->saved, r->cfg->run_dir, (long long)r->saved, p.seconds, mb,
           p.write_s > 0 ? mb / p.write_s : 0, p.stalled_s);
    mt_note(r->cfg, r->job, r->saved, MT_NOTE_CHECKPOINT, "in %.2f s, steps waited %.3f s for it", p.seconds,
            p.stalled_s);
}

static void hear(struct mt_run *r)
{
    const int64_t *x = r->control.x;
    enum mt_saver_event event = mt_saver_heard(r->saver, x[MT_CONTROL_SAVE_BUSY], x[MT_CONTROL_SAVE_FAILED]);
    if (event == MT_SAVER_SAVED && !r->saving_local) {
        r->saved = r->saving;
        if (r->first_saved < 0) r->first_saved = r->saving;
        mt_ckpt_steps_remove(&r->damaged, r->saving);
    }
    if (r->job->me != 0) return;
    if (event == MT_SAVER_SAVED) say_saved(r);
    if (event == MT_SAVER_SAVED && !r->saving_local) mt_exports_saved(&r->exports, r->cfg, r->job, r->saved);
    if (event == MT_SAVER_SAVED && !r->saving_local)
        r->save_longest = fmax(r->save_longest, mt_saver_report(r->saver).seconds);
    if (event != MT_SAVER_GIVEN_UP) return;
    fprintf(stderr,
            "moetitan: there is no %scheckpoint of step %lld; training goes on, and the next save is tried\n",
            r->saving_local ? "local " : "", (long long)r->saving);
    mt_note(r->cfg, r->job, r->saving, MT_NOTE_UNSAVED, "training goes on");
}

void mt_run_save_heard(struct mt_run *r)
{
    hear(r);
    if (r->job->me == 0) mt_exports_look(&r->exports, r->cfg, r->job);
    if (r->control.x[MT_CONTROL_SAVE_TIME]) mt_run_save(r);
}

double mt_run_save_wait(struct mt_run *r)
{
    double t0 = mt_now();
    while (mt_saver_under_way(r->saver)) {
        mt_saver_pause(r->saver);
        mt_run_save_tell(r);
        mt_control_agree(&r->control, r->job);
        hear(r);
    }
    return mt_now() - t0;
}

void mt_run_save(struct mt_run *r)
{
    const mt_config *c = r->cfg;
    bool back = c->guard_nonfinite == MT_ON_NONFINITE_ROLLBACK || c->guard_spike == MT_ON_SPIKE_ROLLBACK;
    struct stat metrics = {0};
    if (mt_saver_under_way(r->saver) && !r->saving_local && r->saving == r->at.step) return;
    double waited = mt_run_save_wait(r);
    if (r->saved == r->at.step) {
        if (r->job->me == 0) mt_exports_here(&r->exports, r->cfg, r->job, r->saved);
        return;
    }
    if (r->metrics.fd >= 0 && fstat(r->metrics.fd, &metrics)) metrics.st_size = 0;
    r->saving = r->at.step;
    r->saving_local = false;
    r->save_begun = mt_now();
    const struct mt_saver_begin b = {.meta = r->at,
                                     .keep = {.last = c->ckpt_keep_last,
                                              .every = c->ckpt_keep_every,
                                              .step = r->verified,
                                              .back = back ? mt_run_interval_step(r) : 0,
                                              .read = r->exports.step,
                                              .damaged = r->damaged},
                                     .metrics_bytes = metrics.st_size,
                                     .waited_s = waited};
    mt_saver_begin(r->saver, &b);
}

mt_status mt_run_leave(struct mt_run *r, bool early, mt_err *e)
{
    bool wanted = early || r->cfg->ckpt_at_end;
    if (wanted) mt_run_save(r);
    (void)mt_run_save_wait(r);
    double wait = fmin(r->cfg->ckpt_export_wait, r->end - mt_now() - r->cfg->run_time_margin / 2);
    /* Of one that was asked for, ckpt.export_dir may say nothing, and then no rule has compared the two. */
    if (r->cfg->watchdog_save > 0) wait = fmin(wait, r->cfg->watchdog_save * 0.9);
    if (r->job->me == 0) mt_exports_end(&r->exports, r->cfg, r->job, early ? 0 : wait);
    MT_REQUIRE(!wanted || r->saved == r->at.step, e, MT_IO,
               "the run ends at step %lld and its last checkpoint could not be written (see above)",
               (long long)r->at.step);
    mt_note(r->cfg, r->job, r->at.step, early ? MT_NOTE_STOP : MT_NOTE_END, "of %lld steps",
            (long long)r->cfg->train_steps);
    if (early)
        MT_FAIL(e, MT_PREEMPTED,
                "stopped after step %lld of %lld; everything is saved, the same command goes on from there",
                (long long)r->at.step, (long long)r->cfg->train_steps);
    return MT_OK;
}
