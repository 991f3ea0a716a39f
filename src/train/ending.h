/* ending.h: why a run ended, as RUN/exit.json, since srun and mpirun may replace a process's exit code:
 *
 *   {"code": 9, "name": "HANG", "message": "...", "step": 12, "rank": 3, "time": "2026-01-31T12:00:00Z", "job": "4711"}
 *
 * step: steps done; rank: the process's that wrote it; job: Slurm's number, null outside of a job. The first process that has
 * a reason writes it, the others' are its consequences. */
#ifndef MT_TRAIN_ENDING_H
#define MT_TRAIN_ENDING_H
#include <stdatomic.h>

#include "comm/job.h"
#include "config/config.h"

struct mt_ending {
    const mt_config *cfg;
    const struct mt_job *job;
    atomic_bool ours;      /* the run's folder is this job's */
    _Atomic int64_t steps; /* done */
};
/* The folder is this job's from now on: the first process removes what an earlier job left, before the others hear of it. */
void mt_ending_begin(struct mt_ending *x);
/* Writes it unless it is there. By any thread. What cannot be written is lost. */
void mt_ending_write(struct mt_ending *x, int code, const char *name, const char *message);
/* The end that all processes have come to. A folder that did not become this job's gets it from the first process, if it is there
 * and no other job's. */
void mt_ending_last(struct mt_ending *x, mt_status st, const mt_err *e);
#endif
