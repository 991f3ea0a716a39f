/* exec_host.c: a rank's host code, a fiber. It changes threads whenever it parks, so it keeps no thread-local
 * state. */
#include "device/cpu/exec_times.h"
#include "device/cpu/exec_watch.h"

/* Operations that host code writes before it publishes them: the lock is taken once for so many. */
enum { BATCH = 32 };

static void host_main(void *arg)
{
    struct mt_exec_rank *r = arg;
    for (;;) {
        r->exec->host(r->ctx, r->arg);
        mt_host_park(r, MT_HOST_ENDED);
    }
}
mt_status mt_host_open(struct mt_exec_rank *r, mt_err *e)
{
    return mt_fiber_open(&r->fiber, MT_HOST_STACK_BYTES, true, host_main, r, e);
}

static void publish(struct mt_exec_rank *r)
{
    mt_exec_lock(r->exec);
    mt_queue_publish(r);
    mt_exec_unlock(r->exec);
}

/* `park` becomes `host` under the lock, after the switch and by the worker: were it done here, a second
 * worker could resume this stack while it is still in use. */
void mt_host_park(struct mt_exec_rank *r, enum mt_host_state why)
{
    publish(r);
    r->park = why;
    mt_fiber_yield(&r->fiber);
}

static bool may_run(const struct mt_exec_rank *r)
{
    if (r->host == MT_HOST_READ) return r->queue[r->want.stream].done >= r->want.seq;
    return r->host == MT_HOST_SPACE && r->published - r->head <= r->mask / 2;
}
void mt_host_wake(struct mt_exec_rank *r)
{
    if (!may_run(r)) return;
    r->host = MT_HOST_RUN;
    r->limit = r->head + r->mask + 1;
    mt_ready_push(r->exec, r, NULL);
}
void mt_host_left(struct mt_exec_rank *r)
{
    r->host = r->park;
    mt_time_host_left(r);
    if (r->host == MT_HOST_ENDED)
        r->exec->ended++;
    else
        mt_host_wake(r);
}

struct mt_node *mt_host_node(struct mt_exec_rank *r)
{
    if (r->tail == r->limit) mt_host_park(r, MT_HOST_SPACE);
    struct mt_node *n = &r->ring[r->tail & r->mask];
    mt_watch_fill();
    n->next = -1;
    n->rec = mt_times_place(r->ctx);
    n->wait = n->done = false;
    n->meet = NULL;
    n->wire = NULL;
    n->greeting = NULL;
    n->greeted = false;
    n->parts = n->left = 1;
    return n;
}
void mt_host_push(struct mt_exec_rank *r, struct mt_node *n)
{
    mt_watch_filled(n);
    if (++r->tail - r->published >= BATCH) publish(r);
}
