#include "ckpt/reshard.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parallel.h"
#include "ckpt/direct.h"
#include "ckpt/file.h"
#include "ckpt/parts.h"
#include "ckpt/scan.h"
#include "ckpt/sum.h"

enum { CHUNK = 512 * MT_PART_ALIGN };

/* Where a new file's bytes begin in the old ones. */
struct start {
    int64_t piece, row;
};
/* Of a new file, and of what is written beside it. */
struct sums {
    uint64_t tensors, beside;
};
struct resharding {
    const struct mt_source *s;
    const char *to;
    struct mt_stored_list list;
    struct mt_ckpt_items items; /* the new pieces, by name and row */
    struct mt_parts parts;      /* of them */
    struct start *start;        /* [ranks] */
    int ranks;
    float nowhere;     /* pieces of a save are in memory; these have this address, which is not looked at */
    struct sums *sums; /* [parts.n_files] */
    struct mt_manifest manifest;
    struct mt_ckpt_progress *progress;
    atomic_int next;
    pthread_mutex_t lock; /* of what follows */
    int failed;           /* the first file that failed, and its message */
    mt_err *e;
};

/* ---- which rows go where ---- */
static void add_piece(struct resharding *x, struct mt_ckpt_item *it, int rank, int64_t row0, int64_t rows)
{
    x->items.piece[x->items.n_pieces++] =
        (struct mt_ckpt_piece){.data = &x->nowhere, .row0 = row0, .rows = rows, .rank = rank};
    it->n++;
}

/* Rows of a tensor, whose bytes begin at `at` of all: each goes to the rank in whose share it begins. first: its first piece. */
static void cut_tensor(struct resharding *x, struct mt_ckpt_item *it, int64_t first, int64_t at, int64_t all,
                       int *rank)
{
    int64_t row_bytes = mt_ckpt_row_bytes(it), piece = first;
    for (int64_t row = 0; row < it->rows;) {
        int64_t bound = all / x->ranks * (*rank + 1) + all % x->ranks * (*rank + 1) / x->ranks;
        int64_t end = bound > at ? (bound - at + row_bytes - 1) / row_bytes : 0;
        if (end > it->rows || *rank + 1 == x->ranks) end = it->rows;
        if (end > row) {
            const struct mt_stored *from = x->list.x;
            while (from[piece].row0 + from[piece].n <= row) piece++;
            if (x->start[*rank].piece < 0) x->start[*rank] = (struct start){piece, row - from[piece].row0};
            add_piece(x, it, *rank, row, end - row);
            row = end;
        }
        if (row < it->rows) ++*rank;
    }
}

static mt_status cut_all(struct resharding *x, mt_err *e)
{
    const struct mt_stored_list *l = &x->list;
    int64_t all = 0, at = 0;
    int rank = 0;
    x->items.item = calloc((size_t)l->n + 1, sizeof *x->items.item);
    x->items.piece = calloc((size_t)(l->n + x->ranks), sizeof *x->items.piece);
    x->start = malloc((size_t)x->ranks * sizeof *x->start);
    MT_REQUIRE(x->items.item && x->items.piece && x->start, e, MT_IO,
               "no memory to list %" PRId64 " pieces of tensors", l->n);
    for (int k = 0; k < x->ranks; k++) x->start[k].piece = -1;
    for (int64_t i = 0; i < l->n; i++) all += l->x[i].n * mt_stored_row_bytes(&l->x[i]);
    for (int64_t i = 0; i < l->n; i++) {
        if (i && !strcmp(l->x[i].name, l->x[i - 1].name)) continue;
        struct mt_ckpt_item *it = &x->items.item[x->items.n++];
        *it = (struct mt_ckpt_item){.rows = l->x[i].rows, .cols = l->x[i].cols, .first = x->items.n_pieces};
        memcpy(it->name, l->x[i].name, sizeof it->name);
        cut_tensor(x, it, i, at, all, &rank);
        at += mt_ckpt_item_bytes(it);
    }
    return mt_parts_open(&x->parts, &x->items, x->ranks, NULL, e);
}

/* ---- a file ---- */
/* Bytes on their way to a file, by whole chunks. */
struct sink {
    int fd;
    char path[MT_SOURCE_FILE];
    char *chunk; /* CHUNK bytes, at a multiple of MT_PART_ALIGN */
    int64_t fill, at;
    struct mt_sum *whole, *part;
};

static mt_status flush(struct sink *k, mt_err *e)
{
    int64_t n = (k->fill + MT_PART_ALIGN - 1) / MT_PART_ALIGN * MT_PART_ALIGN;
    memset(k->chunk + k->fill, 0, (size_t)(n - k->fill));
    mt_sum_add(k->whole, k->chunk, k->fill);
    MT_TRY(mt_direct_write(k->fd, k->path, k->chunk, n, k->at, e));
    k->at += k->fill;
    k->fill = 0;
    return MT_OK;
}

static mt_status put_head(struct sink *k, const struct mt_part_file *f, mt_err *e)
{
    for (int64_t at = 0; at < f->head_bytes;) {
        int64_t n = f->head_bytes - at < CHUNK - k->fill ? f->head_bytes - at : CHUNK - k->fill;
        memcpy(k->chunk + k->fill, f->head + at, (size_t)n);
        at += n;
        k->fill += n;
        if (k->fill == CHUNK) MT_TRY(flush(k, e));
    }
    return MT_OK;
}

static mt_status put_part(struct resharding *x, struct sink *k, struct mt_scan *from, int64_t bytes,
                          mt_err *e)
{
    mt_sum_reset(k->part);
    while (bytes > 0) {
        int64_t n = bytes < CHUNK - k->fill ? bytes : CHUNK - k->fill;
        MT_TRY(mt_scan_read(from, k->chunk + k->fill, n, e));
        mt_sum_add(k->part, k->chunk + k->fill, n);
        bytes -= n;
        k->fill += n;
        if (k->fill == CHUNK) MT_TRY(flush(k, e));
        if (x->progress) atomic_fetch_add(&x->progress->done, n);
    }
    return MT_OK;
}

static void set_sum(struct mt_part_file *f, int64_t at, uint64_t sum)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    memcpy(f->sums + at, digits, 16);
}

/* The tensors, and the checksums into the text that is written beside them. */
static mt_status write_tensors(struct resharding *x, struct sink *k, struct mt_scan *from,
                               struct mt_part_file *f, mt_err *e)
{
    mt_sum_reset(k->whole);
    k->fill = k->at = 0;
    mt_scan_seek(from, x->start[f->rank].piece, x->start[f->rank].row);
    MT_TRY(put_head(k, f, e));
    for (int64_t i = f->first; i < f->first + f->n; i++) {
        MT_TRY(put_part(x, k, from, x->parts.part[i].bytes, e));
        set_sum(f, x->parts.part[i].sum_at, mt_sum_value(k->part));
    }
    MT_TRY(flush(k, e));
    set_sum(f, f->sum_at, mt_sum_value(k->whole));
    MT_TRY(mt_direct_finish(k->fd, k->path, f->bytes, e));
    return mt_scan_finish(from, k->chunk, CHUNK, e);
}

static void names_of(const struct mt_part_file *f, char tensors[64], char beside[64])
{
    snprintf(tensors, 64, "rank-%05d.safetensors", f->rank);
    snprintf(beside, 64, "rank-%05d.json", f->rank);
}

static mt_status write_pair(struct resharding *x, struct sink *k, struct mt_scan *from, int file, mt_err *e)
{
    struct mt_part_file *f = &x->parts.file[file];
    char tensors[64], beside[64], path[MT_SOURCE_FILE];
    names_of(f, tensors, beside);
    snprintf(k->path, sizeof k->path, "%s/%s", x->to, tensors);
    snprintf(path, sizeof path, "%s/%s", x->to, beside);
    MT_TRY(mt_direct_open(&k->fd, k->path, f->bytes, e));
    mt_status st = write_tensors(x, k, from, f, e);
    close(k->fd);
    x->sums[file].tensors = mt_sum_value(k->whole);
    MT_TRY(st);
    return mt_write_file(path, f->sums, f->sums_bytes, &x->sums[file].beside, e);
}

/* ---- all files ---- */
static void *write_some(void *arg)
{
    struct resharding *x = arg;
    struct mt_scan from = {.fd = -1};
    struct sink k = {.fd = -1,
                     .chunk = aligned_alloc(MT_PART_ALIGN, CHUNK),
                     .whole = mt_sum_open(),
                     .part = mt_sum_open()};
    mt_err e = {0};
    mt_status st = mt_scan_open(&from, x->s, &x->list, &e);
    if (!k.chunk || !k.whole || !k.part) st = mt_err_set(&e, MT_IO, "no memory to write '%s'", x->to);
    for (int f; (f = atomic_fetch_add(&x->next, 1)) < x->parts.n_files;) {
        if (st == MT_OK) st = write_pair(x, &k, &from, f, &e);
        if (st == MT_OK) continue;
        atomic_store(&x->next, x->parts.n_files); /* the others need not go on */
        pthread_mutex_lock(&x->lock);
        if (f < x->failed) {
            x->failed = f;
            *x->e = e;
        }
        pthread_mutex_unlock(&x->lock);
    }
    mt_scan_close(&from);
    if (k.whole) mt_sum_close(k.whole);
    if (k.part) mt_sum_close(k.part);
    free(k.chunk);
    return NULL;
}

static mt_status add_pairs(struct resharding *x, mt_err *e)
{
    for (int i = 0; i < x->parts.n_files; i++) {
        const struct mt_part_file *f = &x->parts.file[i];
        char tensors[64], beside[64];
        names_of(f, tensors, beside);
        MT_TRY(mt_manifest_add(&x->manifest, tensors, f->bytes, x->sums[i].tensors, e));
        MT_TRY(mt_manifest_add(&x->manifest, beside, f->sums_bytes, x->sums[i].beside, e));
    }
    return MT_OK;
}

static mt_status copy_others(struct resharding *x, mt_err *e)
{
    for (int64_t i = 0; i < x->s->manifest.n; i++) {
        const char *name = x->s->manifest.file[i].name;
        char path[MT_SOURCE_FILE], *text;
        int64_t bytes;
        uint64_t sum;
        if (mt_source_of_rank(name)) continue;
        snprintf(path, sizeof path, "%s/%s", x->to, name);
        MT_TRY(mt_source_text(x->s, name, &text, &bytes, e));
        mt_status st = mt_write_file(path, text, bytes, &sum, e);
        free(text);
        MT_TRY(st);
        MT_TRY(mt_manifest_add(&x->manifest, name, bytes, sum, e));
    }
    return MT_OK;
}

static mt_status write_all(struct resharding *x, mt_err *e)
{
    if (x->progress) atomic_store(&x->progress->total, x->parts.bytes);
    x->failed = x->parts.n_files;
    x->sums = calloc((size_t)x->parts.n_files + 1, sizeof *x->sums);
    MT_REQUIRE(x->sums, e, MT_IO, "no memory for the checksums of %d files", x->parts.n_files);
    pthread_mutex_init(&x->lock, NULL);
    mt_parallel(mt_parallel_threads(), write_some, x);
    pthread_mutex_destroy(&x->lock);
    MT_TRY(x->failed < x->parts.n_files ? e->code : MT_OK);
    MT_TRY(add_pairs(x, e));
    MT_TRY(copy_others(x, e));
    return mt_manifest_write(&x->manifest, x->to, e);
}

static mt_status make_folder(const char *to, mt_err *e)
{
    struct stat st;
    MT_REQUIRE(strlen(to) < MT_CKPT_PATH, e, MT_CONFIG, "the path is too long: '%.60s...'", to);
    MT_REQUIRE(lstat(to, &st), e, MT_CONFIG, "'%s' is there already; name a folder that is not", to);
    return mt_make_folders(to, e);
}

static mt_status reshard(struct resharding *x, mt_err *e)
{
    MT_TRY(mt_source_list_all(x->s, &x->list, e));
    MT_TRY(cut_all(x, e));
    MT_TRY(make_folder(x->to, e));
    mt_status st = write_all(x, e);
    mt_err ignored = {0};
    if (st != MT_OK && mt_remove_folder(x->to, "manifest.json", &ignored) != MT_OK)
        mt_err_while(e, "'%s' could not be removed after a failure", x->to);
    return st;
}

mt_status mt_ckpt_reshard(const char *from, const char *to, int ranks, struct mt_ckpt_progress *progress,
                          mt_err *e)
{
    struct mt_source s;
    MT_REQUIRE(ranks >= 1 && ranks <= MT_RESHARD_MOST, e, MT_CONFIG, "%d ranks: at most %d, at least 1",
               ranks, MT_RESHARD_MOST);
    MT_TRY(mt_source_open(&s, from, e));
    struct resharding x = {.s = &s,
                           .to = to,
                           .ranks = ranks,
                           .manifest = {.meta = s.manifest.meta, .world = ranks},
                           .progress = progress,
                           .e = e};
    mt_status st = reshard(&x, e);
    free(x.list.x);
    free(x.start);
    free(x.sums);
    mt_parts_close(&x.parts);
    mt_ckpt_items_close(&x.items);
    mt_manifest_release(&x.manifest);
    mt_source_close(&s);
    return st;
}
