#include "ckpt/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece on its way into the order of the files. */
struct placed {
    const struct mt_ckpt_item *item;
    const struct mt_ckpt_piece *piece;
    int64_t when;
};

static int by_file(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->piece->rank != y->piece->rank) return x->piece->rank < y->piece->rank ? -1 : 1;
    if (x->when != y->when) return x->when < y->when ? -1 : 1;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return (x->piece->row0 > y->piece->row0) - (x->piece->row0 < y->piece->row0);
}

static int64_t place(const struct mt_ckpt_items *x, const int64_t *when, struct placed *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t k = x->item[i].first; k < x->item[i].first + x->item[i].n; k++)
            if (x->piece[k].data && !x->piece[k].copy && x->piece[k].rows)
                out[n++] = (struct placed){&x->item[i], &x->piece[k], when ? when[x->item[i].touch] : i};
    qsort(out, (size_t)n, sizeof *out, by_file);
    return n;
}

/* Names are plain words and dots, which JSON need not escape. */
static void print_key(FILE *f, const struct placed *p)
{
    fprintf(f, "\"%s", p->item->name);
    if (p->piece->rows != p->item->rows) fprintf(f, "@%" PRId64, p->piece->row0);
    putc('"', f);
}
static void print_shape(FILE *f, int64_t rows, int64_t cols)
{
    fprintf(f, "[%" PRId64, rows);
    if (cols) fprintf(f, ",%" PRId64, cols);
    putc(']', f);
}

static mt_status no_memory(int64_t n, mt_err *e)
{
    MT_FAIL(e, MT_IO, "no memory for the list of %" PRId64 " pieces of a checkpoint", n);
}

static mt_status print_head(struct mt_part_file *x, const struct placed *p, int world, mt_err *e)
{
    uint64_t length = 0;
    size_t bytes = 0;
    int64_t at = 0;
    FILE *f = open_memstream(&x->head, &bytes);
    if (!f) return no_memory(x->n, e);
    fwrite(&length, 8, 1, f);
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\",\"moetitan\":\"2\",\"rank\":\"%d\",\"world\":\"%d\"}",
            x->rank, world);
    for (const struct placed *end = p + x->n; p < end; p++) {
        int64_t next = at + p->piece->rows * mt_ckpt_row_bytes(p->item);
        putc(',', f);
        print_key(f, p);
        fprintf(f, ":{\"dtype\":\"F32\",\"shape\":");
        print_shape(f, p->piece->rows, p->item->cols);
        fprintf(f, ",\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, next);
        at = next;
    }
    putc('}', f);
    while (ftell(f) % MT_PART_ALIGN) putc(' ', f);
    bool ok = !ferror(f);
    if (fclose(f) || !ok) return no_memory(x->n, e);
    length = bytes - 8;
    memcpy(x->head, &length, 8);
    x->head_bytes = (int64_t)bytes;
    x->bytes = x->head_bytes + at;
    return MT_OK;
}

static int64_t print_sum(FILE *f)
{
    fprintf(f, "\"xxh3\": \"");
    int64_t at = ftell(f);
    fprintf(f, "%016d\"}", 0);
    return at;
}

static mt_status print_sums(struct mt_part_file *x, const struct placed *p, struct mt_part *part, mt_err *e)
{
    size_t bytes = 0;
    FILE *f = open_memstream(&x->sums, &bytes);
    if (!f) return no_memory(x->n, e);
    fprintf(f, "{\"file\": {\"bytes\": %" PRId64 ", ", x->bytes);
    x->sum_at = print_sum(f);
    fprintf(f, ", \"tensors\": {");
    for (int64_t i = 0; i < x->n; i++) {
        fprintf(f, i ? ",\n" : "\n");
        print_key(f, &p[i]);
        fprintf(f, ": {\"shape\": ");
        print_shape(f, p[i].item->rows, p[i].item->cols);
        fprintf(f, ", \"row\": %" PRId64 ", ", p[i].piece->row0);
        part[i].sum_at = print_sum(f);
    }
    fprintf(f, "}}\n");
    bool ok = !ferror(f);
    if (fclose(f) || !ok) return no_memory(x->n, e);
    x->sums_bytes = (int64_t)bytes;
    return MT_OK;
}

static mt_status add_file(struct mt_parts *x, const struct placed *p, int64_t first, int64_t n, int world,
                          mt_err *e)
{
    struct mt_part_file *f = &x->file[x->n_files++];
    *f = (struct mt_part_file){.rank = p->piece->rank, .first = first, .n = n};
    for (int64_t i = 0; i < n; i++)
        x->part[first + i] = (struct mt_part){.data = (const char *)p[i].piece->data,
                                              .bytes = p[i].piece->rows * mt_ckpt_row_bytes(p[i].item),
                                              .when = p[i].when};
    MT_TRY(print_head(f, p, world, e));
    MT_TRY(print_sums(f, p, x->part + first, e));
    x->bytes += f->bytes;
    return MT_OK;
}

static mt_status add_files(struct mt_parts *x, const struct placed *p, int world, mt_err *e)
{
    int64_t first = 0;
    int files = 0;
    for (int64_t i = 0; i < x->n; i++) files += !i || p[i].piece->rank != p[i - 1].piece->rank;
    x->file = calloc((size_t)files + 1, sizeof *x->file);
    if (!x->file) return no_memory(x->n, e);
    for (int64_t i = 1; i <= x->n; i++) {
        if (i < x->n && p[i].piece->rank == p[first].piece->rank) continue;
        MT_TRY(add_file(x, p + first, first, i - first, world, e));
        first = i;
    }
    return MT_OK;
}

mt_status mt_parts_open(struct mt_parts *x, const struct mt_ckpt_items *items, int world, const int64_t *when,
                        mt_err *e)
{
    struct placed *p = malloc((size_t)(items->n_pieces + 1) * sizeof *p);
    *x = (struct mt_parts){.reach = items->reach,
                           .part = calloc((size_t)items->n_pieces + 1, sizeof *x->part)};
    mt_status st = p && x->part ? MT_OK : no_memory(items->n_pieces, e);
    if (st == MT_OK) {
        x->n = place(items, when, p);
        st = add_files(x, p, world, e);
    }
    free(p);
    if (st != MT_OK) mt_parts_close(x);
    return st;
}

void mt_parts_close(struct mt_parts *x)
{
    for (int i = 0; i < x->n_files; i++) {
        free(x->file[i].head);
        free(x->file[i].sums);
    }
    free(x->file);
    free(x->part);
    *x = (struct mt_parts){0};
}

int64_t mt_parts_before(const struct mt_parts *x, int rank, int64_t when)
{
    for (int i = 0; i < x->n_files; i++) {
        const struct mt_part_file *f = &x->file[i];
        int64_t low = f->first, high = f->first + f->n;
        if (f->rank != rank) continue;
        while (low < high) {
            int64_t mid = (low + high) / 2;
            if (x->part[mid].when <= when)
                low = mid + 1;
            else
                high = mid;
        }
        return low > f->first ? low : 0;
    }
    return 0;
}
