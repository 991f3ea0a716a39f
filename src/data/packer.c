#include "data/packer.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { BATCH_BYTES = 1 << 20, BATCH_DOCUMENTS = 1 << 14 };

struct document {
    int64_t begin, bytes; /* in the batch's text */
    int64_t tokens;       /* 0: it is empty */
    const char *path;
    int64_t line;
    bool json;
};
enum state { FILLING, WAITING, ENCODING, ENCODED };
struct batch {
    enum state state;
    struct mt_text text;
    struct document *document; /* owned: [BATCH_DOCUMENTS] */
    int64_t n;
    int32_t *ids; /* owned */
    int64_t n_ids, room;
    mt_status st;
    mt_err e;
};
struct worker {
    struct mt_packer *p;
    pthread_t thread;
    mt_encoder *encoder;
};
struct mt_packer {
    struct mt_packer_options o;
    mt_index_writer *writer;
    struct mt_packer_counts counts;
    struct batch *batch;                       /* owned: a ring of n_batches */
    int64_t n_batches, filled, taken, written; /* counted from the start */
    int64_t open_begin;    /* of the open document, in the text of the batch that is being filled */
    struct worker *worker; /* owned: [o.threads], of which n_workers run */
    int n_workers;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool stop;
};

static struct batch *batch_of(struct mt_packer *p, int64_t number)
{
    return &p->batch[number % p->n_batches];
}

/* ---- a worker's part ---- */
static mt_status put_ids(struct batch *b, const int32_t *ids, int64_t n, mt_err *e)
{
    if (b->n_ids + n > b->room) {
        int64_t room = 2 * b->room + n + 4096;
        int32_t *at = realloc(b->ids, (size_t)room * sizeof *at);
        MT_REQUIRE(at, e, MT_IO, "no memory for %" PRId64 " tokens", room);
        b->ids = at;
        b->room = room;
    }
    if (n) memcpy(b->ids + b->n_ids, ids, (size_t)n * sizeof *ids);
    b->n_ids += n;
    return MT_OK;
}

static mt_status put_bytes(struct batch *b, const char *text, int64_t bytes, mt_err *e)
{
    int32_t ids[1024];
    while (bytes > 0) {
        int64_t n = bytes < 1024 ? bytes : 1024;
        for (int64_t i = 0; i < n; i++) ids[i] = (unsigned char)text[i];
        MT_TRY(put_ids(b, ids, n, e));
        text += n;
        bytes -= n;
    }
    return MT_OK;
}

static mt_status put_text(const struct worker *w, struct batch *b, struct document *d, const char *text,
                          int64_t bytes, mt_err *e)
{
    int64_t from = b->n_ids, n;
    const int32_t *ids;
    if (!w->encoder) {
        MT_TRY(put_bytes(b, text, bytes, e));
    } else {
        mt_status st = mt_encode(w->encoder, text, bytes, &ids, &n, e);
        if (st != MT_OK) mt_err_while(e, "%s:%" PRId64, d->path, d->line);
        MT_TRY(st);
        MT_TRY(put_ids(b, ids, n, e));
    }
    int32_t eod = (int32_t)w->p->o.eod;
    if (b->n_ids > from && eod >= 0) MT_TRY(put_ids(b, &eod, 1, e));
    d->tokens = b->n_ids - from;
    return MT_OK;
}

/* Whether a JSON text has the escape of a NUL, at which cJSON's strings end. */
static bool has_nul_escape(const char *line, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i++) {
        if (line[i] != '\\') continue;
        if (n - i >= 6 && !memcmp(line + i + 1, "u0000", 5)) return true;
        i++; /* the escaped character, maybe a backslash */
    }
    return false;
}

static mt_status put_object(const struct worker *w, struct batch *b, struct document *d, const char *line,
                            mt_err *e)
{
    const char *key = w->p->o.json_key, *end = line;
    MT_REQUIRE(!memchr(line, 0, (size_t)d->bytes) && !has_nul_escape(line, d->bytes), e, MT_DATA,
               "%s:%" PRId64 ": holds a NUL character, which text may not", d->path, d->line);
    cJSON *object = cJSON_ParseWithLengthOpts(line, (size_t)d->bytes, &end, 0);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, key);
    while (object && end < line + d->bytes && strchr(" \t\r\n", *end)) end++;
    mt_status st;
    if (!object || end < line + d->bytes)
        st = mt_err_set(e, MT_DATA, "%s:%" PRId64 ":%lld: not valid JSON; expected one object a line",
                        d->path, d->line, (long long)(end - line) + 1);
    else if (!cJSON_IsString(text))
        st = mt_err_set(e, MT_DATA,
                        "%s:%" PRId64 ": no string under the key \"%s\"; choose the key with --jsonl KEY",
                        d->path, d->line, key);
    else
        st = put_text(w, b, d, text->valuestring, (int64_t)strlen(text->valuestring), e);
    cJSON_Delete(object);
    return st;
}

static void encode_batch(const struct worker *w, struct batch *b)
{
    b->n_ids = 0;
    for (int64_t i = 0; i < b->n && b->st == MT_OK; i++) {
        struct document *d = &b->document[i];
        const char *text = b->text.at + d->begin;
        b->st = d->json ? put_object(w, b, d, text, &b->e) : put_text(w, b, d, text, d->bytes, &b->e);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct mt_packer *p = w->p;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->taken == p->filled) pthread_cond_wait(&p->work, &p->lock);
        if (p->stop) break;
        struct batch *b = batch_of(p, p->taken++);
        b->state = ENCODING;
        pthread_mutex_unlock(&p->lock);
        encode_batch(w, b);
        pthread_mutex_lock(&p->lock);
        b->state = ENCODED;
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the caller's part ---- */
static mt_status write_batch(struct mt_packer *p, struct batch *b, mt_err *e)
{
    const int32_t *ids = b->ids;
    if (b->st != MT_OK) *e = b->e;
    MT_TRY(b->st);
    for (int64_t i = 0; i < b->n; i++) {
        int64_t n = b->document[i].tokens;
        if (!n) {
            p->counts.empty++;
            continue;
        }
        MT_TRY(mt_index_writer_tokens(p->writer, ids, n, e));
        MT_TRY(mt_index_writer_end_document(p->writer, e));
        ids += n;
        p->counts.documents++;
        p->counts.tokens += n;
    }
    return MT_OK;
}

/* Waits for the oldest batch, writes it, and leaves its place. */
static mt_status retire(struct mt_packer *p, mt_err *e)
{
    struct batch *b = batch_of(p, p->written);
    pthread_mutex_lock(&p->lock);
    while (b->state != ENCODED) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
    MT_TRY(write_batch(p, b, e));
    p->written++;
    b->state = FILLING;
    b->text.bytes = b->n = 0;
    return MT_OK;
}

/* Hands the filled batch over; the next one begins with a free place. */
static mt_status submit(struct mt_packer *p, mt_err *e)
{
    pthread_mutex_lock(&p->lock);
    batch_of(p, p->filled++)->state = WAITING;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    p->open_begin = 0;
    return p->filled - p->written == p->n_batches ? retire(p, e) : MT_OK;
}

mt_status mt_packer_add(struct mt_packer *p, const char *bytes, int64_t n, mt_err *e)
{
    p->counts.bytes += n;
    return mt_text_append(&batch_of(p, p->filled)->text, bytes, n, e);
}
int64_t mt_packer_open_bytes(const struct mt_packer *p)
{
    return p->batch[p->filled % p->n_batches].text.bytes - p->open_begin;
}
mt_status mt_packer_end(struct mt_packer *p, bool json, const char *path, int64_t line, mt_err *e)
{
    struct batch *b = batch_of(p, p->filled);
    b->document[b->n++] = (struct document){.begin = p->open_begin,
                                            .bytes = b->text.bytes - p->open_begin,
                                            .path = path,
                                            .line = line,
                                            .json = json};
    p->open_begin = b->text.bytes;
    return b->text.bytes >= BATCH_BYTES || b->n == BATCH_DOCUMENTS ? submit(p, e) : MT_OK;
}
mt_status mt_packer_finish(struct mt_packer *p, struct mt_packer_counts *counts, mt_err *e)
{
    MT_TRY(submit(p, e));
    while (p->written < p->filled) MT_TRY(retire(p, e));
    *counts = p->counts;
    return MT_OK;
}
const struct mt_packer_counts *mt_packer_counts(const struct mt_packer *p)
{
    return &p->counts;
}

static mt_status start(struct mt_packer *p, mt_err *e)
{
    p->batch = calloc((size_t)p->n_batches, sizeof *p->batch);
    p->worker = calloc((size_t)p->o.threads, sizeof *p->worker);
    MT_REQUIRE(p->batch && p->worker, e, MT_IO, "no memory for %d threads", p->o.threads);
    for (int64_t i = 0; i < p->n_batches; i++) {
        p->batch[i].document = malloc(BATCH_DOCUMENTS * sizeof *p->batch[i].document);
        MT_REQUIRE(p->batch[i].document, e, MT_IO, "no memory for %d threads", p->o.threads);
    }
    for (int i = 0; i < p->o.threads; i++) {
        struct worker *w = &p->worker[i];
        w->p = p;
        if (p->o.tokenizer) MT_TRY(mt_encoder_open(&w->encoder, p->o.tokenizer, p->o.specials, e));
        int error = pthread_create(&w->thread, NULL, work, w);
        if (error) mt_encoder_close(w->encoder);
        MT_REQUIRE(!error, e, MT_IO, "cannot start thread %d of %d: %s", i + 1, p->o.threads,
                   strerror(error));
        p->n_workers++;
    }
    return MT_OK;
}

mt_status mt_packer_open(struct mt_packer **out, mt_index_writer *writer, const struct mt_packer_options *o,
                         mt_err *e)
{
    struct mt_packer *p = calloc(1, sizeof *p);
    *out = p;
    MT_REQUIRE(p, e, MT_IO, "no memory");
    p->o = *o;
    p->writer = writer;
    p->n_batches = 2 * o->threads + 1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    return start(p, e);
}

void mt_packer_close(struct mt_packer *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->worker[i].thread, NULL);
        mt_encoder_close(p->worker[i].encoder);
    }
    for (int64_t i = 0; p->batch && i < p->n_batches; i++) {
        mt_text_release(&p->batch[i].text);
        free(p->batch[i].document);
        free(p->batch[i].ids);
    }
    free(p->batch);
    free(p->worker);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
