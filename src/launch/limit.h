/* limit.h: how long the batch system lets this job run. */
#ifndef MT_LAUNCH_LIMIT_H
#define MT_LAUNCH_LIMIT_H
#include <stdbool.h>

/* Seconds from now on (now: since 1970): by SLURM_JOB_END_TIME, or where Slurm does not set it, by asking squeue for
 * SLURM_JOB_ID. INFINITY: there is no limit, no job, or no answer. get: getenv, or a test's own. Runs a program: before memory is
 * pinned and threads are busy. */
double mt_limit_left(char *(*get)(const char *name), double now);
/* What squeue prints as the time left: "1-02:03:04", "2:03:04", "12:34". UNLIMITED: INFINITY. false: it is neither. */
bool mt_limit_parse(const char *text, double *seconds);
#endif
