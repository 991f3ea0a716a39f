#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "ckpt/source.h"

/* Files first, first + stride, ...: the list of each by one thread. */
struct listing {
    const struct mt_source *s;
    int first, stride;
    struct mt_stored_list *of; /* of each */
    struct mt_tasks files;
};

static void *list_some(void *arg)
{
    struct listing *l = arg;
    for (int64_t i; mt_tasks_next(&l->files, &i);) {
        mt_err e = {0};
        if (mt_source_list(l->s, l->first + (int)i * l->stride, &l->of[i], &e) != MT_OK)
            mt_tasks_fail(&l->files, i, &e);
    }
    return NULL;
}

static mt_status gather(struct mt_stored_list *list, const struct mt_stored_list *of, int n, mt_err *e)
{
    for (int f = 0; f < n; f++) list->room += of[f].n;
    list->x = malloc((size_t)(list->room + 1) * sizeof *list->x);
    MT_REQUIRE(list->x, e, MT_IO, "no memory to list %" PRId64 " pieces of tensors", list->room);
    for (int f = 0; f < n; f++) {
        if (of[f].n) memcpy(list->x + list->n, of[f].x, (size_t)of[f].n * sizeof *list->x);
        list->n += of[f].n;
    }
    return MT_OK;
}

static void file_name(const struct mt_source *s, int f, char name[64])
{
    snprintf(name, 64, "rank-%05d.safetensors", s->rank[f]);
}

mt_status mt_source_next(const struct mt_source *s, const char *name, int64_t next, int before, int64_t row0,
                         int f, mt_err *e)
{
    char here[64] = "", there[64] = "";
    if (row0 == next) return MT_OK;
    if (f >= 0) file_name(s, f, here);
    if (before >= 0) file_name(s, before, there);
    if (row0 > next)
        MT_FAIL(e, MT_CKPT, "'%s': rows %" PRId64 " to %" PRId64 " of tensor '%s' are in none of its files",
                s->path, next, row0 - 1, name);
    MT_FAIL(e, MT_CKPT, "'%s': row %" PRId64 " of tensor '%s' is there twice: in %s and in %s", s->path, row0,
            name, there, f >= 0 ? here : "no other");
}

static int by_row(const void *a, const void *b)
{
    const struct mt_stored *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order) return order;
    if (x->row0 != y->row0) return x->row0 < y->row0 ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

static mt_status check_cover(const struct mt_source *s, const struct mt_stored_list *l, mt_err *e)
{
    int64_t next = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const struct mt_stored *x = &l->x[i], *before = i ? x - 1 : NULL;
        bool first = !before || strcmp(before->name, x->name);
        if (first) next = 0;
        MT_REQUIRE(first || (before->rows == x->rows && before->cols == x->cols), e, MT_CKPT,
                   "'%s': tensor '%s' is of two shapes, in rank-%05d.json and rank-%05d.json", s->path,
                   x->name, s->rank[before->file], s->rank[x->file]);
        /* One without rows is there twice where nothing overlaps. */
        MT_REQUIRE(first || x->rows, e, MT_CKPT, "'%s': tensor '%s' is there twice", s->path, x->name);
        MT_TRY(mt_source_next(s, x->name, next, first ? -1 : before->file, x->row0, x->file, e));
        next = x->row0 + x->n;
        bool last = i + 1 == l->n || strcmp(x->name, x[1].name);
        if (last) MT_TRY(mt_source_next(s, x->name, next, x->file, x->rows, -1, e));
    }
    return MT_OK;
}

mt_status mt_source_list_some(const struct mt_source *s, int first, int stride, struct mt_stored_list *list,
                              mt_err *e)
{
    int n = first < s->n ? (s->n - first + stride - 1) / stride : 0;
    struct listing l = {.s = s, .first = first, .stride = stride};
    *list = (struct mt_stored_list){0};
    l.of = calloc((size_t)n + 1, sizeof *l.of);
    MT_REQUIRE(l.of, e, MT_IO, "no memory to list %d files of '%s'", n, s->path);
    mt_tasks_open(&l.files, n, e);
    mt_status st = mt_tasks_run(&l.files, list_some, &l);
    if (st == MT_OK) st = gather(list, l.of, n, e);
    for (int i = 0; i < n; i++) free(l.of[i].x);
    free(l.of);
    return st;
}

/* What one of two nodes has of a checkpoint is all of it. */
static mt_status whole(const struct mt_source *s, mt_err *e)
{
    bool local = !s->part && mt_source_of_node(s->path);
    for (int f = 0; f < s->n && local; f++)
        MT_REQUIRE(
            mt_source_has(s, f), e, MT_CKPT,
            "'%s' is what one node has of a checkpoint, without rank-%05d.safetensors: a run with this "
            "ckpt.local_dir goes on from it on all its nodes; ckpt ls, show and verify take it alone",
            s->path, s->rank[f]);
    return MT_OK;
}

mt_status mt_source_list_all(const struct mt_source *s, struct mt_stored_list *list, mt_err *e)
{
    *list = (struct mt_stored_list){0};
    MT_TRY(whole(s, e));
    mt_status st = mt_source_list_some(s, 0, 1, list, e);
    if (list->n) qsort(list->x, (size_t)list->n, sizeof *list->x, by_row);
    if (st == MT_OK && !s->part) st = check_cover(s, list, e);
    if (st == MT_OK) return MT_OK;
    free(list->x);
    *list = (struct mt_stored_list){0};
    return st;
}

mt_status mt_source_compare(const struct mt_stored *x, const char *path, uint64_t sum, mt_err *e)
{
    char rows[64] = "";
    if (sum == x->xxh3) return MT_OK;
    if (x->n < x->rows)
        snprintf(rows, sizeof rows, ", rows %" PRId64 " to %" PRId64 ",", x->row0, x->row0 + x->n - 1);
    MT_FAIL(e, MT_CKPT,
            "'%s': tensor '%s'%s is damaged: its checksum is %016" PRIx64 ", written was %016" PRIx64, path,
            x->name, rows, sum, x->xxh3);
}

static int by_place(const void *a, const void *b, void *list)
{
    const struct mt_stored *x = (const struct mt_stored *)list + *(const int64_t *)a,
                           *y = (const struct mt_stored *)list + *(const int64_t *)b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

mt_status mt_source_by_file(const struct mt_source *s, const struct mt_stored_list *list, int64_t **first,
                            int64_t **order, mt_err *e)
{
    *first = calloc((size_t)s->n + 1, sizeof **first);
    *order = malloc((size_t)(list->n + 1) * sizeof **order);
    if (!*first || !*order) {
        free(*first);
        free(*order);
        MT_FAIL(e, MT_IO, "no memory to order %" PRId64 " pieces of tensors", list->n);
    }
    for (int64_t i = 0; i < list->n; i++) {
        (*order)[i] = i;
        (*first)[list->x[i].file + 1]++;
    }
    for (int f = 0; f < s->n; f++) (*first)[f + 1] += (*first)[f];
    if (list->n) qsort_r(*order, (size_t)list->n, sizeof **order, by_place, list->x);
    return MT_OK;
}
