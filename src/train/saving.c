#include <stdio.h>

#include "ckpt/share.h"
#include "train/events.h"
#include "train/run.h"
#include "train/say.h"

/* The first process's part of a save. A save that fails is told and does not end the run: the next one is tried, and the
 * caller knows by r->saved. */
static void write_checkpoint(struct mt_run *r)
{
    mt_err e = {0};
    double t0 = mt_now();
    mt_status st = mt_ckpt_save(r->cfg->run_dir, &r->items, &r->at, r->cfg, &e);
    mt_ckpt_fetched(&r->items);
    if (st != MT_OK) {
        fprintf(stderr, "moetitan: %s\n", e.msg);
        mt_note(r->cfg, r->job, r->at.step, MT_NOTE_UNSAVED, "%s", e.msg);
        return;
    }
    r->saved = r->at.step;
    mt_say("step %5lld  checkpoint %s/ckpt/step-%08lld in %.2f s\n", (long long)r->at.step, r->cfg->run_dir,
           (long long)r->at.step, mt_now() - t0);
    mt_note(r->cfg, r->job, r->at.step, MT_NOTE_CHECKPOINT, "in %.2f s", mt_now() - t0);
    if (mt_ckpt_prune(r->cfg->run_dir, r->cfg->ckpt_keep_last, &e) != MT_OK)
        fprintf(stderr, "moetitan: %s\n", e.msg);
}

void mt_run_save(struct mt_run *r)
{
    if (r->saved == r->at.step) return;
    if (r->job->me == 0)
        write_checkpoint(r);
    else
        mt_ckpt_serve(&r->items);
    mt_job_broadcast(r->job, &r->saved, sizeof r->saved, 0);
}

mt_status mt_run_leave(struct mt_run *r, bool early, mt_err *e)
{
    if (early || r->cfg->ckpt_at_end) {
        mt_run_save(r);
        MT_REQUIRE(r->saved == r->at.step, e, MT_IO,
                   "the run ends at step %lld and its last checkpoint could not be written (see above)",
                   (long long)r->at.step);
    }
    mt_note(r->cfg, r->job, r->at.step, early ? MT_NOTE_STOP : MT_NOTE_END, "of %lld steps",
            (long long)r->cfg->train_steps);
    if (early)
        MT_FAIL(e, MT_PREEMPTED,
                "stopped after step %lld of %lld; everything is saved, the same command goes on from there",
                (long long)r->at.step, (long long)r->cfg->train_steps);
    return MT_OK;
}
