#include "ckpt/reshard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/compose.h"
#include "ckpt/file.h"
#include "ckpt/read.h"
#include "ckpt/scan.h"

/* Where a new file's bytes begin in the old ones. */
struct start {
    int64_t piece, row;
};
struct resharding {
    const struct mt_source *s;
    const char *to;
    struct mt_stored_list list;
    struct mt_ckpt_items items; /* the new pieces, by name and row */
    struct mt_parts parts;      /* of them */
    struct start *start;        /* [ranks] */
    int ranks;
    float nowhere; /* pieces of a save are in memory; these have this address, which is not looked at */
    struct mt_manifest manifest;
    struct mt_progress *progress;
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

/* ---- reading ---- */
struct reader {
    const struct resharding *x;
    struct mt_scan scan;
    char *buffer; /* MT_READ_CHUNK bytes, for what is only verified */
};

static mt_status open_reader(void *arg, void **out, mt_err *e)
{
    const struct resharding *x = arg;
    struct reader *r = calloc(1, sizeof *r);
    *out = r;
    MT_REQUIRE(r, e, MT_IO, "no memory to read '%s'", x->s->path);
    r->x = x;
    r->scan.fd = -1;
    r->buffer = malloc(MT_READ_CHUNK);
    MT_REQUIRE(r->buffer, e, MT_IO, "no memory to read '%s'", x->s->path);
    return mt_scan_open(&r->scan, x->s, &x->list, e);
}
static void close_reader(void *reader)
{
    struct reader *r = reader;
    mt_scan_close(&r->scan);
    free(r->buffer);
    free(r);
}
static mt_status seek_rank(void *reader, int rank, mt_err *e)
{
    struct reader *r = reader;
    (void)e;
    mt_scan_seek(&r->scan, r->x->start[rank].piece, r->x->start[rank].row);
    return MT_OK;
}
static mt_status read_bytes(void *reader, void *to, int64_t bytes, mt_err *e)
{
    return mt_scan_read(&((struct reader *)reader)->scan, to, bytes, e);
}
static mt_status finish_rank(void *reader, mt_err *e)
{
    struct reader *r = reader;
    return mt_scan_finish(&r->scan, r->buffer, MT_READ_CHUNK, e);
}

/* ---- all files ---- */
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
    const struct mt_compose_source from = {x, open_reader, seek_rank, read_bytes, finish_rank, close_reader};
    MT_TRY(mt_compose(x->to, &x->parts, &from, &x->manifest, x->progress, e));
    MT_TRY(copy_others(x, e));
    return mt_manifest_write(&x->manifest, x->to, e);
}

static mt_status reshard(struct resharding *x, mt_err *e)
{
    MT_TRY(mt_source_list_all(x->s, &x->list, e));
    MT_TRY(cut_all(x, e));
    MT_TRY(mt_compose_folder(x->to, e));
    mt_status st = write_all(x, e);
    mt_err ignored = {0};
    if (st != MT_OK && mt_remove_folder(x->to, "manifest.json", &ignored) != MT_OK)
        mt_err_while(e, "'%s' could not be removed after a failure", x->to);
    return st;
}

mt_status mt_ckpt_reshard(const char *from, const char *to, int ranks, struct mt_progress *progress,
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
                           .progress = progress};
    mt_status st = reshard(&x, e);
    free(x.list.x);
    free(x.start);
    mt_parts_close(&x.parts);
    mt_ckpt_items_close(&x.items);
    mt_manifest_release(&x.manifest);
    mt_source_close(&s);
    return st;
}
