/* mpi_note.c: notes between processes of which some may never answer: sent and forgotten, looked for and not waited for. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/mpi_core.h"

struct mt_mpi_note {
    struct mt_mpi_note *next;
    char data[];
};

/* A thread that hangs inside MPI keeps the lock for good. */
static bool take(struct mt_mpi *m)
{
    enum { WAIT_NS = 500000000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(&m->lock, &until) == 0;
}

bool mt_mpi_note(void *impl, int to, const void *data, int64_t bytes)
{
    struct mt_mpi *m = impl;
    MPI_Request r;
    struct mt_mpi_note *n = malloc(sizeof *n + (size_t)bytes);
    if (!n || !take(m)) {
        free(n);
        return false;
    }
    memcpy(n->data, data, (size_t)bytes);
    n->next = m->sent;
    m->sent = n;
    mt_mpi_must(m, MPI_Isend(n->data, (int)bytes, MPI_BYTE, to, 0, m->notes, &r), "a note");
    mt_mpi_must(m, MPI_Request_free(&r), "a note");
    pthread_mutex_unlock(&m->lock);
    return true;
}

int mt_mpi_noted(void *impl, void *data, int64_t bytes)
{
    struct mt_mpi *m = impl;
    MPI_Status s;
    int come = 0, from = -1;
    if (!take(m)) return -1;
    mt_mpi_must(m, MPI_Iprobe(MPI_ANY_SOURCE, 0, m->notes, &come, &s), "looking for notes");
    if (come) {
        from = s.MPI_SOURCE;
        mt_mpi_must(m, MPI_Recv(data, (int)bytes, MPI_BYTE, from, 0, m->notes, MPI_STATUS_IGNORE), "a note");
    }
    pthread_mutex_unlock(&m->lock);
    return from;
}

void mt_mpi_notes_free(struct mt_mpi *m)
{
    while (m->sent) {
        struct mt_mpi_note *n = m->sent;
        m->sent = n->next;
        free(n);
    }
}
