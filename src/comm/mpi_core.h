/* mpi_core.h: what the files on MPI share. mpi.c: the job; mpi_wire.c: its collectives. */
#ifndef MT_COMM_MPI_CORE_H
#define MT_COMM_MPI_CORE_H
#include <mpi.h>
#include <pthread.h>

#include "comm/job.h"

/* Bytes of one message, at most: MPI 3 counts with int. */
enum { MT_MPI_MOST = 1 << 30 };

struct mt_mpi {
    MPI_Comm world;
    double deadline_s; /* of a wait for other processes; 0: none */
    int me;
    pthread_mutex_t lock; /* MPI may be called by any thread, but by one at a time */
};
/* What MPI cannot do ends the job. */
void mt_mpi_must(const struct mt_mpi *m, int rc, const char *what);
mt_status mt_mpi_wire(void *impl, const int *ranks, int n, struct mt_wire **wire, mt_err *e);
#endif
