#include "device/cpu/exec.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "device/cpu/exec_times.h"
#include "device/cpu/exec_watch.h"

/* A worker without work looks for it this long before it sleeps: waking costs more than most operations. */
enum { SPIN_NS = 60000, MIN_RING = 8, DEFAULT_RING = 512, MAX_WORKERS = 1024 };

void mt_exec_lock(struct mt_exec *e)
{
    pthread_mutex_lock(&e->mu);
}
/* One sleeper is called; if more is ready it calls the next one when it has taken its share. A worker that
 * spins needs no call. */
void mt_exec_unlock(struct mt_exec *e)
{
    bool more = e->n_items > 0;
    atomic_store_explicit(&e->ready, more, memory_order_relaxed);
    if (e->n_flights && !e->looking) more = true; /* somebody must look after them */
    if (more && e->sleeping && !e->spinning) pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->mu);
}

/* Debugging: what an operation declares undefined on entry shows as NaN if anyone reads it. */
static void poison(const struct mt_call *c)
{
    const struct mt_op_info *f = &mt_op_info[c->op];
    for (int i = 0; i < f->n_args; i++)
        if (f->arg[i].dir == MT_SOME || f->arg[i].dir == MT_WS) memset(c->arg[i], 0xff, (size_t)c->bytes[i]);
}
/* What a wire will bring from the others. */
static void count_moves(struct mt_node *n)
{
    struct mt_moved m;
    mt_moved_init(&m, &n->call);
    for (int p = 0; p < n->members; p++) mt_moved_add(&m, p, n->move[p].in);
    mt_moved_end(&m);
}
MT_UNWATCHED void mt_exec_part(const struct mt_exec *e, struct mt_node *n, int part, void *scratch)
{
    if (e->o.poison)
        poison(&n->call);
    else if (n->call.op == MT_OP_fresh)
        return;
    if (n->wire) {
        if (n->greeting && !n->greeted) {
            mt_greetings_write(n);
        } else {
            mt_moves_of(&n->call, n->move);
            count_moves(n);
        }
        n->wire->start(n->wire, n->stream, n->move);
        return;
    }
    mt_cpu_kernel[n->call.op](&n->call, part, n->parts, scratch, e->dev);
}

/* ---- workers ---- */
static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
static void spin(const struct mt_exec *e)
{
    int64_t end = mt_now_ns() + SPIN_NS;
    do
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&e->ready, memory_order_relaxed)) return;
            relax();
        }
    while (mt_now_ns() < end);
}
static void wait_for_work(struct mt_exec *e)
{
    if (e->spin && (!e->n_flights || e->looking)) {
        e->spinning++;
        mt_exec_unlock(e);
        spin(e);
        mt_exec_lock(e);
        e->spinning--;
        if (e->n_items || e->stop) return;
    }
    if (e->n_flights && !e->looking) {
        mt_wire_wait(e);
        return;
    }
    e->sleeping++;
    pthread_cond_wait(&e->work, &e->mu);
    e->sleeping--;
}

static void item_run(struct mt_exec *e, struct mt_item i, void *scratch)
{
    mt_time_started(&i);
    if (!i.node)
        mt_fiber_resume(&i.rank->fiber);
    else if (MT_WATCH)
        mt_watch_run(i.rank, i.node);
    else
        mt_exec_part(e, i.node, i.part, scratch);
}
static void *worker_main(void *arg)
{
    struct mt_worker *w = arg;
    struct mt_exec *e = w->exec;
    mt_cpu_thread_setup();
    mt_exec_lock(e);
    while (!e->stop) {
        if (mt_wire_due(e)) mt_wire_look(e);
        if (!e->n_items) {
            wait_for_work(e);
            continue;
        }
        struct mt_item i = mt_ready_take(e);
        int64_t pick = e->picks;
        e->running++;
        mt_exec_unlock(e);
        if (e->o.delay_seed) mt_trial_delay(e, pick);
        int64_t begun = mt_now_ns();
        item_run(e, i, w->scratch);
        int64_t took = mt_now_ns() - begun;
        mt_exec_lock(e);
        e->running--;
        i.rank->busy_ns += took;
        if (!i.node)
            mt_host_left(i.rank);
        else if (i.node->wire)
            mt_wire_started(i.rank, i.node);
        else
            mt_queue_part_done(i.rank, i.node);
        if (!mt_exec_busy(e)) pthread_cond_signal(&e->idle);
    }
    mt_exec_unlock(e);
    return NULL;
}

/* ---- a run ---- */
static mt_status run_status(struct mt_exec *e)
{
    if (e->ended < e->n || e->live) e->stuck = true;
    if (e->disagree) return MT_RANKS;
    for (int i = 0; i < e->n && e->stuck; i++) {
        struct mt_exec_rank *r = &e->rank[i];
        if (r->host != MT_HOST_ENDED || r->head != r->published) return mt_hang_describe(r);
    }
    for (int i = 0; i < e->n; i++)
        if (e->rank[i].ctx->err.code) return e->rank[i].ctx->err.code;
    return MT_OK;
}
static void wait_idle(struct mt_exec *e)
{
    while (mt_exec_busy(e)) pthread_cond_wait(&e->idle, &e->mu);
}
mt_status mt_exec_run(struct mt_exec *e, void (*host)(struct mt_ctx *, void *), void *const args[])
{
    mt_exec_lock(e);
    MT_ASSERT(!e->stuck);
    e->host = host;
    e->ended = 0;
    e->runs++;
    for (int i = 0; i < e->n; i++) {
        struct mt_exec_rank *r = &e->rank[i];
        memset(r->entered, 0, sizeof r->entered);
        r->arg = args ? args[i] : NULL;
        r->host = MT_HOST_RUN;
        mt_streams_restart(r->ctx);
        mt_ready_push(e, r, NULL);
    }
    mt_exec_unlock(e);
    mt_exec_lock(e);
    do wait_idle(e);
    while (mt_trial_let_go(e));
    for (int i = 0; i < e->n; i++) mt_watch_ended(&e->rank[i]);
    mt_status st = run_status(e);
    mt_exec_unlock(e);
    return st;
}
int mt_exec_workers(const struct mt_exec *e)
{
    return e->o.workers;
}
int64_t mt_exec_stood(const struct mt_exec *x)
{
    int64_t sum = 0;
    for (int i = 0; i < x->n; i++) sum += x->rank[i].stood;
    return sum;
}
int64_t mt_exec_ops(const struct mt_exec *e)
{
    return e->ops;
}

int64_t mt_exec_busy_ns(const struct mt_exec *e, int i)
{
    return e->rank[i].busy_ns;
}

/* ---- opening ---- */
static mt_status rank_open(struct mt_exec *e, struct mt_exec_rank *r, struct mt_ctx *ctx, mt_err *err)
{
    *r = (struct mt_exec_rank){.exec = e, .ctx = ctx, .host = MT_HOST_ENDED, .mask = (uint32_t)e->o.ring - 1};
    for (int s = 0; s < MT_N_STREAMS; s++) r->queue[s].first = r->queue[s].last = -1;
    r->ring = calloc((size_t)e->o.ring, sizeof *r->ring);
    MT_REQUIRE(r->ring, err, MT_IO, "opening the executor: no memory for %d queued operations of rank %d",
               e->o.ring, ctx->rank);
    r->limit = r->mask + 1;
    MT_TRY(mt_host_open(r, err));
    MT_TRY(mt_watch_open(r, err));
    ctx->exec = r;
    return MT_OK;
}

static void worker_pin(const struct mt_worker *w, const cpu_set_t *cpus)
{
    int seen = 0;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, cpus) || seen++ != w->index) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(c, &one);
        pthread_setaffinity_np(w->thread, sizeof one, &one);
        return;
    }
}
static mt_status workers_open(struct mt_exec *e, const cpu_set_t *cpus, bool pin, mt_err *err)
{
    for (int i = 0; i < e->o.workers; i++) {
        struct mt_worker *w = &e->worker[i];
        *w = (struct mt_worker){.exec = e, .index = i};
        w->scratch = mmap(NULL, MT_SCRATCH_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (w->scratch == MAP_FAILED) w->scratch = NULL;
        MT_REQUIRE(w->scratch, err, MT_IO, "mapping the scratch of worker %d: %s", i, strerror(errno));
        int rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc) munmap(w->scratch, MT_SCRATCH_BYTES);
        MT_REQUIRE(!rc, err, MT_IO, "starting worker %d of %d: %s", i, e->o.workers, strerror(rc));
        e->n_workers++;
        if (pin) worker_pin(w, cpus);
    }
    return MT_OK;
}

static mt_status exec_fill(struct mt_exec *e, struct mt_ctx *const ctxs[], int n, const cpu_set_t *cpus,
                           mt_err *err)
{
    e->rank = calloc((size_t)n, sizeof *e->rank);
    e->items = calloc((size_t)n * (MT_N_STREAMS + 1), sizeof *e->items);
    e->flight = calloc((size_t)n * MT_N_STREAMS, sizeof *e->flight);
    e->worker = calloc((size_t)e->o.workers, sizeof *e->worker);
    MT_REQUIRE(e->rank && e->items && e->flight && e->worker, err, MT_IO,
               "opening the executor of %d ranks: out of memory", n);
    for (int i = 0; i < n; i++) {
        e->n = i + 1; /* closing sees this one too */
        MT_TRY(rank_open(e, &e->rank[i], ctxs[i], err));
    }
    bool enough = e->o.workers <= CPU_COUNT(cpus);
    e->spin = enough && e->o.workers > 1;
    return workers_open(e, cpus, e->o.pin && enough, err);
}

mt_status mt_exec_open(struct mt_exec **exec, struct mt_exec_options o, struct mt_ctx *const ctxs[], int n,
                       const struct mt_cpu_dev *dev, mt_err *err)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof cpus, &cpus) || CPU_COUNT(&cpus) == 0) CPU_SET(0, &cpus);
    if (!o.workers) o.workers = CPU_COUNT(&cpus);
    if (!o.ring) o.ring = DEFAULT_RING;
#ifdef MT_DEBUG
    o.compare = true;
#endif
    MT_REQUIRE(o.workers > 0 && o.workers <= MAX_WORKERS, err, MT_CONFIG,
               "executor: %d workers; 1 to %d are possible", o.workers, MAX_WORKERS);
    MT_REQUIRE(o.ring >= MIN_RING && !(o.ring & (o.ring - 1)), err, MT_CONFIG,
               "executor: a queue of %d operations; it should be a power of two, %d at least", o.ring,
               MIN_RING);
    struct mt_exec *e = calloc(1, sizeof *e);
    MT_REQUIRE(e, err, MT_IO, "opening the executor: out of memory");
    e->o = o;
    e->dev = dev;
    pthread_mutex_init(&e->mu, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->idle, NULL);
    /* Workers and fibers leave signals to the program's own threads; faults stay theirs. */
    sigset_t all, old;
    sigfillset(&all);
    for (int i = 0; i < 6; i++)
        sigdelset(&all, (int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    mt_status st = exec_fill(e, ctxs, n, &cpus, err);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (st != MT_OK) {
        mt_exec_close(e);
        return st;
    }
    *exec = e;
    return MT_OK;
}

void mt_exec_close(struct mt_exec *e)
{
    if (!e) return;
    mt_exec_lock(e);
    e->stop = true;
    atomic_store(&e->ready, true);
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->mu);
    for (int i = 0; i < e->n_workers; i++) {
        pthread_join(e->worker[i].thread, NULL);
        munmap(e->worker[i].scratch, MT_SCRATCH_BYTES);
    }
    for (int i = 0; i < e->n; i++) {
        mt_watch_close(&e->rank[i]);
        mt_fiber_close(&e->rank[i].fiber);
        free(e->rank[i].ring);
        e->rank[i].ctx->exec = NULL;
    }
    pthread_mutex_destroy(&e->mu);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->idle);
    free(e->rank);
    free(e->items);
    free(e->flight);
    free(e->worker);
    free(e);
}
