#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/share.h"
#include "ckpt/tensors.h"

/* Closes a memory stream: whether all that was printed into it is there. */
static bool finish(FILE *f)
{
    bool ok = !ferror(f);
    return !fclose(f) && ok;
}

/* The header with its length in front; names are plain words and dots, which JSON need not escape. */
static mt_status header_of(const struct mt_ckpt_items *x, int rank, int world, char **text, size_t *bytes,
                           mt_err *e)
{
    uint64_t length = 0;
    int64_t at = 0;
    FILE *f = open_memstream(text, bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for the header of %" PRId64 " tensors", x->n);
    fwrite(&length, 8, 1, f);
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\",\"moetitan\":\"1\",\"rank\":\"%d\",\"world\":\"%d\"}",
            rank, world);
    for (int64_t i = 0; i < x->n; i++) {
        const struct mt_ckpt_item *p = &x->item[i];
        int64_t end = at + mt_ckpt_item_bytes(p);
        fprintf(f, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRId64, p->name, p->rows);
        if (p->cols) fprintf(f, ",%" PRId64, p->cols);
        fprintf(f, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
        at = end;
    }
    putc('}', f);
    while (ftell(f) % 8) putc(' ', f); /* so that the tensors are aligned in the file */
    MT_REQUIRE(finish(f), e, MT_IO, "no memory for the header of %" PRId64 " tensors", x->n);
    length = *bytes - 8;
    memcpy(*text, &length, 8);
    return MT_OK;
}

/* A piece of this process; from memory that the host cannot read, so much at a time. */
static mt_status write_piece(struct mt_out *o, const struct mt_ckpt_piece *p, int64_t bytes, mt_err *e)
{
    enum { EACH = 4 << 20 };
    if (!p->ctx) return mt_out_write(o, p->data, bytes, e);
    char *buffer = malloc(EACH);
    MT_REQUIRE(buffer, e, MT_IO, "no memory for a buffer of %d bytes", EACH);
    mt_status st = MT_OK;
    for (int64_t at = 0; at < bytes && st == MT_OK; at += EACH) {
        int64_t n = bytes - at < EACH ? bytes - at : EACH;
        st = mt_copy_now(p->ctx, buffer, (const char *)p->data + at, n, e);
        if (st == MT_OK) st = mt_out_write(o, buffer, n, e);
    }
    free(buffer);
    return st;
}

/* A tensor's pieces, one behind the other, and the checksum of them all. */
static mt_status write_item(struct mt_out *o, const struct mt_ckpt_items *x, const struct mt_ckpt_item *i,
                            uint64_t *sum, mt_err *e)
{
    int64_t row = 0;
    mt_out_mark(o);
    for (const struct mt_ckpt_piece *p = &x->piece[i->first], *end = p + i->n; p < end; p++) {
        int64_t bytes = p->rows * mt_ckpt_row_bytes(i);
        if (p->copy) continue;
        MT_ASSERT(p->row0 == row);
        row += p->rows;
        MT_TRY(p->data ? write_piece(o, p, bytes, e) : mt_out_write(o, mt_ckpt_fetch(x, i, p), bytes, e));
    }
    MT_ASSERT(row == i->rows);
    *sum = mt_out_since_mark(o);
    return MT_OK;
}

static mt_status write_tensors(struct mt_out *o, const struct mt_ckpt_items *x, FILE *sums, mt_err *e)
{
    fprintf(sums, "{\"tensors\":{");
    for (int64_t i = 0; i < x->n; i++) {
        const struct mt_ckpt_item *p = &x->item[i];
        uint64_t sum;
        MT_TRY(write_item(o, x, p, &sum, e));
        fprintf(sums, "%s\"%s\":\"%016" PRIx64 "\"", i ? ",\n" : "\n", p->name, sum);
    }
    fprintf(sums, "}}\n");
    return MT_OK;
}

static mt_status write_all(struct mt_out *o, const struct mt_ckpt_items *x, const char *header,
                           size_t header_bytes, char **sums, mt_err *e)
{
    size_t sums_bytes;
    MT_TRY(mt_out_write(o, header, (int64_t)header_bytes, e));
    FILE *f = open_memstream(sums, &sums_bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for the checksums of %" PRId64 " tensors", x->n);
    mt_status st = write_tensors(o, x, f, e);
    if (!finish(f) && st == MT_OK)
        st = mt_err_set(e, MT_IO, "no memory for the checksums of %" PRId64 " tensors", x->n);
    return st;
}

static mt_status write_file(const char *path, const struct mt_ckpt_items *x, const char *header,
                            size_t header_bytes, int64_t *bytes, uint64_t *xxh3, char **sums, mt_err *e)
{
    struct mt_out o;
    MT_TRY(mt_out_open(&o, path, e));
    mt_status st = write_all(&o, x, header, header_bytes, sums, e);
    if (st != MT_OK) {
        mt_out_abandon(&o);
        return st;
    }
    *bytes = o.bytes;
    return mt_out_close(&o, xxh3, e);
}

mt_status mt_tensors_write(const char *path, const struct mt_ckpt_items *x, int rank, int world,
                           int64_t *bytes, uint64_t *xxh3, char **sums, mt_err *e)
{
    char *header = NULL;
    size_t header_bytes = 0;
    *sums = NULL;
    mt_status st = header_of(x, rank, world, &header, &header_bytes, e);
    if (st == MT_OK) st = write_file(path, x, header, header_bytes, bytes, xxh3, sums, e);
    free(header);
    if (st != MT_OK) {
        free(*sums);
        *sums = NULL;
    }
    return st;
}
