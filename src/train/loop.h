/* loop.h: a training run from its configuration to its last checkpoint. */
#ifndef MT_TRAIN_LOOP_H
#define MT_TRAIN_LOOP_H
#include "comm/job.h"
#include "config/config.h"

/* Trains the job until train.steps, from the newest valid checkpoint of run.dir if there is one (ckpt.resume). All its
 * processes call it, with the same configuration, and come to the same status. PREEMPTED: a signal or run.stop_after
 * ended it early and everything is saved. NONFINITE: loss or gradient norm is no number; the weights are those of the step
 * before, and unsaved. RANKS: the processes were given different configurations or programs. */
MT_MUST_USE mt_status mt_train(const mt_config *cfg, const struct mt_job *job, mt_err *e);
#endif
