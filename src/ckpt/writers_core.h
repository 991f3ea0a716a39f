/* writers_core.h: what the writers of a process share, for writers.c and writers_files.c. All of it is under the lock, but for what one
 * writer at a time holds. */
#ifndef MT_CKPT_WRITERS_CORE_H
#define MT_CKPT_WRITERS_CORE_H
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "ckpt/sum.h"
#include "ckpt/writers.h"

enum { MT_WRITERS_STACK = 256 << 10, MT_WRITERS_FOLDER = 1280, MT_WRITERS_PATH = MT_WRITERS_FOLDER + 80 };

/* An open file: closed when nobody writes to it any more, be it of a save that was given up. */
struct mt_handle {
    int fd, refs;
};
struct mt_writer {
    struct mt_writers *w;
    pthread_t id;
    char *buffer;
    bool busy;    /* at work, perhaps in a call that hangs, */
    int64_t turn; /* on this */
};
/* Where reading has come to. Only the writer that holds `reading` moves it, without the lock. */
struct mt_cursor {
    int file;
    int64_t part, at; /* the next part, and how much of it has been read */
    int64_t file_at;  /* offset in the file */
};
/* Bytes in a buffer. */
struct mt_chunk {
    int file;
    int64_t at, bytes;
    bool last; /* of its file */
    struct mt_handle *to;
};
struct mt_writers {
    struct mt_writers_options o;
    const struct mt_parts *parts;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct mt_writer *writer;
    int n, started;           /* of them */
    struct mt_handle *handle; /* one for each writer, and one */
    bool stop;
    /* What is under way; no writer of an older `turn` touches any of it. */
    int64_t turn;
    enum mt_written state;
    mt_err err;
    char folder[MT_WRITERS_FOLDER];
    mt_status (*fn)(void *arg, mt_err *e);
    void *arg;
    bool called; /* a writer has taken the function */
    struct timespec begun;
    struct mt_cursor c;
    struct mt_handle *open; /* of the file that the cursor is in */
    bool reading, copying;  /* a writer has the cursor; and is in the arena */
    mt_status copied;       /* what mt_copy_now said while the buffer was filled, */
    mt_err copy_err;        /* and its message */
    int64_t *left;          /* by file: chunks that are not written yet, and one for what has not been read */
    int files_left;
    bool finishing; /* a writer does what comes after the last file */
    int64_t read_bytes;
    _Atomic int64_t progress; /* parts that have been read; INT64_MAX: the gate is open */
    double write_s, *stalled; /* seconds; by file */
    struct mt_sum *whole, *part;
};

static inline struct timespec mt_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}
static inline struct timespec mt_clock_later(struct timespec t, double s)
{
    if (s > 1e9) s = 1e9;
    int64_t ns = t.tv_nsec + (int64_t)(1e9 * (s - (double)(int64_t)s));
    return (struct timespec){t.tv_sec + (time_t)s + ns / 1000000000, ns % 1000000000};
}
static inline double mt_clock_between(struct timespec a, struct timespec b)
{
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
/* With the lock; false: the time has come. */
static inline bool mt_writers_wait_until(struct mt_writers *w, struct timespec t)
{
    return pthread_cond_timedwait(&w->change, &w->lock, &t) != ETIMEDOUT;
}

static inline bool mt_writers_gone(const struct mt_writers *w, int64_t turn)
{
    return w->turn != turn || w->state != MT_WRITTEN_BUSY;
}

/* All with the lock, which some of them leave for a while. */
/* What is under way is over, as DONE or FAILED; no writer reads the arenas for it any more. */
void mt_writers_end(struct mt_writers *w, enum mt_written state, const mt_err *e);
/* The next bytes into a buffer. False: there are none. */
bool mt_writers_read(struct mt_writers *w, char *buffer, struct mt_chunk *x);
void mt_writers_write(struct mt_writers *w, char *buffer, const struct mt_chunk *x);
/* What comes after the last file. */
void mt_writers_finish(struct mt_writers *w);
#endif
