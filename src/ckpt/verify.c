#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parallel.h"
#include "ckpt/read.h"
#include "ckpt/source.h"
#include "ckpt/sum.h"

/* Files are taken by threads, each read once: its own checksum and those of its tensors come from the same bytes. */
struct verifying {
    const struct mt_source *s;
    const struct mt_stored_list *list;
    const int64_t *first; /* [files + 1] in `order`: */
    const int64_t *order; /* the list's pieces in the order of files and bytes */
    struct mt_progress *progress;
    struct mt_tasks files;
};

/* One file being read. */
struct stream {
    struct mt_sum *whole, *part;
    unsigned char *buffer;
    struct mt_progress *progress;
    bool in_part;
    char path[MT_SOURCE_FILE];
    int fd;
};

static void take(void *arg, const void *p, int64_t from, int64_t bytes)
{
    struct stream *r = arg;
    (void)from;
    mt_sum_add(r->whole, p, bytes);
    if (r->in_part) mt_sum_add(r->part, p, bytes);
    if (r->progress) atomic_fetch_add(&r->progress->done, bytes);
}

static mt_status read_pieces(const struct verifying *v, int f, struct stream *r, mt_err *e)
{
    int64_t at = v->first[f] < v->first[f + 1] ? v->list->x[v->order[v->first[f]]].at : 0;
    MT_TRY(mt_read_parts(r->fd, r->path, 0, at, r->buffer, MT_READ_CHUNK, take, r, e));
    r->in_part = true;
    for (int64_t i = v->first[f]; i < v->first[f + 1]; i++) {
        const struct mt_stored *x = &v->list->x[v->order[i]];
        mt_sum_reset(r->part);
        MT_TRY(mt_read_parts(r->fd, r->path, x->at, x->n * mt_stored_row_bytes(x), r->buffer, MT_READ_CHUNK,
                             take, r, e));
        MT_TRY(mt_source_compare(x, r->path, mt_sum_value(r->part), e));
        at = x->at + x->n * mt_stored_row_bytes(x);
    }
    r->in_part = false;
    const struct mt_manifest_file *file = mt_manifest_find(&v->s->manifest, strrchr(r->path, '/') + 1);
    MT_TRY(mt_read_parts(r->fd, r->path, at, file->bytes - at, r->buffer, MT_READ_CHUNK, take, r, e));
    MT_REQUIRE(mt_sum_value(r->whole) == file->xxh3, e, MT_CKPT,
               "'%s' is damaged: its checksum is %016" PRIx64 ", its manifest says %016" PRIx64
               "; every tensor of it is sound, its header is not",
               r->path, mt_sum_value(r->whole), file->xxh3);
    return MT_OK;
}

static mt_status verify_file(const struct verifying *v, int f, struct stream *r, mt_err *e)
{
    int64_t bytes;
    mt_source_tensors(v->s, f, r->path);
    mt_sum_reset(r->whole);
    r->in_part = false;
    MT_TRY(mt_read_open(&r->fd, r->path, &bytes, e));
    mt_status st = read_pieces(v, f, r, e);
    close(r->fd);
    return st;
}

static void *verify_some(void *arg)
{
    struct verifying *v = arg;
    struct stream r = {.whole = mt_sum_open(),
                       .part = mt_sum_open(),
                       .buffer = malloc(MT_READ_CHUNK),
                       .progress = v->progress};
    bool room = r.whole && r.part && r.buffer;
    for (int64_t f; mt_tasks_next(&v->files, &f);) {
        mt_err e = {0};
        mt_status st = room ? verify_file(v, (int)f, &r, &e)
                            : mt_err_set(&e, MT_IO, "no memory to verify '%s'", v->s->path);
        if (st != MT_OK) mt_tasks_fail(&v->files, f, &e);
    }
    if (r.whole) mt_sum_close(r.whole);
    if (r.part) mt_sum_close(r.part);
    free(r.buffer);
    return NULL;
}

static mt_status verify_tensors(const struct mt_source *s, const struct mt_stored_list *list,
                                struct mt_progress *progress, mt_err *e)
{
    int64_t *first, *order;
    MT_TRY(mt_source_by_file(s, list, &first, &order, e));
    struct verifying v = {.s = s, .list = list, .first = first, .order = order, .progress = progress};
    mt_tasks_open(&v.files, s->n, e);
    mt_status st = mt_tasks_run(&v.files, verify_some, &v);
    free(first);
    free(order);
    return st;
}

/* All but tensors and their checksums: read whole, compared with the manifest. */
static mt_status verify_others(const struct mt_source *s, mt_err *e)
{
    for (int64_t i = 0; i < s->manifest.n; i++) {
        char *text;
        int64_t bytes;
        if (!mt_source_is_here(s, s->manifest.file[i].name)) continue;
        MT_TRY(mt_source_size(s, &s->manifest.file[i], e));
        if (mt_source_of_rank(s->manifest.file[i].name)) continue;
        MT_TRY(mt_source_text(s, s->manifest.file[i].name, &text, &bytes, e));
        free(text);
    }
    return MT_OK;
}

mt_status mt_source_verify(const struct mt_source *s, struct mt_progress *progress, mt_err *e)
{
    struct mt_stored_list list;
    MT_TRY(verify_others(s, e));
    MT_TRY(mt_source_list_all(s, &list, e));
    for (int64_t i = 0; i < s->manifest.n && progress; i++)
        if (strstr(s->manifest.file[i].name, ".safetensors") &&
            mt_source_is_here(s, s->manifest.file[i].name))
            atomic_fetch_add(&progress->total, s->manifest.file[i].bytes);
    mt_status st = verify_tensors(s, &list, progress, e);
    free(list.x);
    return st;
}

mt_status mt_ckpt_verify_told(const char *path, struct mt_ckpt_meta *meta, struct mt_progress *progress,
                              mt_err *e)
{
    struct mt_source s;
    *meta = (struct mt_ckpt_meta){0};
    MT_TRY(mt_source_open(&s, path, e));
    *meta = s.manifest.meta;
    mt_status st = mt_source_verify(&s, progress, e);
    mt_source_close(&s);
    return st;
}
mt_status mt_ckpt_verify(const char *path, struct mt_ckpt_meta *meta, mt_err *e)
{
    return mt_ckpt_verify_told(path, meta, NULL, e);
}
