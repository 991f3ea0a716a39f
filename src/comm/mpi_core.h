/* mpi_core.h: what the files on MPI share. mpi.c: the job; mpi_wire.c: its collectives; mpi_note.c: its notes. */
#ifndef MT_COMM_MPI_CORE_H
#define MT_COMM_MPI_CORE_H
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "comm/job.h"

/* Bytes of one message, at most: MPI 3 counts with int. */
enum { MT_MPI_MOST = 1 << 30 };

struct mt_mpi {
    MPI_Comm world, notes;
    int me;
    /* Written by the thread that calls, read by any. */
    _Atomic int64_t calls;
    _Atomic(const char *) what;
    atomic_int peer;
    struct mt_mpi_note *sent; /* owned: notes may be under way until MPI ends */
    pthread_mutex_t lock;     /* MPI may be called by any thread, but by one at a time */
};
/* What MPI cannot do ends the job. */
void mt_mpi_must(const struct mt_mpi *m, int rc, const char *what);
bool mt_mpi_note(void *impl, int to, const void *data, int64_t bytes);
int mt_mpi_noted(void *impl, void *data, int64_t bytes);
void mt_mpi_notes_free(struct mt_mpi *m); /* after MPI has ended */
mt_status mt_mpi_wire(void *impl, const int *ranks, int n, struct mt_wire **wire, mt_err *e);
#endif
