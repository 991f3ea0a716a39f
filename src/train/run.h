/* run.h: a training run under way, and its parts: how it is opened (start.c), what the processes agree on between steps
 * (control.c), a step (loop.c), validation (validate.c), checkpoints (saving.c), exports of them (exports.c), what becomes of a bad step
 * (guard.c, left_out.c), who watches over it (watchdog.c), what asks it to stop (asked.c). */
#ifndef MT_TRAIN_RUN_H
#define MT_TRAIN_RUN_H
#include "ckpt/saver.h"
#include "data/loader.h"
#include "train/control.h"
#include "train/exports.h"
#include "train/guard.h"
#include "train/metrics.h"
#include "train/replicas.h"
#include "train/stragglers.h"
#include "train/tracing.h"
#include "train/watchdog.h"

/* What a rank's update asks before it overwrites something. */
struct mt_run_gate {
    const struct mt_run *run;
    int rank;
};
struct mt_run {
    const mt_config *cfg;
    const struct mt_job *job;
    struct mt_session s;
    struct mt_metrics metrics;
    struct mt_tracing tracing;
    struct mt_ckpt_items items; /* what a checkpoint holds, of all ranks */
    struct mt_saver *saver;
    struct mt_tier tier;       /* of the nodes' own disks, with ckpt.local_dir */
    bool saving_local;         /* the last save that was begun is to these */
    struct mt_run_gate *gates; /* of the ranks here, before which their updates wait for it; owned */
    int64_t *when;             /* by number of model/touch.h: place in the order of the update; owned */
    struct mt_exports exports; /* the first process's */
    struct mt_control control;
    struct mt_guard guard;
    struct mt_replicas replicas;
    struct mt_stragglers stragglers;
    struct mt_nodes nodes;
    struct mt_ending ending;
    struct mt_watchdog *watchdog;
    int64_t *routed; /* rows of every block's experts, for the metrics */
    int world;
    struct mt_ckpt_meta at; /* steps done, tokens seen */
    mt_loader *loader;
    int32_t *staging;    /* prefetched batches: [prefetch][ranks here][4][micro N] */
    int64_t saved;       /* step of the newest checkpoint, -1: none */
    int64_t first_saved; /* those of earlier steps are of a history that this run has left; -1: it has none */
    int64_t verified;    /* of the newest that was read, and so verified, whole; 0: none was */
    struct mt_ckpt_steps damaged; /* were found so */
    int64_t saving;               /* of the last one that was begun, */
    double save_begun;            /* and when: mt_now; at first, when the run began */
    double save_longest;          /* seconds of the longest save so far; known to the first process */
    int64_t stop;                 /* end of this process by run.stop_after */
    double end;                   /* when the job's time is over, by mt_now; known to the first process */
    int lock;                     /* the run's folder, locked against a second job; -1: not open */
};

/* Tokens of one rank in a step. */
int64_t mt_run_rank_tokens(const struct mt_run *r);
/* Begins to read the ranks' batches of a step. */
MT_MUST_USE mt_status mt_run_prefetch(struct mt_run *r, int64_t step, mt_err *e);
/* Where the batch of step `step` of the i-th rank here is read to. */
mt_sample mt_run_slot(const struct mt_run *r, int i, int64_t step);
/* Set-up up to the first step. The processes agree on each part before the next: all of them leave, or none. mt_run_close is
 * due whatever came of it. */
MT_MUST_USE mt_status mt_run_open(struct mt_run *r, mt_err *e);
void mt_run_close(struct mt_run *r);

/* Between two agreements of the processes a failure is this one's alone, and the others already wait for it in a collective:
 * ends the job. */
static inline mt_status mt_run_fatal(struct mt_run *r, mt_status st, const mt_err *e)
{
    if (st != MT_OK && r->job->ops) mt_ending_write(&r->ending, (int)st, mt_status_name(st), e->msg);
    return mt_job_fatal(r->job, st, e);
}

/* The step just done, x, was not applied: as the guard's options say it is left out, the newest checkpoint loaded, or the run
 * over, which is NONFINITE. All processes. */
MT_MUST_USE mt_status mt_run_left_out(struct mt_run *r, const struct mt_metrics_step *x, mt_err *e);
/* The newest step, of those done, whose checkpoint ckpt.interval asked for; 0: none. */
int64_t mt_run_interval_step(const struct mt_run *r);

/* When the job's time will be over. Before anything is allocated. */
void mt_run_find_end(struct mt_run *r);
/* What signals, files in the run's folder and the time ask for, agreed by all processes, in r->control. */
void mt_run_ask(struct mt_run *r);

/* The loss of the validation data, told to metrics and terminal. All processes. */
MT_MUST_USE mt_status mt_run_validate(struct mt_run *r, mt_err *e);

/* Saves (saving.c). Opened once the items are there. */
MT_MUST_USE mt_status mt_run_open_saves(struct mt_run *r, mt_err *e);
/* Begins a checkpoint of the steps done, unless there is one; an earlier one that is still being written is waited for. All
 * processes. One that cannot be written is told and does not end the run: r->saved then stays as it was. */
void mt_run_save(struct mt_run *r);
/* Begins one on the nodes' own disks, unless another one is under way or there is one of these steps. All processes. */
void mt_run_save_local(struct mt_run *r);
/* The tier of the nodes' own disks, and its room. Before mt_run_open_saves. */
MT_MUST_USE mt_status mt_run_open_tier(struct mt_run *r, mt_err *e);
MT_MUST_USE mt_status mt_run_tier_room(struct mt_run *r, mt_err *e);
/* Around mt_control_agree: what this process tells of the save under way, and what all have told. */
void mt_run_save_tell(struct mt_run *r);
void mt_run_save_heard(struct mt_run *r);
/* Until no save is under way; returns the seconds that it took. All processes. */
double mt_run_save_wait(struct mt_run *r);
/* The end of the run, or an early one, which is PREEMPTED: the last checkpoint, without which it is IO. */
MT_MUST_USE mt_status mt_run_leave(struct mt_run *r, bool early, mt_err *e);
#endif
