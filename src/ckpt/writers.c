#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "ckpt/writers_core.h"

/* ---- writers ---- */
static bool has_chunk(const struct mt_writers *w)
{
    return w->state == MT_WRITTEN_BUSY && !w->fn && !w->reading && w->c.file < w->parts->n_files;
}
static bool has_end(const struct mt_writers *w)
{
    return w->state == MT_WRITTEN_BUSY && !w->fn && !w->files_left && !w->finishing;
}
static bool has_call(const struct mt_writers *w)
{
    return w->state == MT_WRITTEN_BUSY && w->fn && !w->called;
}

static void call(struct mt_writers *w)
{
    int64_t turn = w->turn;
    mt_err e = {0};
    mt_status (*fn)(void *, mt_err *) = w->fn;
    void *arg = w->arg;
    w->called = true;
    pthread_mutex_unlock(&w->lock);
    mt_status st = fn(arg, &e);
    pthread_mutex_lock(&w->lock);
    if (!mt_writers_gone(w, turn)) mt_writers_end(w, st == MT_OK ? MT_WRITTEN_DONE : MT_WRITTEN_FAILED, &e);
}

/* Those that hang in what was given up do not count. */
static bool enough_at_work(const struct mt_writers *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++) n += w->writer[i].busy && w->writer[i].turn == w->turn;
    return n >= (w->o.threads ? w->o.threads : 1);
}

/* Does something that there is to do; false: there is nothing, or others are at it. */
static bool work(struct mt_writers *w, struct mt_writer *x)
{
    struct mt_chunk chunk;
    if ((!has_chunk(w) && !has_call(w) && !has_end(w)) || enough_at_work(w)) return false;
    x->busy = true;
    x->turn = w->turn;
    if (has_call(w))
        call(w);
    else if (has_end(w))
        mt_writers_finish(w);
    else if (mt_writers_read(w, x->buffer, &chunk))
        mt_writers_write(w, x->buffer, &chunk);
    x->busy = false;
    pthread_cond_broadcast(&w->change);
    return true;
}

/* Behind the threads that compute: a core that these leave for a moment, waiting for another rank, is taken for the save, and none of
 * them is held up in a step that all ranks wait for. An update that waits for the bytes leaves its core to the writer. On Linux
 * the call is for this thread alone. */
static void step_back(void)
{
    enum { BACK = 10 };
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, 0);
    if (!errno) (void)setpriority(PRIO_PROCESS, 0, nice + BACK); /* the system cuts it at its lowest */
}

static void *writer_main(void *arg)
{
    struct mt_writer *x = arg;
    struct mt_writers *w = x->w;
    step_back();
    pthread_mutex_lock(&w->lock);
    while (!w->stop)
        if (!work(w, x)) pthread_cond_wait(&w->change, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- what the run does ---- */
static bool one_is_free(const struct mt_writers *w)
{
    for (int i = 0; i < w->n; i++)
        if (!w->writer[i].busy) return true;
    return false;
}

/* With the lock: something new is under way. A writer that has only just ended what it did is waited for. */
static mt_status start(struct mt_writers *w, mt_err *e)
{
    struct timespec soon = mt_clock_later(mt_clock_now(), 0.2);
    MT_ASSERT(w->state != MT_WRITTEN_BUSY);
    while (!one_is_free(w) && mt_writers_wait_until(w, soon)) continue;
    MT_REQUIRE(one_is_free(w), e, MT_IO, "every writer still hangs in an earlier save's call to the store");
    w->turn++;
    w->state = MT_WRITTEN_BUSY;
    w->err = (mt_err){0};
    w->fn = NULL;
    w->called = w->reading = w->finishing = false;
    w->c = (struct mt_cursor){0};
    pthread_cond_broadcast(&w->change);
    return MT_OK;
}

static mt_status begin(struct mt_writers *w, const char *folder, mt_err *e)
{
    MT_REQUIRE(strlen(folder) < MT_WRITERS_FOLDER, e, MT_CONFIG,
               "the path of the checkpoint is too long: '%.60s...'", folder);
    MT_TRY(start(w, e));
    snprintf(w->folder, MT_WRITERS_FOLDER, "%s", folder);
    w->begun = mt_clock_now();
    w->read_bytes = 0;
    w->write_s = 0;
    w->files_left = w->parts->n_files;
    for (int i = 0; i < w->parts->n_files; i++) {
        w->left[i] = 1;
        w->stalled[i] = 0;
    }
    atomic_store(&w->progress, 0);
    return MT_OK;
}
mt_status mt_writers_begin(struct mt_writers *w, const char *folder, mt_err *e)
{
    pthread_mutex_lock(&w->lock);
    mt_status st = begin(w, folder, e);
    pthread_mutex_unlock(&w->lock);
    return st;
}

mt_status mt_writers_call(struct mt_writers *w, mt_status (*fn)(void *, mt_err *), void *arg, mt_err *e)
{
    pthread_mutex_lock(&w->lock);
    mt_status st = start(w, e);
    if (st == MT_OK) {
        w->fn = fn;
        w->arg = arg;
    }
    pthread_mutex_unlock(&w->lock);
    return st;
}

enum mt_written mt_writers_wait(struct mt_writers *w, double seconds, mt_err *e)
{
    struct timespec until = mt_clock_later(mt_clock_now(), seconds);
    pthread_mutex_lock(&w->lock);
    while (w->state == MT_WRITTEN_BUSY)
        if (w->o.threads ? !mt_writers_wait_until(w, until) : !work(w, w->writer)) break;
    enum mt_written state = w->state;
    if (state == MT_WRITTEN_FAILED) *e = w->err;
    pthread_mutex_unlock(&w->lock);
    return state;
}

enum mt_written mt_writers_look(struct mt_writers *w, mt_err *e)
{
    pthread_mutex_lock(&w->lock);
    enum mt_written state = w->state;
    if (state == MT_WRITTEN_FAILED) *e = w->err;
    pthread_mutex_unlock(&w->lock);
    return state;
}

bool mt_writers_linger(struct mt_writers *w)
{
    bool busy = false;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < w->n; i++) busy |= w->writer[i].busy;
    pthread_mutex_unlock(&w->lock);
    return busy;
}

void mt_writers_cancel(struct mt_writers *w, const char *why)
{
    mt_err e = {0};
    (void)mt_err_set(&e, MT_IO, "%s", why);
    pthread_mutex_lock(&w->lock);
    mt_writers_end(w, MT_WRITTEN_FAILED, &e);
    pthread_mutex_unlock(&w->lock);
}

/* With the lock. */
static void wait_for(struct mt_writers *w, int64_t need)
{
    while (w->state == MT_WRITTEN_BUSY && atomic_load(&w->progress) < need) {
        mt_err e = {0};
        if (!(w->o.timeout_s > 0))
            pthread_cond_wait(&w->change, &w->lock);
        else if (!mt_writers_wait_until(w, mt_clock_later(w->begun, w->o.timeout_s))) {
            (void)mt_err_set(&e, MT_IO, "after %g s the store has not taken what the next update overwrites",
                             w->o.timeout_s);
            mt_writers_end(w, MT_WRITTEN_FAILED, &e);
        }
    }
}

void mt_writers_gate(struct mt_writers *w, int rank, int64_t when)
{
    int file = 0;
    if (atomic_load(&w->progress) == INT64_MAX) return;
    int64_t need = mt_parts_before(w->parts, rank, when);
    if (atomic_load(&w->progress) >= need) return;
    while (w->parts->file[file].rank != rank) file++;
    struct timespec begun = mt_clock_now();
    pthread_mutex_lock(&w->lock);
    wait_for(w, need);
    w->stalled[file] += mt_clock_between(begun, mt_clock_now());
    pthread_mutex_unlock(&w->lock);
}

struct mt_writers_report mt_writers_report(struct mt_writers *w)
{
    pthread_mutex_lock(&w->lock);
    struct mt_writers_report r = {.write_s = w->write_s};
    for (int i = 0; i < w->parts->n_files; i++)
        if (w->stalled[i] > r.stalled_s) r.stalled_s = w->stalled[i];
    pthread_mutex_unlock(&w->lock);
    return r;
}

/* ---- opening ---- */
static void release(struct mt_writers *w)
{
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w->writer);
    free(w->handle);
    free(w->left);
    free(w->stalled);
    mt_sum_close(w->whole);
    mt_sum_close(w->part);
    free(w);
}

static mt_status start_threads(struct mt_writers *w, mt_err *e)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, MT_WRITERS_STACK);
    int error = 0;
    while (w->started < (w->o.threads ? w->n : 0) && !error) {
        struct mt_writer *x = &w->writer[w->started];
        error = pthread_create(&x->id, &attr, writer_main, x);
        w->started += !error;
    }
    pthread_attr_destroy(&attr);
    MT_REQUIRE(!error, e, MT_IO, "cannot start %d threads that write checkpoints (ckpt.writers): %s", w->n,
               strerror(error));
    return MT_OK;
}

static mt_status make(struct mt_writers *w, mt_err *e)
{
    int n = w->n = w->o.threads + 1;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, &attr);
    pthread_condattr_destroy(&attr);
    atomic_init(&w->progress, INT64_MAX);
    w->writer = calloc((size_t)n, sizeof *w->writer);
    w->handle = calloc((size_t)n + 1, sizeof *w->handle);
    w->left = calloc((size_t)w->parts->n_files + 1, sizeof *w->left);
    w->stalled = calloc((size_t)w->parts->n_files + 1, sizeof *w->stalled);
    w->whole = mt_sum_open();
    w->part = mt_sum_open();
    MT_REQUIRE(w->writer && w->handle && w->left && w->stalled && w->whole && w->part, e, MT_IO,
               "no memory for %d writers of checkpoints", n);
    for (int i = 0; i < n; i++)
        w->writer[i] = (struct mt_writer){.w = w, .buffer = w->o.buffer + i * w->o.chunk};
    return start_threads(w, e);
}

mt_status mt_writers_open(struct mt_writers **out, const struct mt_writers_options *o,
                          const struct mt_parts *parts, mt_err *e)
{
    struct mt_writers *w = calloc(1, sizeof *w);
    *out = NULL;
    MT_REQUIRE(w, e, MT_IO, "no memory for the writers of checkpoints");
    w->o = *o;
    w->parts = parts;
    mt_status st = make(w, e);
    *out = w;
    if (st == MT_OK) return MT_OK;
    (void)mt_writers_close(w);
    *out = NULL;
    return st;
}

bool mt_writers_close(struct mt_writers *w)
{
    if (!w) return true;
    bool hangs = false;
    mt_writers_cancel(w, "the run ends");
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->change);
    struct timespec soon = mt_clock_later(mt_clock_now(), 2);
    for (int i = 0; i < w->started; i++)
        while (w->writer[i].busy && mt_writers_wait_until(w, soon)) continue;
    for (int i = 0; i < w->started; i++) hangs |= w->writer[i].busy;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->started; i++) {
        if (hangs)
            pthread_detach(w->writer[i].id);
        else
            pthread_join(w->writer[i].id, NULL);
    }
    if (!hangs) release(w);
    return !hangs;
}
