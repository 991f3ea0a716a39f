/* guard.h: what becomes of a step whose loss or gradient norm is no number, or far above what it was of late.
 *
 * The verdict is the step's own, from numbers that all ranks have alike (train/step.h): its update is then not applied, and its
 * batch is left out. With `rollback` the newest checkpoint of those that ckpt.interval asks for replaces weights and optimizer state
 * too, so that every batch since is left out. Either way the run goes on with the next step and the next batch: a step's number says which batch it reads and how
 * far the schedule is, whatever was left out. A run that is killed and resumed comes to the same verdicts: what they depend on
 * is in metrics.jsonl. */
#ifndef MT_TRAIN_GUARD_H
#define MT_TRAIN_GUARD_H
#include "comm/job.h"
#include "config/config.h"
#include "train/step.h"

struct mt_guard {
    const mt_config *cfg;
    double *loss,
        *norm; /* of the last guard.spike_window updates, number i at i % window; owned, one block */
    int64_t n; /* updates known */
    int64_t skips, backs; /* steps left out in this run and rollbacks, in all its jobs */
};
/* Nothing is known yet. IO: no memory. */
MT_MUST_USE mt_status mt_guard_open(struct mt_guard *g, const mt_config *cfg, mt_err *e);
void mt_guard_close(struct mt_guard *g);
/* What the metrics in run.dir tell of the steps so far, less those that a rollback undid: the first process reads them for all.
 * Where there are none, nothing is known. IO: no memory. */
MT_MUST_USE mt_status mt_guard_recall(struct mt_guard *g, const struct mt_job *job, mt_err *e);
/* The next step's limits. */
void mt_guard_limit(const struct mt_guard *g, struct mt_step *t);
/* A step was applied. */
void mt_guard_add(struct mt_guard *g, double loss, double norm);

/* A step that was not. */
struct mt_guard_verdict {
    bool spike; /* else not finite */
    enum { MT_GUARD_ABORT, MT_GUARD_SKIP, MT_GUARD_ROLLBACK } what;
    char why[256]; /* "the loss is nan and the gradient norm inf" */
};
struct mt_guard_verdict mt_guard_judge(const struct mt_guard *g, const struct mt_step *t);
#endif
