#include "ckpt/compose.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "ckpt/sink.h"

/* Of a file, and of what is written beside it. */
struct sums {
    uint64_t tensors, beside;
};
struct composing {
    const char *to;
    struct mt_parts *parts;
    const struct mt_compose_source *from;
    struct mt_progress *progress;
    struct sums *sums; /* [parts->n_files] */
    struct mt_tasks files;
};
/* A thread's. */
struct writer {
    struct composing *x;
    void *reader;
    struct mt_sink sink;
    struct mt_sum *part;
};

mt_status mt_compose_folder(const char *to, mt_err *e)
{
    MT_TRY(mt_ckpt_vacant(to, e));
    return mt_make_folders(to, e);
}

static mt_status put_part(struct writer *w, int64_t bytes, mt_err *e)
{
    mt_sum_reset(w->part);
    while (bytes > 0) {
        int64_t room;
        void *to = mt_sink_room(&w->sink, &room);
        int64_t n = bytes < room ? bytes : room;
        MT_TRY(w->x->from->read(w->reader, to, n, e));
        mt_sum_add(w->part, to, n);
        MT_TRY(mt_sink_took(&w->sink, n, e));
        bytes -= n;
        if (w->x->progress) atomic_fetch_add(&w->x->progress->done, n);
    }
    return MT_OK;
}

static void set_sum(struct mt_part_file *f, int64_t at, uint64_t sum)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    memcpy(f->sums + at, digits, 16);
}

/* The tensors, and their checksums into the text that is written beside them. */
static mt_status put_tensors(struct writer *w, struct mt_part_file *f, mt_err *e)
{
    MT_TRY(w->x->from->seek(w->reader, f->rank, e));
    MT_TRY(mt_sink_put(&w->sink, f->head, f->head_bytes, e));
    for (int64_t i = f->first; i < f->first + f->n; i++) {
        MT_TRY(put_part(w, w->x->parts->part[i].bytes, e));
        set_sum(f, w->x->parts->part[i].sum_at, mt_sum_value(w->part));
    }
    return w->x->from->finish(w->reader, e);
}

static void names_of(const struct mt_part_file *f, char tensors[64], char beside[64])
{
    snprintf(tensors, 64, "rank-%05d.safetensors", f->rank);
    snprintf(beside, 64, "rank-%05d.json", f->rank);
}

static mt_status write_pair(struct writer *w, int file, mt_err *e)
{
    struct mt_part_file *f = &w->x->parts->file[file];
    struct sums *sums = &w->x->sums[file];
    char tensors[64], beside[64], path[MT_SOURCE_FILE];
    names_of(f, tensors, beside);
    snprintf(w->sink.path, sizeof w->sink.path, "%s/%s", w->x->to, tensors);
    snprintf(path, sizeof path, "%s/%s", w->x->to, beside);
    MT_TRY(mt_sink_open(&w->sink, f->bytes, e));
    MT_TRY(put_tensors(w, f, e));
    MT_TRY(mt_sink_end(&w->sink, e));
    sums->tensors = mt_sum_value(w->sink.whole);
    set_sum(f, f->sum_at, sums->tensors);
    return mt_write_file(path, f->sums, f->sums_bytes, &sums->beside, e);
}

static mt_status open_writer(struct writer *w, mt_err *e)
{
    w->part = mt_sum_open();
    MT_REQUIRE(w->part, e, MT_IO, "no memory to write '%s'", w->x->to);
    MT_TRY(mt_sink_init(&w->sink, e));
    return w->x->from->open(w->x->from->arg, &w->reader, e);
}

static void close_writer(struct writer *w)
{
    if (w->reader) w->x->from->close(w->reader);
    mt_sink_release(&w->sink);
    if (w->part) mt_sum_close(w->part);
}

static void *write_some(void *arg)
{
    struct composing *x = arg;
    struct writer w = {.x = x, .sink.fd = -1};
    mt_err e = {0};
    mt_status st = open_writer(&w, &e);
    for (int64_t f; mt_tasks_next(&x->files, &f);) {
        if (st == MT_OK) st = write_pair(&w, (int)f, &e);
        if (st == MT_OK) continue;
        mt_tasks_stop(&x->files);
        mt_tasks_fail(&x->files, f, &e);
    }
    close_writer(&w);
    return NULL;
}

static mt_status add_pairs(const struct composing *x, struct mt_manifest *manifest, mt_err *e)
{
    for (int i = 0; i < x->parts->n_files; i++) {
        const struct mt_part_file *f = &x->parts->file[i];
        char tensors[64], beside[64];
        names_of(f, tensors, beside);
        MT_TRY(mt_manifest_add(manifest, tensors, f->bytes, x->sums[i].tensors, e));
        MT_TRY(mt_manifest_add(manifest, beside, f->sums_bytes, x->sums[i].beside, e));
    }
    return MT_OK;
}

mt_status mt_compose(const char *to, struct mt_parts *parts, const struct mt_compose_source *from,
                     struct mt_manifest *manifest, struct mt_progress *progress, mt_err *e)
{
    struct composing x = {.to = to, .parts = parts, .from = from, .progress = progress};
    if (progress) atomic_store(&progress->total, parts->bytes);
    x.sums = calloc((size_t)parts->n_files + 1, sizeof *x.sums);
    MT_REQUIRE(x.sums, e, MT_IO, "no memory for the checksums of %d files", parts->n_files);
    mt_tasks_open(&x.files, parts->n_files, e);
    mt_status st = mt_tasks_run(&x.files, write_some, &x);
    if (st == MT_OK) st = add_pairs(&x, manifest, e);
    free(x.sums);
    return st;
}
