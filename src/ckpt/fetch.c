#include "ckpt/fetch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parallel.h"
#include "ckpt/read.h"
#include "ckpt/sum.h"

struct fetch {
    const struct mt_source *s;
    const struct mt_ckpt_items *items;
    const struct mt_deal *d;
    unsigned char *staging, *message;
    struct mt_sum **begun; /* by piece: of one that several waves read */
    int64_t first;         /* span of the wave, whose spans are tasks */
    struct mt_tasks spans;
    pthread_mutex_t lock; /* of what follows */
    mt_status put;        /* whether all bytes came to their places, and the message if not */
    mt_err put_err;
};
/* A thread of it. */
struct reader {
    struct fetch *f;
    struct mt_sum *sum; /* of pieces that one wave reads */
    unsigned char *buffer;
    int fd, file; /* open; -1 */
    char path[MT_SOURCE_FILE];
    const struct mt_deal_span *span;
    int64_t row_bytes;
    struct mt_sum *into;
};

/* Bytes to their place in an arena, which may be a device's. By any thread. */
static void put(struct fetch *f, void *to, const void *from, int64_t bytes)
{
    if (!f->items->reach) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    pthread_mutex_lock(&f->lock);
    if (f->put == MT_OK) f->put = mt_copy_now(f->items->reach, to, from, bytes, &f->put_err);
    pthread_mutex_unlock(&f->lock);
}

/* ---- reading ---- */
static mt_status open_file(struct reader *r, int file, mt_err *e)
{
    int64_t bytes;
    if (r->file == file) return MT_OK;
    if (r->fd >= 0) close(r->fd);
    r->file = r->fd = -1;
    mt_source_tensors(r->f->s, file, r->path);
    MT_TRY(mt_read_open(&r->fd, r->path, &bytes, e));
    r->file = file;
    return MT_OK;
}

/* Bytes [from, from + bytes) of the span: into the checksum, and to whoever needs them. */
static void take(void *arg, const void *p, int64_t from, int64_t bytes)
{
    const struct reader *r = arg;
    const struct mt_deal_span *s = r->span;
    mt_sum_add(r->into, p, bytes);
    if (s->staged >= 0) memcpy(r->f->staging + s->staged + from, p, (size_t)bytes);
    for (int64_t i = s->copy; i < s->copy + s->n_copies; i++) {
        const struct mt_deal_copy *c = &r->f->d->copy[i];
        int64_t begin = (c->row0 - s->row0) * r->row_bytes, end = begin + c->rows * r->row_bytes;
        int64_t a = begin > from ? begin : from, b = end < from + bytes ? end : from + bytes;
        if (a < b) put(r->f, (char *)c->to + (a - begin), (const char *)p + (a - from), b - a);
    }
}

/* One that a single rank of this process needs, and all of it, comes to its place without a detour. */
static mt_status read_rows(struct reader *r, int64_t at, mt_err *e)
{
    const struct mt_deal_span *s = r->span;
    const struct mt_deal_copy *c = &r->f->d->copy[s->copy];
    int64_t bytes = s->rows * r->row_bytes;
    if (s->staged >= 0 || s->n_copies != 1 || c->rows != s->rows || r->f->items->reach)
        return mt_read_parts(r->fd, r->path, at, bytes, r->buffer, MT_READ_CHUNK, take, r, e);
    for (int64_t from = 0; from < bytes; from += MT_READ_CHUNK) {
        int64_t n = bytes - from < MT_READ_CHUNK ? bytes - from : MT_READ_CHUNK;
        MT_TRY(mt_read_at(r->fd, r->path, at + from, (char *)c->to + from, n, e));
        mt_sum_add(r->into, (char *)c->to + from, n);
    }
    return MT_OK;
}

/* A piece's rows come in order, over its waves: the checksum is complete with the last of them. */
static mt_status find_sum(struct reader *r, const struct mt_deal_piece *p, mt_err *e)
{
    struct mt_sum **begun = &r->f->begun[r->span->piece];
    if (r->span->rows == p->rows) {
        mt_sum_reset(r->sum);
        r->into = r->sum;
        return MT_OK;
    }
    if (!*begun) *begun = mt_sum_open();
    MT_REQUIRE(*begun, e, MT_IO, "no memory to read '%s'", r->path);
    r->into = *begun;
    return MT_OK;
}

static mt_status read_span(struct reader *r, mt_err *e)
{
    const struct mt_deal_piece *p = &r->f->d->piece[r->span->piece];
    const struct mt_ckpt_item *item = &r->f->items->item[p->item];
    r->row_bytes = mt_ckpt_row_bytes(item);
    MT_TRY(open_file(r, (int)p->file, e));
    MT_TRY(find_sum(r, p, e));
    MT_TRY(read_rows(r, p->at + (r->span->row0 - p->row0) * r->row_bytes, e));
    if (r->span->row0 + r->span->rows < p->row0 + p->rows) return MT_OK;
    struct mt_stored x = {.rows = item->rows, .row0 = p->row0, .n = p->rows, .xxh3 = p->xxh3};
    memcpy(x.name, item->name, sizeof x.name);
    return mt_source_compare(&x, r->path, mt_sum_value(r->into), e);
}

static void *read_some(void *arg)
{
    struct fetch *f = arg;
    struct reader r = {.f = f, .sum = mt_sum_open(), .buffer = malloc(MT_READ_CHUNK), .fd = -1, .file = -1};
    for (int64_t i; mt_tasks_next(&f->spans, &i);) {
        mt_err e = {0};
        r.span = &f->d->span[f->first + i];
        mt_status st = r.sum && r.buffer ? read_span(&r, &e)
                                         : mt_err_set(&e, MT_IO, "no memory to read '%s'", f->s->path);
        if (st != MT_OK) mt_tasks_fail(&f->spans, i, &e);
    }
    if (r.fd >= 0) close(r.fd);
    if (r.sum) mt_sum_close(r.sum);
    free(r.buffer);
    return NULL;
}

/* ---- passing on ---- */
/* The moves of a wave to or from one process, [*first, *end); returns their bytes. */
static int64_t message_of(const struct mt_deal_moves *m, int32_t wave, int process, int64_t *first,
                          int64_t *end)
{
    int64_t low = 0, high = m->n, bytes = 0;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        const struct mt_deal_move *x = &m->x[mid];
        if (x->wave < wave || (x->wave == wave && x->process < process))
            low = mid + 1;
        else
            high = mid;
    }
    *first = low;
    for (*end = low; *end < m->n && m->x[*end].wave == wave && m->x[*end].process == process; ++*end)
        bytes += m->x[*end].bytes;
    return bytes;
}

static void send_to(struct fetch *f, const struct mt_job *job, int32_t wave, int process)
{
    int64_t first, end, at = 0, bytes = message_of(&f->d->send, wave, process, &first, &end);
    for (const struct mt_deal_move *x = f->d->send.x + first; first < end; first++, x++) {
        memcpy(f->message + at, f->staging + x->staged, (size_t)x->bytes);
        at += x->bytes;
    }
    if (bytes) mt_job_send(job, process, f->message, bytes);
}
static void receive_from(struct fetch *f, const struct mt_job *job, int32_t wave, int process)
{
    int64_t first, end, at = 0, bytes = message_of(&f->d->arrive, wave, process, &first, &end);
    if (bytes) mt_job_receive(job, process, f->message, bytes);
    for (const struct mt_deal_move *x = f->d->arrive.x + first; first < end; first++, x++) {
        put(f, x->to, f->message + at, x->bytes);
        at += x->bytes;
    }
}

/* In each round every process has one partner, so that all pairs talk at once and none waits in a circle. */
static void pass_on(struct fetch *f, const struct mt_job *job, int32_t wave)
{
    int rounds = 1;
    while (rounds < job->n) rounds *= 2;
    for (int round = 1; round < rounds; round++) {
        int other = job->me ^ round;
        if (other >= job->n) continue;
        if (job->me < other) send_to(f, job, wave, other);
        receive_from(f, job, wave, other);
        if (job->me > other) send_to(f, job, wave, other);
    }
}

/* All waves, or up to the first in which some process failed. */
static mt_status run_waves(struct fetch *f, const struct mt_job *job, mt_err *e)
{
    for (int32_t wave = 0; wave < f->d->waves; wave++) {
        int64_t n = 0;
        while (f->first + n < f->d->n_spans && f->d->span[f->first + n].wave == wave) n++;
        mt_tasks_open(&f->spans, n, e);
        mt_status st = mt_tasks_run(&f->spans, read_some, f);
        f->first += n;
        if (mt_job_any(job, st != MT_OK)) return st;
        pass_on(f, job, wave);
    }
    return MT_OK;
}

static mt_status open_buffers(struct fetch *f, mt_err *e)
{
    f->staging = malloc((size_t)f->d->staging + 1);
    f->message = malloc((size_t)f->d->message + 1);
    f->begun = calloc((size_t)f->d->n_pieces + 1, sizeof *f->begun);
    MT_REQUIRE(f->staging && f->message && f->begun, e, MT_IO,
               "no memory to read a checkpoint: %" PRId64 " bytes to pass on to other ranks",
               f->d->staging + f->d->message);
    return MT_OK;
}

mt_status mt_fetch(const struct mt_source *s, const struct mt_ckpt_items *items, const struct mt_deal *d,
                   const struct mt_job *job, mt_err *e)
{
    struct fetch f = {.s = s, .items = items, .d = d};
    mt_status st = mt_job_agree(job, open_buffers(&f, e), e);
    if (st == MT_OK) {
        pthread_mutex_init(&f.lock, NULL);
        st = run_waves(&f, job, e);
        if (f.put != MT_OK && st == MT_OK) st = mt_err_set(e, f.put, "%s", f.put_err.msg);
        st = mt_job_agree(job, st, e);
        pthread_mutex_destroy(&f.lock);
    }
    for (int64_t i = 0; i < d->n_pieces && f.begun; i++)
        if (f.begun[i]) mt_sum_close(f.begun[i]);
    free(f.begun);
    free(f.staging);
    free(f.message);
    return st;
}
