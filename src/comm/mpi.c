/* mpi.c: the processes of an MPI job. */
#include "comm/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "comm/mpi_core.h"

void mt_mpi_must(const struct mt_mpi *m, int rc, const char *what)
{
    char why[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc == MPI_SUCCESS) return;
    MPI_Error_string(rc, why, &n);
    fprintf(stderr, "moetitan: rank %d: %s failed: %s\n", m->me, what, why);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, MT_RANKS);
    exit(MT_RANKS);
}

static void __attribute__((noreturn)) stop(void *impl, int code)
{
    (void)impl;
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

/* Waits without keeping a core from processes that have work. How long that may take is the caller's watchdog's business. */
static void wait_for(struct mt_mpi *m, MPI_Request *r, const char *what)
{
    enum { EAGER = 50, SLEEP_NS = 50000 };
    int over = 0;
    for (int i = 0; !over; i++) {
        pthread_mutex_lock(&m->lock);
        mt_mpi_must(m, MPI_Test(r, &over, MPI_STATUS_IGNORE), what);
        pthread_mutex_unlock(&m->lock);
        if (!over && i >= EAGER) nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
    }
}

/* Begins a call, for those who ask where this process stands, and takes MPI; posted gives it back and waits. */
static void begin(struct mt_mpi *m, const char *what, int peer)
{
    if (peer < 0) m->calls++;
    m->peer = peer;
    m->what = what;
    pthread_mutex_lock(&m->lock);
}
static void posted(struct mt_mpi *m, int rc, MPI_Request *r)
{
    const char *what = m->what;
    mt_mpi_must(m, rc, what);
    pthread_mutex_unlock(&m->lock);
    wait_for(m, r, what);
    m->what = NULL;
}

/* Bytes of the message at `at`: MPI counts with int. */
static int chunk(int64_t bytes, int64_t at)
{
    return (int)(bytes - at < MT_MPI_MOST ? bytes - at : MT_MPI_MOST);
}

static void broadcast(void *impl, void *data, int64_t bytes, int from)
{
    struct mt_mpi *m = impl;
    for (int64_t at = 0; at < bytes; at += MT_MPI_MOST) {
        MPI_Request r;
        begin(m, "a broadcast", -1);
        posted(m, MPI_Ibcast((char *)data + at, chunk(bytes, at), MPI_BYTE, from, m->world, &r), &r);
    }
}
static void reduce(struct mt_mpi *m, int64_t *x, int64_t n, MPI_Op op)
{
    MPI_Request r;
    MT_ASSERT(n <= MT_MPI_MOST);
    begin(m, "a reduction", -1);
    posted(m, MPI_Iallreduce(MPI_IN_PLACE, x, (int)n, MPI_INT64_T, op, m->world, &r), &r);
}
static void sum(void *impl, int64_t *x, int64_t n)
{
    reduce(impl, x, n, MPI_SUM);
}
static void most(void *impl, int64_t *x, int64_t n)
{
    reduce(impl, x, n, MPI_MAX);
}

static void send(void *impl, int to, const void *data, int64_t bytes)
{
    struct mt_mpi *m = impl;
    for (int64_t at = 0; at < bytes; at += MT_MPI_MOST) {
        MPI_Request r;
        begin(m, "sending", to);
        posted(m, MPI_Isend((const char *)data + at, chunk(bytes, at), MPI_BYTE, to, 0, m->world, &r), &r);
    }
}
static void receive(void *impl, int from, void *data, int64_t bytes)
{
    struct mt_mpi *m = impl;
    for (int64_t at = 0; at < bytes; at += MT_MPI_MOST) {
        MPI_Request r;
        begin(m, "receiving", from);
        posted(m, MPI_Irecv((char *)data + at, chunk(bytes, at), MPI_BYTE, from, 0, m->world, &r), &r);
    }
}

static struct mt_job_call call(void *impl)
{
    struct mt_mpi *m = impl;
    return (struct mt_job_call){.n = m->calls, .what = m->what, .peer = m->peer};
}

static void leave(void *impl)
{
    struct mt_mpi *m = impl;
    MPI_Comm_free(&m->notes);
    MPI_Comm_free(&m->world);
    MPI_Finalize();
    mt_mpi_notes_free(m);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static const struct mt_job_ops ops = {.broadcast = broadcast,
                                      .sum = sum,
                                      .most = most,
                                      .send = send,
                                      .receive = receive,
                                      .stop = stop,
                                      .call = call,
                                      .note = mt_mpi_note,
                                      .noted = mt_mpi_noted,
                                      .wire = mt_mpi_wire,
                                      .leave = leave};

static int processes_here(MPI_Comm world)
{
    MPI_Comm node;
    int n = 1;
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &n);
    MPI_Comm_free(&node);
    return n;
}

mt_status mt_job_mpi(struct mt_job *j, const struct mt_launch *l, mt_err *e)
{
    int given = MPI_THREAD_SINGLE, n = 0;
    struct mt_mpi *m = calloc(1, sizeof *m);
    MT_REQUIRE(m, e, MT_IO, "joining the job: out of memory");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given) == MPI_SUCCESS)
        MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (given < MPI_THREAD_SERIALIZED || n < 1 || (l->size && n != l->size) || (n == 1 && !l->size)) {
        if (n) MPI_Finalize();
        free(m);
        MT_REQUIRE(n, e, MT_DEVICE, "%s started this process, and MPI_Init failed", l->by);
        MT_REQUIRE(given >= MPI_THREAD_SERIALIZED, e, MT_DEVICE,
                   "this MPI may not be used by several threads in turn (level %d, needed %d)", given,
                   MPI_THREAD_SERIALIZED);
        MT_FAIL(e, MT_RANKS,
                "%s started %d processes (0: did not say), and the MPI this moetitan was built with sees %d: "
                "the launcher must be of the same MPI",
                l->by, l->size, n);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &m->world);
    MPI_Comm_dup(MPI_COMM_WORLD, &m->notes);
    MPI_Comm_set_errhandler(m->notes, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->world, &m->me);
    pthread_mutex_init(&m->lock, NULL);
    *j = (struct mt_job){.n = n,
                         .me = m->me,
                         .on_node = processes_here(m->world),
                         .world = n,
                         .first = m->me,
                         .n_local = 1,
                         .ops = &ops,
                         .impl = m};
    return MT_OK;
}
