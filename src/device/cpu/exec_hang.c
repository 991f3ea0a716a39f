/* exec_hang.c: where ranks stand, and what is wrong when nothing can run. Under the lock. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/cpu/exec_core.h"
#include "device/cpu/exec_watch.h"

const char *mt_stand_host(int host)
{
    static const char *const name[] = {[MT_HOST_RUN] = "runs",
                                       [MT_HOST_READ] = "waits for a host read",
                                       [MT_HOST_SPACE] = "waits for room in its queue",
                                       [MT_HOST_ENDED] = "has ended"};
    return name[host];
}

static const struct mt_node *first_of(const struct mt_exec_rank *r, int s)
{
    return r->queue[s].first < 0 ? NULL : &r->ring[(uint32_t)r->queue[s].first & r->mask];
}

/* ---- nothing can run ---- */
/* The first rank that is not at n's meeting, and where it was last; to `out`. */
static void absent_describe(const struct mt_exec_rank *r, const struct mt_node *n, char *out, size_t size)
{
    const struct mt_group *g = r->ctx->group[n->call.scalar[0].i];
    int i = 0;
    char text[MT_COLLECTIVE_TEXT] = "none";
    while (i < n->members - 1 && n->meet->at[i].rank) i++;
    for (int k = 0; k < r->exec->n; k++) {
        const struct mt_ctx *c = r->exec->rank[k].ctx;
        if (c->rank == g->rank[i] && c->trace.n) mt_collective_text(mt_trace_last(&c->trace), text);
    }
    snprintf(out, size, "rank %d is not there, whose last collective is %s", g->rank[i], text);
}
mt_status mt_hang_describe(struct mt_exec_rank *r)
{
    mt_err *err = &r->ctx->err;
    for (int s = 0; s < MT_N_STREAMS; s++) {
        const struct mt_node *n = first_of(r, s);
        if (!n || (n->wait && first_of(r, n->ev.stream))) continue; /* that stream has the cause */
        if (n->wait)
            return mt_err_set(err, MT_HANG,
                              "rank %d, stream %d: waits for operation %lld of stream %d, which was never "
                              "enqueued (it is at %lld)",
                              r->ctx->rank, s, (long long)(n->ev.seq - r->base[n->ev.stream]), n->ev.stream,
                              (long long)(r->queue[n->ev.stream].done - r->base[n->ev.stream]));
        if (n->meet) {
            char absent[MT_COLLECTIVE_TEXT + 80];
            absent_describe(r, n, absent, sizeof absent);
            return mt_err_set(
                err, MT_HANG,
                "rank %d, stream %d: %s (operation %lld) has %d of its %d members: %s; host code %s",
                r->ctx->rank, s, mt_op_info[n->call.op].name, (long long)(n->seq - r->base[s]),
                n->meet->arrived, n->members, absent, mt_stand_host(r->host));
        }
    }
    return mt_err_set(err, MT_HANG, "rank %d: nothing can run; host code %s", r->ctx->rank,
                      mt_stand_host(r->host));
}

/* ---- where a rank stands ---- */
MT_UNWATCHED void mt_stand_entered(struct mt_exec_rank *r, const struct mt_node *n)
{
    r->entered[n->what.group][n->what.stream] = n->what.seq;
    r->last_entered[r->n_entered++ % MT_STAND_LAST] = n->what;
}

static struct mt_stand_stream stream_of(const struct mt_exec_rank *r, int s)
{
    const struct mt_node *n = first_of(r, s);
    if (!n) return (struct mt_stand_stream){.kind = MT_STAND_EMPTY};
    struct mt_stand_stream t = {.kind = MT_STAND_RUNS, .seq = n->seq - r->base[s], .op = n->call.op};
    if (n->wait) {
        t.kind = MT_STAND_WAITS;
        t.ev = (mt_event){n->ev.stream, n->ev.seq - r->base[n->ev.stream]};
    } else if (n->meet || n->wire) {
        t.kind = MT_STAND_MEETS;
        t.what = n->what;
        t.members = n->members;
        t.here = n->meet ? n->meet->arrived : 0;
    }
    return t;
}

bool mt_exec_stand(struct mt_exec *e, int i, struct mt_rank_stand *out)
{
    enum { WAIT_NS = 500000000 };
    const struct mt_exec_rank *r = &e->rank[i];
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(&e->mu, &until)) return false;
    *out = (struct mt_rank_stand){.rank = r->ctx->rank,
                                  .host = (int32_t)r->host,
                                  .working = e->running > 0,
                                  .run = e->runs,
                                  .n_last = r->n_entered};
    for (int s = 0; s < MT_N_STREAMS; s++) out->stream[s] = stream_of(r, s);
    memcpy(out->entered, r->entered, sizeof out->entered);
    memcpy(out->last, r->last_entered, sizeof out->last);
    pthread_mutex_unlock(&e->mu);
    return true;
}
