/* loop.h: a training run from its configuration to its last checkpoint. */
#ifndef MT_TRAIN_LOOP_H
#define MT_TRAIN_LOOP_H
#include "config/config.h"

/* Trains `world` ranks of this process until train.steps, from the newest valid checkpoint of run.dir if there is one (ckpt.resume). PREEMPTED: SIGTERM,
 * SIGINT, SIGUSR1 or run.stop_after ended it early and everything is saved. NONFINITE: loss or gradient norm is no number;
 * the weights are those of the step before, and unsaved. */
MT_MUST_USE mt_status mt_train(const mt_config *cfg, int world, mt_err *e);
#endif
