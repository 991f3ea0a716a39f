#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/direct.h"
#include "ckpt/file.h"
#include "ckpt/writers_core.h"

/* ---- with the lock held ---- */
static struct mt_handle *take_handle(struct mt_writers *w)
{
    struct mt_handle *h = w->handle;
    while (h->refs) h++;
    h->refs = 1;
    h->fd = -1;
    return h;
}
/* Some network file systems tell only at the close what could not be written. */
static int drop(struct mt_writers *w, struct mt_handle *h)
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

void mt_writers_end(struct mt_writers *w, enum mt_written state, const mt_err *e)
{
    int64_t turn = w->turn;
    while (w->copying) pthread_cond_wait(&w->change, &w->lock);
    if (w->turn != turn || w->state != MT_WRITTEN_BUSY) return;
    w->state = state;
    if (e) w->err = *e;
    if (state == MT_WRITTEN_FAILED) w->turn++;
    atomic_store(&w->progress, INT64_MAX);
    pthread_cond_broadcast(&w->change);
    struct mt_handle *open = w->open;
    w->open = NULL;
    if (open) (void)drop(w, open);
}
/* ---- files ---- */
static void file_path(const struct mt_writers *w, int file, const char *kind, char path[MT_WRITERS_PATH])
{
    snprintf(path, MT_WRITERS_PATH, "%s/rank-%05d.%s", w->folder, w->parts->file[file].rank, kind);
}

/* The next file, for the writer that is reading. False: the save is over. */
static bool open_next(struct mt_writers *w)
{
    char path[MT_WRITERS_PATH], folder[MT_WRITERS_FOLDER];
    int64_t turn = w->turn;
    mt_err e = {0};
    struct mt_handle *h = take_handle(w);
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
    if (!mt_writers_gone(w, turn) && st == MT_OK) {
        w->open = h;
        return true;
    }
    (void)drop(w, h);
    if (!mt_writers_gone(w, turn)) {
        w->reading = false;
        mt_writers_end(w, MT_WRITTEN_FAILED, &e);
    }
    return false;
}

static void put_sum(char *at, uint64_t sum)
{
    for (int i = 15; i >= 0; i--, sum >>= 4) at[i] = "0123456789abcdef"[sum & 15];
}

/* Bytes of a header, or of an arena, which may be a device's. */
static void take_in(struct mt_writers *w, char *to, const char *from, int64_t n, bool data)
{
    const struct mt_ctx *reach = data ? w->parts->reach : NULL;
    if (w->copied == MT_OK) w->copied = mt_copy_now(reach, to, from, n, &w->copy_err);
    mt_sum_add(w->whole, to, n);
    if (data) mt_sum_add(w->part, to, n);
}

/* As much of the present part as there is room for; a piece at a time, so that it is summed while it is in the cache. */
static int64_t take_part(struct mt_writers *w, const struct mt_part_file *f, char *to, int64_t room)
{
    const struct mt_part *p = &w->parts->part[w->c.part];
    enum { PIECE = 16 << 10 };
    int64_t n = 0, most = w->parts->reach ? room : PIECE;
    if (!w->c.at) mt_sum_reset(w->part);
    while (n < room && w->c.at < p->bytes) {
        int64_t k = p->bytes - w->c.at;
        if (k > room - n) k = room - n;
        if (k > most) k = most;
        take_in(w, to + n, p->data + w->c.at, k, true);
        w->c.at += k;
        n += k;
    }
    if (w->c.at < p->bytes) return n;
    put_sum(f->sums + p->sum_at, mt_sum_value(w->part));
    w->c.part++;
    w->c.at = 0;
    return n;
}

/* Without the lock, as the writer that is reading. */
static struct mt_chunk fill(struct mt_writers *w, char *buffer)
{
    const struct mt_part_file *f = &w->parts->file[w->c.file];
    struct mt_chunk x = {.file = w->c.file, .at = w->c.file_at, .to = w->open};
    if (!x.at) mt_sum_reset(w->whole);
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
    put_sum(f->sums + f->sum_at, mt_sum_value(w->whole));
    w->c = (struct mt_cursor){.file = x.file + 1, .part = w->c.part};
    return x;
}

/* What the next buffer will take, with what fills it up to a block. */
static int64_t next_bytes(const struct mt_writers *w)
{
    int64_t left = w->parts->file[w->c.file].bytes - w->c.file_at;
    left += -left & (MT_PART_ALIGN - 1);
    return left < w->o.chunk ? left : w->o.chunk;
}
/* Not before the rate allows these bytes, from the first one on. False: the save is over. */
static bool wait_for_rate(struct mt_writers *w, int64_t turn)
{
    if (!w->o.rate) return true;
    double bytes = (double)(w->read_bytes + next_bytes(w));
    struct timespec due = mt_clock_later(w->begun, bytes / (double)w->o.rate);
    while (!mt_writers_gone(w, turn) && mt_writers_wait_until(w, due)) continue;
    return !mt_writers_gone(w, turn);
}

/* The next bytes into a buffer. False: there are none. */
bool mt_writers_read(struct mt_writers *w, char *buffer, struct mt_chunk *x)
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
    if (w->copied != MT_OK && !mt_writers_gone(w, turn)) {
        mt_writers_end(w, MT_WRITTEN_FAILED, &w->copy_err);
        w->copied = MT_OK;
        w->copy_err = (mt_err){0};
    }
    return true;
}

static uint64_t told_sum(const struct mt_part_file *f)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%.16s", f->sums + f->sum_at);
    return strtoull(digits, NULL, 16);
}

/* A file is on the disk: its sums follow. Without the lock. They get their name when they are whole: whoever sees them may rely on
 * both. */
static mt_status finish_file(const struct mt_writers *w, const struct mt_part_file *f, char *buffer,
                             const char *path, const char *sums_path, const struct mt_turn *turn, mt_err *e)
{
    char whole[MT_WRITERS_PATH + 8];
    uint64_t sum;
    snprintf(whole, sizeof whole, "%s.tmp", sums_path);
    if (w->o.check) MT_TRY(mt_direct_check(path, f->bytes, told_sum(f), buffer, w->o.chunk, turn, e));
    if (mt_turn_is_over(turn)) return MT_OK; /* the sums may be another save's by now */
    MT_TRY(mt_write_file(whole, f->sums, f->sums_bytes, &sum, e));
    MT_REQUIRE(!rename(whole, sums_path), e, MT_IO, "cannot rename '%s': %s", whole, strerror(errno));
    return MT_OK;
}

bool mt_turn_is_over(const struct mt_turn *t)
{
    pthread_mutex_lock(&t->w->lock);
    bool over = mt_writers_gone(t->w, t->turn);
    pthread_mutex_unlock(&t->w->lock);
    return over;
}

/* The names of all files, too. With the lock. */
void mt_writers_finish(struct mt_writers *w)
{
    char folder[MT_WRITERS_FOLDER];
    const struct mt_turn turn = {w, w->turn};
    mt_err e = {0};
    w->finishing = true;
    memcpy(folder, w->folder, sizeof folder);
    pthread_mutex_unlock(&w->lock);
    mt_status st = w->parts->n_files ? mt_sync_folder(folder, &e) : MT_OK;
    if (st == MT_OK && w->o.finish) st = w->o.finish(w->o.arg, &turn, &e);
    pthread_mutex_lock(&w->lock);
    if (!mt_writers_gone(w, turn.turn))
        mt_writers_end(w, st == MT_OK ? MT_WRITTEN_DONE : MT_WRITTEN_FAILED, &e);
}

/* All of a file is written. */
static void finish(struct mt_writers *w, const struct mt_chunk *x, char *buffer, const char *path)
{
    char sums[MT_WRITERS_PATH];
    const struct mt_turn turn = {w, w->turn};
    const struct mt_part_file *f = &w->parts->file[x->file];
    mt_err e = {0};
    file_path(w, x->file, "json", sums);
    pthread_mutex_unlock(&w->lock);
    mt_status st = mt_direct_finish(x->to->fd, path, f->bytes, &e);
    struct timespec written = mt_clock_now();
    if (st == MT_OK && !mt_turn_is_over(&turn)) st = finish_file(w, f, buffer, path, sums, &turn, &e);
    pthread_mutex_lock(&w->lock);
    int error = drop(w, x->to);
    if (mt_writers_gone(w, turn.turn)) return;
    w->write_s = fmax(w->write_s, mt_clock_between(w->begun, written));
    if (st == MT_OK && error)
        st = mt_err_set(&e, MT_IO, "cannot bring '%s' to the disk: %s", path, strerror(error));
    if (st != MT_OK)
        mt_writers_end(w, MT_WRITTEN_FAILED, &e);
    else if (!--w->files_left)
        mt_writers_finish(w);
}

void mt_writers_write(struct mt_writers *w, char *buffer, const struct mt_chunk *x)
{
    char path[MT_WRITERS_PATH];
    int64_t turn = w->turn;
    mt_err e = {0};
    file_path(w, x->file, "safetensors", path);
    pthread_mutex_unlock(&w->lock);
    mt_status st = mt_direct_write(x->to->fd, path, buffer, x->bytes, x->at, &e);
    pthread_mutex_lock(&w->lock);
    if (!mt_writers_gone(w, turn) && st == MT_OK && !--w->left[x->file]) {
        finish(w, x, buffer, path);
        return;
    }
    (void)drop(w, x->to);
    if (!mt_writers_gone(w, turn) && st != MT_OK) mt_writers_end(w, MT_WRITTEN_FAILED, &e);
}
