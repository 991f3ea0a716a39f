/* mpi_wire.c: a collective is a set of messages, one to and from every other member, on a communicator of the
 * group's own, with the stream as tag: each stream's messages keep their order, and streams do not meet.
 * Nothing waits: start posts them, test lets MPI go on and looks whether they are through. */
#include <stdlib.h>
#include <string.h>

#include "comm/mpi_core.h"

struct posted {
    MPI_Request *request;
    int n, room;
};
struct mpi_wire {
    struct mt_wire base;
    struct mt_mpi *mpi;
    MPI_Comm comm;
    int n, me;
    struct posted stream[MT_N_STREAMS];
};

static MPI_Request *next_request(struct posted *p)
{
    if (p->n == p->room) {
        p->room *= 2; /* more messages than members: pieces above MT_MPI_MOST */
        p->request = realloc(p->request, (size_t)p->room * sizeof *p->request);
        MT_ASSERT(p->request);
    }
    return &p->request[p->n++];
}

/* All messages of one direction to or from one member. */
static void post(struct mpi_wire *w, int stream, int peer, const char *src, char *dst, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += MT_MPI_MOST) {
        int n = (int)(bytes - at < MT_MPI_MOST ? bytes - at : MT_MPI_MOST);
        MPI_Request *r = next_request(&w->stream[stream]);
        if (dst)
            mt_mpi_must(w->mpi, MPI_Irecv(dst + at, n, MPI_BYTE, peer, stream, w->comm, r),
                        "a collective's receive");
        else
            mt_mpi_must(w->mpi, MPI_Isend(src + at, n, MPI_BYTE, peer, stream, w->comm, r),
                        "a collective's send");
    }
}

/* Members begin with different peers, so that nobody is everybody's first. */
static void start(struct mt_wire *base, int stream, const struct mt_move *move)
{
    struct mpi_wire *w = (struct mpi_wire *)base;
    const struct mt_move *own = &move[w->me];
    pthread_mutex_lock(&w->mpi->lock);
    w->stream[stream].n = 0;
    for (int i = 1; i < w->n; i++) {
        int peer = (w->me + w->n - i) % w->n;
        post(w, stream, peer, NULL, move[peer].dst, move[peer].in);
    }
    for (int i = 1; i < w->n; i++) {
        int peer = (w->me + i) % w->n;
        post(w, stream, peer, move[peer].src, NULL, move[peer].out);
    }
    pthread_mutex_unlock(&w->mpi->lock);
    MT_ASSERT(own->in == own->out);
    if (own->in && own->dst != own->src) memcpy(own->dst, own->src, (size_t)own->in);
}

static bool test(struct mt_wire *base, int stream)
{
    struct mpi_wire *w = (struct mpi_wire *)base;
    struct posted *p = &w->stream[stream];
    int over = 0;
    pthread_mutex_lock(&w->mpi->lock);
    mt_mpi_must(w->mpi, MPI_Testall(p->n, p->request, &over, MPI_STATUSES_IGNORE), "a collective");
    pthread_mutex_unlock(&w->mpi->lock);
    return over;
}

static void close_wire(struct mt_wire *base)
{
    struct mpi_wire *w = (struct mpi_wire *)base;
    for (int s = 0; s < MT_N_STREAMS; s++) free(w->stream[s].request);
    pthread_mutex_lock(&w->mpi->lock);
    MPI_Comm_free(&w->comm);
    pthread_mutex_unlock(&w->mpi->lock);
    free(w);
}

static struct mpi_wire *wire_new(struct mt_mpi *m, int n, MPI_Comm comm)
{
    struct mpi_wire *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    *w = (struct mpi_wire){.base = {start, test, close_wire}, .mpi = m, .comm = comm, .n = n};
    MPI_Comm_rank(comm, &w->me);
    for (int s = 0; s < MT_N_STREAMS; s++) {
        w->stream[s].room = 2 * n;
        w->stream[s].request = calloc((size_t)w->stream[s].room, sizeof *w->stream[s].request);
        if (w->stream[s].request) continue;
        while (s-- > 0) free(w->stream[s].request);
        free(w);
        return NULL;
    }
    return w;
}

mt_status mt_mpi_wire(void *impl, const int *ranks, int n, struct mt_wire **wire, mt_err *e)
{
    struct mt_mpi *m = impl;
    MPI_Comm comm;
    int size = 0;
    *wire = NULL;
    m->calls++;
    m->peer = -1;
    m->what = "making a group";
    pthread_mutex_lock(&m->lock);
    mt_mpi_must(m, MPI_Comm_split(m->world, n > 1 ? ranks[0] : MPI_UNDEFINED, m->me, &comm), m->what);
    pthread_mutex_unlock(&m->lock);
    m->what = NULL;
    if (n == 1) return MT_OK;
    MPI_Comm_size(comm, &size);
    MT_ASSERT(size == n);
    struct mpi_wire *w = wire_new(m, n, comm);
    if (!w) MPI_Comm_free(&comm);
    MT_REQUIRE(w, e, MT_IO, "opening a group of %d ranks: out of memory", n);
    *wire = &w->base;
    return MT_OK;
}
