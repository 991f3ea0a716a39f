/* job_record.h: what the folder of a run keeps of each of its jobs, RUN/jobs/ID:
 *
 *   script        the batch script, as it ran
 *   environment   of the script, sorted; values of what looks like a secret are left out
 *   config.yaml   the resolved configuration
 *   versions      of moetitan, the system, Slurm, the driver, and the modules loaded
 *   begin.json    nodes, and the newest checkpoint's step as the job began
 *   end.json      exit code, its name and the reason; end-N.json: of the N-th start of a job that Slurm put back in the queue */
#ifndef MT_CMD_JOB_RECORD_H
#define MT_CMD_JOB_RECORD_H
#include "launch/chain.h"

struct mt_job_end {
    int code;
    char message[2048];
    int64_t step; /* -1: not known */
};

/* The files of the beginning, but for the script. */
MT_MUST_USE mt_status mt_job_record_begin(const mt_config *c, const char *run, const char *id, mt_err *e);
/* The step of begin.json; -2: there is none. */
int64_t mt_job_began_at(const char *run, const char *id);

/* RUN/exit.json, which the ranks write, if it is there and this job's. */
bool mt_job_exit_read(const char *run, const char *id, struct mt_job_end *x);
/* Makes it end.json of the job, unless that is written already: then false, and it is gone. */
bool mt_job_exit_keep(const char *run, const char *id);
/* end.json. */
bool mt_job_end_read(const char *run, const char *id, struct mt_job_end *x);
MT_MUST_USE mt_status mt_job_end_write(const char *run, const char *id, const struct mt_job_end *x,
                                       mt_err *e);
#endif
