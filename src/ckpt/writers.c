#include "ckpt/writers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/direct.h"
#include "ckpt/file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STACK_BYTES = 256 << 10, FOLDER = 1280, PATH = FOLDER + 80 };

/* An open file: closed when nobody writes to it any more, be it of a save that was given up. */
struct handle {
    int fd, refs;
};
struct writer {
    struct mt_writers *w;
    pthread_t id;
    char *buffer;
    bool busy;    /* at work, perhaps in a call that hangs, */
    int64_t turn; /* on this */
};
/* Where reading has come to. Only the writer that holds `reading` moves it, without the lock. */
struct cursor {
    int file;
    int64_t part, at; /* the next part, and how much of it has been read */
    int64_t file_at;  /* offset in the file */
};
/* Bytes in a buffer. */
struct chunk {
    int file;
    int64_t at, bytes;
    bool last; /* of its file */
    struct handle *to;
};
struct mt_writers {
    struct mt_writers_options o;
    const struct mt_parts *parts;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct writer *writer;
    int n, started;        /* of them */
    struct handle *handle; /* one for each writer, and one */
    bool stop;
    /* What is under way; no writer of an older `turn` touches any of it. */
    int64_t turn;
    enum mt_written state;
    mt_err err;
    char folder[FOLDER];
    mt_status (*fn)(void *arg, mt_err *e);
    void *arg;
    bool called; /* a writer has taken the function */
    struct timespec begun;
    struct cursor c;
    struct handle *open;   /* of the file that the cursor is in */
    bool reading, copying; /* a writer has the cursor; and is in the arena */
    int64_t *left;         /* by file: chunks that are not written yet, and one for what has not been read */
    int files_left;
    bool finishing; /* a writer does what comes after the last file */
    int64_t read_bytes;
    _Atomic int64_t progress; /* parts that have been read; INT64_MAX: the gate is open */
    double write_s, *stalled; /* seconds; by file */
    XXH3_state_t *whole, *part;
};

/* ---- time ---- */
static struct timespec now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}
static struct timespec later(struct timespec t, double s)
{
    if (s > 1e9) s = 1e9;
    int64_t ns = t.tv_nsec + (int64_t)(1e9 * (s - (double)(int64_t)s));
    return (struct timespec){t.tv_sec + (time_t)s + ns / 1000000000, ns % 1000000000};
}
static double between(struct timespec a, struct timespec b)
{
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
/* With the lock; false: the time has come. */
static bool wait_until(struct mt_writers *w, struct timespec t)
{
    return pthread_cond_timedwait(&w->change, &w->lock, &t) != ETIMEDOUT;
}

/* ---- with the lock held ---- */
static struct handle *take_handle(struct mt_writers *w)
{
    struct handle *h = w->handle;
    while (h->refs) h++;
    h->refs = 1;
    h->fd = -1;
    return h;
}
/* Some network file systems tell only at the close what could not be written. */
static int drop(struct mt_writers *w, struct handle *h)
{
    if (h->refs > 1 || h->fd < 0) {
        h->refs--;
        return 0;
    }
    pthread_mutex_unlock(&w->lock);
    int error = close(h->fd) ? errno : 0;
    pthread_mutex_lock(&w->lock);
    h->refs--;
    return error;
}
static bool gone(const struct mt_writers *w, int64_t turn)
{
    return w->turn != turn || w->state != MT_WRITTEN_BUSY;
}

static void end(struct mt_writers *w, enum mt_written state, const mt_err *e)
{
    int64_t turn = w->turn;
    while (w->copying) pthread_cond_wait(&w->change, &w->lock);
    if (w->turn != turn || w->state != MT_WRITTEN_BUSY) return;
    w->state = state;
    if (e) w->err = *e;
    if (state == MT_WRITTEN_FAILED) w->turn++;
    atomic_store(&w->progress, INT64_MAX);
    pthread_cond_broadcast(&w->change);
    struct handle *open = w->open;
    w->open = NULL;
    if (open) (void)drop(w, open);
}

/* ---- files ---- */
static void file_path(const struct mt_writers *w, int file, const char *kind, char path[PATH])
{
    snprintf(path, PATH, "%s/rank-%05d.%s", w->folder, w->parts->file[file].rank, kind);
}

/* The next file, for the writer that is reading. False: the save is over. */
static bool open_next(struct mt_writers *w)
{
    char path[PATH], folder[FOLDER];
    int64_t turn = w->turn;
    mt_err e = {0};
    struct handle *h = take_handle(w);
    file_path(w, w->c.file, "safetensors", path);
    memcpy(folder, w->folder, sizeof folder);
    bool first = w->c.file == 0;
    int64_t bytes = w->parts->file[w->c.file].bytes;
    pthread_mutex_unlock(&w->lock);
    mt_status st = first && w->o.prepare ? w->o.prepare(w->o.arg, &e) : MT_OK;
    if (st == MT_OK && first) st = mt_make_folders(folder, &e);
    int fd = -1;
    if (st == MT_OK) st = mt_direct_open(&fd, path, bytes, &e);
    pthread_mutex_lock(&w->lock);
    h->fd = fd;
    if (!gone(w, turn) && st == MT_OK) {
        w->open = h;
        return true;
    }
    (void)drop(w, h);
    if (!gone(w, turn)) {
        w->reading = false;
        end(w, MT_WRITTEN_FAILED, &e);
    }
    return false;
}

static void put_sum(char *at, uint64_t sum)
{
    for (int i = 15; i >= 0; i--, sum >>= 4) at[i] = "0123456789abcdef"[sum & 15];
}

static void take_in(struct mt_writers *w, char *to, const char *from, int64_t n, bool data)
{
    memcpy(to, from, (size_t)n);
    XXH3_64bits_update(w->whole, to, (size_t)n);
    if (data) XXH3_64bits_update(w->part, to, (size_t)n);
}

/* As much of the present part as there is room for; a piece at a time, so that it is summed while it is in the cache. */
static int64_t take_part(struct mt_writers *w, const struct mt_part_file *f, char *to, int64_t room)
{
    const struct mt_part *p = &w->parts->part[w->c.part];
    enum { PIECE = 16 << 10 };
    int64_t n = 0;
    if (!w->c.at) XXH3_64bits_reset(w->part);
    while (n < room && w->c.at < p->bytes) {
        int64_t k = p->bytes - w->c.at;
        if (k > room - n) k = room - n;
        if (k > PIECE) k = PIECE;
        take_in(w, to + n, p->data + w->c.at, k, true);
        w->c.at += k;
        n += k;
    }
    if (w->c.at < p->bytes) return n;
    put_sum(f->sums + p->sum_at, XXH3_64bits_digest(w->part));
    w->c.part++;
    w->c.at = 0;
    return n;
}

/* Without the lock, as the writer that is reading. */
static struct chunk fill(struct mt_writers *w, char *buffer)
{
    const struct mt_part_file *f = &w->parts->file[w->c.file];
    struct chunk x = {.file = w->c.file, .at = w->c.file_at, .to = w->open};
    if (!x.at) XXH3_64bits_reset(w->whole);
    while (x.bytes < w->o.chunk && x.at + x.bytes < f->bytes) {
        int64_t at = x.at + x.bytes, room = w->o.chunk - x.bytes, head = f->head_bytes - at;
        if (head > room) head = room;
        if (head > 0) take_in(w, buffer + x.bytes, f->head + at, head, false);
        x.bytes += head > 0 ? head : take_part(w, f, buffer + x.bytes, room);
    }
    w->c.file_at += x.bytes;
    x.last = w->c.file_at == f->bytes;
    int64_t pad = -x.bytes & (MT_PART_ALIGN - 1);
    memset(buffer + x.bytes, 0, (size_t)pad);
    x.bytes += pad;
    if (!x.last) return x;
    put_sum(f->sums + f->sum_at, XXH3_64bits_digest(w->whole));
    w->c = (struct cursor){.file = x.file + 1, .part = w->c.part};
    return x;
}

/* Not before the rate allows it. False: the save is over. */
static bool wait_for_rate(struct mt_writers *w, int64_t turn)
{
    if (!w->o.rate) return true;
    struct timespec due = later(w->begun, (double)w->read_bytes / (double)w->o.rate);
    while (!gone(w, turn) && wait_until(w, due)) continue;
    return !gone(w, turn);
}

/* The next bytes into a buffer. False: there are none. */
static bool read_chunk(struct mt_writers *w, char *buffer, struct chunk *x)
{
    int64_t turn = w->turn;
    w->reading = true;
    if (!wait_for_rate(w, turn)) return false;
    if (!w->open && !open_next(w)) return false;
    w->copying = true;
    pthread_mutex_unlock(&w->lock);
    *x = fill(w, buffer);
    pthread_mutex_lock(&w->lock);
    w->copying = w->reading = false;
    w->read_bytes += x->bytes;
    w->left[x->file]++;
    if (x->last) {
        w->left[x->file]--;
        w->open = NULL;
    } else {
        x->to->refs++;
    }
    atomic_store(&w->progress, w->c.part);
    pthread_cond_broadcast(&w->change);
    return true;
}

/* All of a file is written: it and then its sums go to the disk. Without the lock. The sums get their name when they are whole: whoever
 * sees them may rely on both. */
static mt_status finish_file(const struct mt_part_file *f, int fd, const char *path, const char *sums_path,
                             const struct mt_turn *turn, mt_err *e)
{
    char whole[PATH + 8];
    uint64_t sum;
    snprintf(whole, sizeof whole, "%s.tmp", sums_path);
    MT_TRY(mt_direct_finish(fd, path, f->bytes, e));
    if (mt_turn_is_over(turn)) return MT_OK; /* the sums may be another save's by now */
    MT_TRY(mt_write_file(whole, f->sums, f->sums_bytes, &sum, e));
    MT_REQUIRE(!rename(whole, sums_path), e, MT_IO, "cannot rename '%s': %s", whole, strerror(errno));
    return MT_OK;
}

bool mt_turn_is_over(const struct mt_turn *t)
{
    pthread_mutex_lock(&t->w->lock);
    bool over = gone(t->w, t->turn);
    pthread_mutex_unlock(&t->w->lock);
    return over;
}

/* The names of all files, too. With the lock. */
static void finish_all(struct mt_writers *w)
{
    char folder[FOLDER];
    const struct mt_turn turn = {w, w->turn};
    mt_err e = {0};
    w->finishing = true;
    w->write_s = between(w->begun, now());
    memcpy(folder, w->folder, sizeof folder);
    pthread_mutex_unlock(&w->lock);
    mt_status st = w->parts->n_files ? mt_sync_folder(folder, &e) : MT_OK;
    if (st == MT_OK && w->o.finish) st = w->o.finish(w->o.arg, &turn, &e);
    pthread_mutex_lock(&w->lock);
    if (!gone(w, turn.turn)) end(w, st == MT_OK ? MT_WRITTEN_DONE : MT_WRITTEN_FAILED, &e);
}

static void finish(struct mt_writers *w, const struct chunk *x, const char *path)
{
    char sums[PATH];
    const struct mt_turn turn = {w, w->turn};
    mt_err e = {0};
    file_path(w, x->file, "json", sums);
    pthread_mutex_unlock(&w->lock);
    mt_status st = finish_file(&w->parts->file[x->file], x->to->fd, path, sums, &turn, &e);
    pthread_mutex_lock(&w->lock);
    int error = drop(w, x->to);
    if (gone(w, turn.turn)) return;
    if (st == MT_OK && error)
        st = mt_err_set(&e, MT_IO, "cannot bring '%s' to the disk: %s", path, strerror(error));
    if (st != MT_OK)
        end(w, MT_WRITTEN_FAILED, &e);
    else if (!--w->files_left)
        finish_all(w);
}

static void write_chunk(struct mt_writers *w, const char *buffer, const struct chunk *x)
{
    char path[PATH];
    int64_t turn = w->turn;
    mt_err e = {0};
    file_path(w, x->file, "safetensors", path);
    pthread_mutex_unlock(&w->lock);
    mt_status st = mt_direct_write(x->to->fd, path, buffer, x->bytes, x->at, &e);
    pthread_mutex_lock(&w->lock);
    if (!gone(w, turn) && st == MT_OK && !--w->left[x->file]) {
        finish(w, x, path);
        return;
    }
    (void)drop(w, x->to);
    if (!gone(w, turn) && st != MT_OK) end(w, MT_WRITTEN_FAILED, &e);
}

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

/* Others that still do something of a save that was given up come to its end, unless they hang. */
static void wait_for_rest(struct mt_writers *w)
{
    struct timespec soon = later(now(), 2);
    int64_t turn = w->turn;
    for (int i = 0; i < w->n; i++)
        while (w->writer[i].busy && w->writer[i].turn != w->turn && !gone(w, turn) && wait_until(w, soon))
            continue;
}

static void call(struct mt_writers *w)
{
    int64_t turn = w->turn;
    mt_err e = {0};
    mt_status (*fn)(void *, mt_err *) = w->fn;
    void *arg = w->arg;
    w->called = true;
    wait_for_rest(w);
    pthread_mutex_unlock(&w->lock);
    mt_status st = fn(arg, &e);
    pthread_mutex_lock(&w->lock);
    if (!gone(w, turn)) end(w, st == MT_OK ? MT_WRITTEN_DONE : MT_WRITTEN_FAILED, &e);
}

/* Those that hang in what was given up do not count. */
static bool enough_at_work(const struct mt_writers *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++) n += w->writer[i].busy && w->writer[i].turn == w->turn;
    return n >= (w->o.threads ? w->o.threads : 1);
}

/* Does something that there is to do; false: there is nothing, or others are at it. */
static bool work(struct mt_writers *w, struct writer *x)
{
    struct chunk chunk;
    if ((!has_chunk(w) && !has_call(w) && !has_end(w)) || enough_at_work(w)) return false;
    x->busy = true;
    x->turn = w->turn;
    if (has_call(w))
        call(w);
    else if (has_end(w))
        finish_all(w);
    else if (read_chunk(w, x->buffer, &chunk))
        write_chunk(w, x->buffer, &chunk);
    x->busy = false;
    pthread_cond_broadcast(&w->change);
    return true;
}

static void *writer_main(void *arg)
{
    struct writer *x = arg;
    struct mt_writers *w = x->w;
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
    struct timespec soon = later(now(), 0.2);
    MT_ASSERT(w->state != MT_WRITTEN_BUSY);
    while (!one_is_free(w) && wait_until(w, soon)) continue;
    MT_REQUIRE(one_is_free(w), e, MT_IO, "every writer still hangs in an earlier save's call to the store");
    w->turn++;
    w->state = MT_WRITTEN_BUSY;
    w->err = (mt_err){0};
    w->fn = NULL;
    w->called = w->reading = w->finishing = false;
    w->c = (struct cursor){0};
    pthread_cond_broadcast(&w->change);
    return MT_OK;
}

static mt_status begin(struct mt_writers *w, const char *folder, mt_err *e)
{
    MT_REQUIRE(strlen(folder) < FOLDER, e, MT_CONFIG, "the path of the checkpoint is too long: '%.60s...'",
               folder);
    MT_TRY(start(w, e));
    snprintf(w->folder, FOLDER, "%s", folder);
    w->begun = now();
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
    struct timespec until = later(now(), seconds);
    pthread_mutex_lock(&w->lock);
    while (w->state == MT_WRITTEN_BUSY)
        if (w->o.threads ? !wait_until(w, until) : !work(w, w->writer)) break;
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

void mt_writers_cancel(struct mt_writers *w, const char *why)
{
    mt_err e = {0};
    (void)mt_err_set(&e, MT_IO, "%s", why);
    pthread_mutex_lock(&w->lock);
    end(w, MT_WRITTEN_FAILED, &e);
    pthread_mutex_unlock(&w->lock);
}

/* With the lock. */
static void wait_for(struct mt_writers *w, int64_t need)
{
    while (w->state == MT_WRITTEN_BUSY && atomic_load(&w->progress) < need) {
        mt_err e = {0};
        if (!(w->o.timeout_s > 0))
            pthread_cond_wait(&w->change, &w->lock);
        else if (!wait_until(w, later(w->begun, w->o.timeout_s))) {
            (void)mt_err_set(&e, MT_IO, "after %g s the store has not taken what the next update overwrites",
                             w->o.timeout_s);
            end(w, MT_WRITTEN_FAILED, &e);
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
    struct timespec begun = now();
    pthread_mutex_lock(&w->lock);
    wait_for(w, need);
    w->stalled[file] += between(begun, now());
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
    XXH3_freeState(w->whole);
    XXH3_freeState(w->part);
    free(w);
}

static mt_status start_threads(struct mt_writers *w, mt_err *e)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int error = 0;
    while (w->started < (w->o.threads ? w->n : 0) && !error) {
        struct writer *x = &w->writer[w->started];
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
    w->whole = XXH3_createState();
    w->part = XXH3_createState();
    MT_REQUIRE(w->writer && w->handle && w->left && w->stalled && w->whole && w->part, e, MT_IO,
               "no memory for %d writers of checkpoints", n);
    for (int i = 0; i < n; i++)
        w->writer[i] = (struct writer){.w = w, .buffer = w->o.buffer + i * w->o.chunk};
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
    struct timespec soon = later(now(), 2);
    for (int i = 0; i < w->started; i++)
        while (w->writer[i].busy && wait_until(w, soon)) continue;
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
