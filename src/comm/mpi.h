/* mpi.h: a job of MPI processes, one rank in each. Compiled only where the build found an MPI. */
#ifndef MT_COMM_MPI_H
#define MT_COMM_MPI_H
#include "comm/job.h"

/* Starts MPI. RANKS: it knows of another number of processes than the launcher, or of one alone. DEVICE: it
 * cannot be used by several threads in turn. */
MT_MUST_USE mt_status mt_job_mpi(struct mt_job *j, const struct mt_launch *l, mt_err *e);
#endif
