#include "cmd/ckpt_diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/read.h"
#include "ckpt/scan.h"

/* One of the two, read tensor by tensor. */
struct side {
    struct mt_source s;
    struct mt_stored_list list;
    struct mt_scan scan;
    int64_t at; /* the first piece of the tensor at hand */
    unsigned char *buffer;
};
/* What differs in the elements of one tensor. */
struct difference {
    bool any;
    double most, d2, a2;
};

static int64_t behind(const struct side *x)
{
    int64_t i = x->at + 1;
    while (i < x->list.n && !strcmp(x->list.x[i].name, x->list.x[x->at].name)) i++;
    return i;
}

static mt_status open_side(struct side *x, const char *path, mt_err *e)
{
    MT_TRY(mt_source_open(&x->s, path, e));
    MT_TRY(mt_source_list_all(&x->s, &x->list, e));
    MT_TRY(mt_scan_open(&x->scan, &x->s, &x->list, e));
    x->buffer = malloc(MT_READ_CHUNK);
    MT_REQUIRE(x->buffer, e, MT_IO, "no memory to read '%s'", path);
    int64_t tensors = 0;
    for (; x->at < x->list.n; x->at = behind(x)) tensors++;
    x->at = 0;
    printf("%s: step %" PRId64 ", %" PRId64 " tokens, %" PRId64 " tensors\n", path, x->s.manifest.meta.step,
           x->s.manifest.meta.tokens, tensors);
    return MT_OK;
}

static void close_side(struct side *x)
{
    mt_scan_close(&x->scan);
    mt_source_close(&x->s);
    free(x->list.x);
    free(x->buffer);
}

static void add_values(struct difference *d, const unsigned char *a, const unsigned char *b, int64_t bytes)
{
    if (memcmp(a, b, (size_t)bytes) != 0) d->any = true;
    for (int64_t i = 0; i < bytes; i += 4) {
        float x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        double each = fabs((double)x - (double)y);
        if (each > d->most) d->most = each;
        d->d2 += each * each;
        d->a2 += (double)x * (double)x;
    }
}

/* Reads the tensor on both sides, to its end: so it is verified too. Prints a line if they differ. */
static mt_status compare(struct side *a, struct side *b, bool *differ, mt_err *e)
{
    const struct mt_stored *x = &a->list.x[a->at], *y = &b->list.x[b->at];
    struct difference d = {0};
    *differ = x->rows != y->rows || x->cols != y->cols;
    if (*differ) {
        printf("  %-44s [%" PRId64 ", %" PRId64 "] and [%" PRId64 ", %" PRId64 "]\n", x->name, x->rows,
               x->cols, y->rows, y->cols);
        return MT_OK;
    }
    mt_scan_seek(&a->scan, a->at, 0);
    mt_scan_seek(&b->scan, b->at, 0);
    for (int64_t left = x->rows * mt_stored_row_bytes(x), n; left > 0; left -= n) {
        n = left < MT_READ_CHUNK ? left : MT_READ_CHUNK;
        MT_TRY(mt_scan_read(&a->scan, a->buffer, n, e));
        MT_TRY(mt_scan_read(&b->scan, b->buffer, n, e));
        add_values(&d, a->buffer, b->buffer, n);
    }
    *differ = d.any;
    if (d.any)
        printf("  %-44s largest %.3e  relative %.3e\n", x->name, isnan(d.d2) ? (double)NAN : d.most,
               sqrt(d.d2 / d.a2));
    return MT_OK;
}

/* Both lists are in the order of names. */
static mt_status compare_all(struct side *a, struct side *b, int64_t *different, int64_t *all, mt_err *e)
{
    for (; a->at < a->list.n || b->at < b->list.n; ++*all) {
        const struct mt_stored *x = &a->list.x[a->at], *y = &b->list.x[b->at];
        int order = a->at == a->list.n ? 1 : b->at == b->list.n ? -1 : strcmp(x->name, y->name);
        bool differ = true;
        if (order < 0) printf("  %-44s only in the first\n", x->name);
        if (order > 0) printf("  %-44s only in the second\n", y->name);
        if (!order) MT_TRY(compare(a, b, &differ, e));
        *different += differ;
        if (order <= 0) a->at = behind(a);
        if (order >= 0) b->at = behind(b);
    }
    return MT_OK;
}

mt_status mt_ckpt_diff(const char *path_a, const char *path_b, mt_err *e)
{
    struct side a = {.scan.fd = -1}, b = {.scan.fd = -1};
    int64_t different = 0, all = 0;
    mt_status st = open_side(&a, path_a, e);
    if (st == MT_OK) st = open_side(&b, path_b, e);
    if (st == MT_OK) st = compare_all(&a, &b, &different, &all, e);
    if (st == MT_OK && different)
        st = mt_err_set(e, MT_CKPT, "%" PRId64 " of %" PRId64 " tensors differ", different, all);
    if (st == MT_OK) printf("%" PRId64 " tensors, equal to the bit\n", all);
    close_side(&a);
    close_side(&b);
    return st;
}
