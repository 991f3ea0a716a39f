/* exec_wire.c: collectives between processes. The library that carries them moves nothing by itself: workers
 * look after what is under way, one at a time, now and then while they have other work and all the time when
 * not. No worker is held by a collective, and a process that waits for others leaves them the cores. */
#include <sched.h>
#include <time.h>

#include "device/cpu/exec_core.h"

/* LOOK: between two looks of workers that are busy. EAGER: looks without a sleep between, each after a yield;
 * then the sleep grows from MIN to MAX. */
enum { LOOK_NS = 100000, EAGER = 50, MIN_SLEEP_NS = 20000, MAX_SLEEP_NS = 200000 };

void mt_wire_started(struct mt_exec_rank *r, struct mt_node *n)
{
    struct mt_exec *e = r->exec;
    if (!n->greeted) mt_stand_entered(r, n);
    e->flight[e->n_flights++] = (struct mt_flight){.rank = r, .node = n};
    e->quiet = 0;
    e->looked = 0;
}

bool mt_wire_due(const struct mt_exec *e)
{
    return e->n_flights && !e->looking && (!e->n_items || mt_now_ns() - e->looked >= LOOK_NS);
}

/* Greetings are over: on to the moves, if all mean the same; if not, nothing more happens. Else the whole is over. */
static void over(struct mt_exec *e, const struct mt_flight *f)
{
    if (!f->node->greeting || f->node->greeted) {
        mt_queue_part_done(f->rank, f->node);
        return;
    }
    f->node->greeted = true;
    if (mt_greetings_agree(f->rank, f->node)) mt_ready_push(e, f->rank, f->node);
}

void mt_wire_look(struct mt_exec *e)
{
    int n = e->n_flights, found = 0; /* what others start meanwhile comes behind these */
    e->looking = true;
    mt_exec_unlock(e);
    for (int i = 0; i < n; i++) {
        struct mt_flight *f = &e->flight[i];
        f->over = f->node->wire->test(f->node->wire, f->node->stream);
    }
    mt_exec_lock(e);
    e->looking = false;
    e->looked = mt_now_ns();
    for (int i = n - 1; i >= 0; i--) {
        struct mt_flight f = e->flight[i];
        if (!f.over) continue;
        e->flight[i] = e->flight[--e->n_flights];
        over(e, &f);
        found++;
    }
    e->quiet = found ? 0 : e->quiet + 1;
    if (!mt_exec_busy(e)) pthread_cond_signal(&e->idle);
}

static struct timespec after(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    ns += t.tv_nsec;
    return (struct timespec){t.tv_sec + ns / 1000000000, ns % 1000000000};
}

void mt_wire_wait(struct mt_exec *e)
{
    e->looking = true;
    if (e->quiet < EAGER) {
        mt_exec_unlock(e);
        sched_yield();
        mt_exec_lock(e);
    } else {
        int64_t ns = MIN_SLEEP_NS * (1 + (e->quiet - EAGER) / 8);
        struct timespec until = after(ns < MAX_SLEEP_NS ? ns : MAX_SLEEP_NS);
        e->sleeping++;
        pthread_cond_timedwait(&e->work, &e->mu, &until);
        e->sleeping--;
    }
    e->looking = false;
}
