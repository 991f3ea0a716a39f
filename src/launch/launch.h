/* launch.h: how this process was started: alone, or as one of several by mpirun or srun. */
#ifndef MT_LAUNCH_LAUNCH_H
#define MT_LAUNCH_LAUNCH_H
#include "base/status.h"

struct mt_launch {
    const char *by; /* who started it, for messages; NULL: nobody, it is alone */
    int size;       /* processes of the job; 0: only the message passing library knows */
};
/* From the environment (get: getenv, or a test's own). RANKS: several processes that have no way to find each
 * other. What it says under an mpirun inside a batch job is mpirun's, not the batch system's. */
MT_MUST_USE mt_status mt_launch_find(struct mt_launch *l, char *(*get)(const char *name), mt_err *e);

/* This process's place among those of its node, as the launcher says; -1: it does not. */
int mt_launch_local(char *(*get)(const char *name));
/* Which of the `seen` GPUs that this process may use is its own: the only one, where the launcher gives each process one; else the
 * one of its local rank. *gpu: -1 if none is seen. RANKS: the node has more processes than GPUs, or it sees several and cannot
 * tell which. */
MT_MUST_USE mt_status mt_launch_gpu(int seen, char *(*get)(const char *name), int *gpu, mt_err *e);
#endif
