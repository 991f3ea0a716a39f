/* folder.h: the folder of a run, run.dir: one job's at a time. */
#ifndef MT_TRAIN_FOLDER_H
#define MT_TRAIN_FOLDER_H
#include "ckpt/ckpt.h"
#include "config/config.h"

/* For the job's first process: the folder, made if it is not there, locked against a second job (lock is the caller's to
 * close). */
MT_MUST_USE mt_status mt_folder_open(const mt_config *c, int *lock, mt_err *e);
/* metrics.jsonl there, from the checkpoint that the run goes on from, where the run's own is missing or shorter. */
MT_MUST_USE mt_status mt_folder_metrics(const mt_config *c, const char *resume, mt_err *e);
/* The resolved configuration, to config.yaml there. */
MT_MUST_USE mt_status mt_folder_config(const mt_config *c, mt_err *e);
#endif
