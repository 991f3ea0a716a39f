/* folder.h: the folder of a run, run.dir: one job's at a time. */
#ifndef MT_TRAIN_FOLDER_H
#define MT_TRAIN_FOLDER_H
#include "ckpt/ckpt.h"
#include "config/config.h"

/* For the job's first process: the folder, made if it is not there, locked against a second job (lock is the caller's to close), and
 * the checkpoint to go on from by ckpt.resume; "" for none. IO; CKPT: there is none that is valid and there should be. */
MT_MUST_USE mt_status mt_folder_open(const mt_config *c, int *lock, char resume[MT_CKPT_PATH], mt_err *e);
/* The resolved configuration, to config.yaml there. */
MT_MUST_USE mt_status mt_folder_config(const mt_config *c, mt_err *e);
#endif
