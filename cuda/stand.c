#include "stand.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/exec_core.h"
#include "device/group.h"
#include "device_core.h"

struct note {
    uint16_t op;
    mt_event ev;               /* of a wait */
    struct mt_collective what; /* of a collective, */
    int32_t members;           /* of how many */
    int64_t entered
        [MT_TRACE_GROUPS]; /* number of each group's last collective on the stream, up to this position */
};
struct queue {
    int64_t begun, given; /* positions being enqueued, and enqueued */
    struct note note[MT_CUDA_EVENTS];
};
/* Those of all streams, in the order in which they were enqueued. */
enum { LAST = 64 };
struct called {
    int stream;
    int64_t seq;
    struct mt_collective what;
};
struct mt_cuda_stand {
    pthread_mutex_t mu; /* no call of CUDA's is made under it */
    int32_t host;
    bool running;
    int64_t run, calls;
    struct called last[LAST];
    struct queue queue[MT_N_STREAMS];
};

mt_status mt_cuda_stand_open(struct mt_cuda_stand **stand, mt_err *e)
{
    struct mt_cuda_stand *x = calloc(1, sizeof *x);
    *stand = NULL;
    MT_REQUIRE(x, e, MT_IO, "opening the cuda device: no memory for notes of its streams");
    pthread_mutex_init(&x->mu, NULL);
    x->host = MT_HOST_ENDED;
    *stand = x;
    return MT_OK;
}
void mt_cuda_stand_close(struct mt_cuda_stand *stand)
{
    if (stand) pthread_mutex_destroy(&stand->mu);
    free(stand);
}

/* ---- by the thread that enqueues ---- */
void mt_cuda_stand_run(struct mt_cuda *d, bool begins)
{
    struct mt_cuda_stand *x = d->stand;
    if (!x) return;
    pthread_mutex_lock(&x->mu);
    x->running = begins;
    x->host = begins ? MT_HOST_RUN : MT_HOST_ENDED;
    if (begins) {
        x->run++;
        x->calls = 0;
        for (int s = 0; s < MT_N_STREAMS; s++) x->queue[s].begun = x->queue[s].given = 0;
    }
    pthread_mutex_unlock(&x->mu);
}

static void host_is(struct mt_cuda_stand *x, int host)
{
    pthread_mutex_lock(&x->mu);
    x->host = host;
    pthread_mutex_unlock(&x->mu);
}
void mt_cuda_stand_waits(struct mt_cuda *d, bool waits)
{
    if (d->stand) host_is(d->stand, waits ? MT_HOST_READ : MT_HOST_RUN);
}

/* The event's position, MT_CUDA_EVENTS earlier, ends. */
static mt_status make_room(struct mt_cuda *d, const struct mt_stream *s, mt_err *e)
{
    cudaEvent_t event = mt_cuda_event(d, s->id, s->seq);
    if (s->seq <= MT_CUDA_EVENTS || cudaEventQuery(event) == cudaSuccess) return MT_OK;
    host_is(d->stand, MT_HOST_SPACE);
    cudaError_t r = cudaEventSynchronize(event);
    host_is(d->stand, MT_HOST_RUN);
    MT_CUDA_TRY(r, e, MT_DEVICE, "waiting for operation %lld of stream %s",
                (long long)s->seq - MT_CUDA_EVENTS, mt_stream_name(s->id));
    return MT_OK;
}

mt_status mt_cuda_stand_begin(struct mt_cuda *d, const struct mt_stream *s, int op, mt_event ev,
                              const struct mt_collective *what, mt_err *e)
{
    struct mt_cuda_stand *x = d->stand;
    if (!x) return MT_OK;
    MT_TRY(make_room(d, s, e));
    struct queue *q = &x->queue[s->id];
    struct note *n = &q->note[s->seq % MT_CUDA_EVENTS];
    pthread_mutex_lock(&x->mu);
    if (s->seq == 1)
        memset(n->entered, 0, sizeof n->entered);
    else
        memcpy(n->entered, q->note[(s->seq - 1) % MT_CUDA_EVENTS].entered, sizeof n->entered);
    n->op = (uint16_t)op;
    n->ev = ev;
    if (what) {
        n->what = *what;
        n->members = s->ctx->group[what->group]->n;
        n->entered[what->group] = what->seq;
        x->last[x->calls++ % LAST] = (struct called){s->id, s->seq, *what};
    }
    q->begun = s->seq;
    pthread_mutex_unlock(&x->mu);
    return MT_OK;
}

void mt_cuda_stand_end(struct mt_cuda *d, int stream, int64_t seq)
{
    if (!d->stand) return;
    pthread_mutex_lock(&d->stand->mu);
    d->stand->queue[stream].given = seq;
    pthread_mutex_unlock(&d->stand->mu);
}

/* ---- by another ---- */
/* The first position in (over, given] whose event has not come, given + 1 if there is none. Events of a stream come in order. */
static int64_t search(struct mt_cuda *d, int s, int64_t over, int64_t given)
{
    int64_t lo = over + 1, hi = given + 1;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (cudaEventQuery(mt_cuda_event(d, s, mid)) == cudaErrorNotReady)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The first position of a stream that is not over, and its note; 0: all are, and the note is the last one's. Meanwhile others may
 * be enqueued: an answer holds unless the event of its position was taken by another. */
static int64_t first_left(struct mt_cuda *d, int s, struct note *n)
{
    enum { TRIES = 64 };
    struct mt_cuda_stand *x = d->stand;
    const struct queue *q = &x->queue[s];
    int64_t first = 0, begun = 0, given = 0;
    bool holds = false;
    for (int i = 0; i <= TRIES && !holds; i++) {
        if (i) first = search(d, s, begun > MT_CUDA_EVENTS ? begun - MT_CUDA_EVENTS : 0, given);
        pthread_mutex_lock(&x->mu);
        begun = q->begun, given = q->given;
        holds = i && first + MT_CUDA_EVENTS > begun;
        if (first > begun) first = 0;
        if (begun) *n = q->note[(first ? first : begun) % MT_CUDA_EVENTS];
        pthread_mutex_unlock(&x->mu);
    }
    return first;
}

static bool is_collective(int op)
{
    return op < MT_N_OPS && mt_op_info[op].kind == MT_COMM;
}

static struct mt_stand_stream stream_of(int64_t first, const struct note *n)
{
    if (!first) return (struct mt_stand_stream){.kind = MT_STAND_EMPTY};
    struct mt_stand_stream t = {.kind = MT_STAND_RUNS, .seq = first, .op = n->op, .ev = n->ev};
    if (n->op == MT_OP_wait) t.kind = MT_STAND_WAITS;
    if (!is_collective(n->op)) return t;
    t.kind = MT_STAND_MEETS;
    t.what = n->what;
    t.members = n->members;
    return t;
}

/* The last that were begun, of those that are still known. */
static void last_begun(struct mt_cuda_stand *x, const int64_t first[MT_N_STREAMS], struct mt_rank_stand *out)
{
    struct mt_collective found[MT_STAND_LAST];
    int n = 0;
    pthread_mutex_lock(&x->mu);
    out->n_last = x->calls;
    for (int64_t i = x->calls - 1; i >= 0 && i >= x->calls - LAST && n < MT_STAND_LAST; i--) {
        const struct called *c = &x->last[i % LAST];
        if (first[c->stream] && c->seq > first[c->stream])
            out->n_last--;
        else
            found[n++] = c->what;
    }
    pthread_mutex_unlock(&x->mu);
    if (out->n_last < n) out->n_last = n;
    for (int i = 0; i < n; i++) out->last[(out->n_last - 1 - i) % MT_STAND_LAST] = found[i];
}

bool mt_cuda_stand(struct mt_cuda *d, struct mt_rank_stand *out)
{
    struct mt_cuda_stand *x = d->stand;
    int64_t first[MT_N_STREAMS];
    if (!x) return false;
    pthread_mutex_lock(&x->mu);
    *out = (struct mt_rank_stand){.rank = d->ctx->rank,
                                  .host = x->host,
                                  .working = x->running && x->host == MT_HOST_RUN,
                                  .run = x->run};
    pthread_mutex_unlock(&x->mu);
    cudaSetDevice(d->device);
    for (int s = 0; s < MT_N_STREAMS; s++) {
        struct note n = {0};
        first[s] = first_left(d, s, &n);
        out->stream[s] = stream_of(first[s], &n);
        out->working |= out->stream[s].kind == MT_STAND_RUNS;
        for (int g = 0; g < MT_TRACE_GROUPS; g++) out->entered[g][s] = n.entered[g];
    }
    last_begun(x, first, out);
    return true;
}

bool mt_cuda_stand_in(struct mt_cuda *d, int group, int s, struct mt_collective *what)
{
    struct note n = {0};
    int64_t at = d->stand ? first_left(d, s, &n) : 0;
    bool found = false;
    if (!at) return false;
    pthread_mutex_lock(&d->stand->mu);
    const struct queue *q = &d->stand->queue[s];
    for (; at <= q->begun && !found; at++) {
        const struct note *k = &q->note[at % MT_CUDA_EVENTS];
        found = is_collective(k->op) && k->what.group == group;
        if (found) *what = k->what;
    }
    pthread_mutex_unlock(&d->stand->mu);
    return found;
}
