#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "train/run.h"
#include "train/say.h"

mt_status mt_run_open_saves(struct mt_run *r, mt_err *e)
{
    const struct mt_saver_options o = {
        .run_dir = r->cfg->run_dir,
        .cfg = r->cfg,
        .job = r->job,
        .writers = {.threads = 2, .chunk = 1 << 20, .buffer = aligned_alloc(4096, 2 << 20)}};
    return mt_saver_open(&r->saver, &o, &r->items, e);
}

void mt_run_save_tell(struct mt_run *r)
{
    mt_saver_tell(r->saver, &r->control.x[MT_CONTROL_SAVE_BUSY], &r->control.x[MT_CONTROL_SAVE_FAILED]);
}

/* The first process tells of it and looks after the older ones. */
static void saved(struct mt_run *r)
{
    mt_err e = {0};
    struct mt_saver_report p = mt_saver_report(r->saver);
    r->saved = r->saving;
    if (r->job->me != 0) return;
    mt_say("step %5lld  checkpoint %s/ckpt/step-%08lld in %.2f s: %.1f MB at %.0f MB/s; steps waited %.3f s "
           "for it\n",
           (long long)r->saved, r->cfg->run_dir, (long long)r->saved, p.seconds, 1e-6 * (double)p.bytes,
           1e-6 * (double)p.bytes / p.seconds, p.stalled);
    if (mt_ckpt_prune(r->cfg->run_dir, r->cfg->ckpt_keep_last, &e) != MT_OK)
        fprintf(stderr, "moetitan: %s\n", e.msg);
}

void mt_run_save_heard(struct mt_run *r)
{
    enum mt_saver_event x =
        mt_saver_heard(r->saver, r->control.x[MT_CONTROL_SAVE_BUSY], r->control.x[MT_CONTROL_SAVE_FAILED]);
    if (x == MT_SAVER_SAVED) saved(r);
    if (x == MT_SAVER_GIVEN_UP && r->job->me == 0)
        fprintf(
            stderr,
            "moetitan: there is no checkpoint of step %lld; training goes on, and the next save is tried\n",
            (long long)r->saving);
}

static void wait(struct mt_run *r)
{
    while (mt_saver_under_way(r->saver)) {
        mt_saver_pause(r->saver);
        mt_run_save_tell(r);
        mt_control_agree(&r->control, r->job);
        mt_run_save_heard(r);
    }
}

void mt_run_save(struct mt_run *r)
{
    struct stat metrics = {0};
    if (mt_saver_under_way(r->saver) && r->saving == r->at.step) return;
    wait(r);
    if (r->saved == r->at.step) return;
    r->saving = r->at.step;
    if (r->metrics.fd >= 0 && fstat(r->metrics.fd, &metrics)) metrics.st_size = 0;
    mt_saver_begin(r->saver, &r->at, metrics.st_size);
    wait(r);
}

mt_status mt_run_leave(struct mt_run *r, bool early, mt_err *e)
{
    if (early || r->cfg->ckpt_at_end) {
        mt_run_save(r);
        wait(r);
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
