#include "ckpt/scan.h"

#include <unistd.h>

#include "ckpt/read.h"
#include "ckpt/sum.h"

mt_status mt_scan_open(struct mt_scan *r, const struct mt_source *s, const struct mt_stored_list *list,
                       mt_err *e)
{
    *r = (struct mt_scan){.s = s, .list = list, .sum = mt_sum_open(), .fd = -1, .file = -1};
    MT_REQUIRE(r->sum, e, MT_IO, "no memory to read '%s'", s->path);
    mt_scan_seek(r, 0, 0);
    return MT_OK;
}

void mt_scan_close(struct mt_scan *r)
{
    if (r->fd >= 0) close(r->fd);
    if (r->sum) mt_sum_close(r->sum);
    *r = (struct mt_scan){.fd = -1, .file = -1};
}

void mt_scan_seek(struct mt_scan *r, int64_t piece, int64_t row)
{
    r->piece = piece;
    r->done = piece < r->list->n ? row * mt_stored_row_bytes(&r->list->x[piece]) : 0;
    r->from_start = !r->done;
    mt_sum_reset(r->sum);
}

static mt_status open_file(struct mt_scan *r, int file, mt_err *e)
{
    int64_t bytes;
    if (r->file == file) return MT_OK;
    if (r->fd >= 0) close(r->fd);
    r->file = r->fd = -1;
    mt_source_tensors(r->s, file, r->path);
    MT_TRY(mt_read_open(&r->fd, r->path, &bytes, e));
    r->file = file;
    return MT_OK;
}

/* At most to the end of the piece at hand. */
static mt_status read_some(struct mt_scan *r, void *to, int64_t most, int64_t *got, mt_err *e)
{
    const struct mt_stored *x = &r->list->x[r->piece];
    int64_t all = x->n * mt_stored_row_bytes(x);
    *got = most < all - r->done ? most : all - r->done;
    MT_TRY(open_file(r, x->file, e));
    MT_TRY(mt_read_at(r->fd, r->path, x->at + r->done, to, *got, e));
    if (r->from_start) mt_sum_add(r->sum, to, *got);
    r->done += *got;
    if (r->done < all) return MT_OK;
    if (r->from_start) MT_TRY(mt_source_compare(x, r->path, mt_sum_value(r->sum), e));
    mt_scan_seek(r, r->piece + 1, 0);
    return MT_OK;
}

mt_status mt_scan_read(struct mt_scan *r, void *to, int64_t bytes, mt_err *e)
{
    char *p = to;
    while (bytes > 0) {
        int64_t got;
        MT_ASSERT(r->piece < r->list->n);
        MT_TRY(read_some(r, p, bytes, &got, e));
        p += got;
        bytes -= got;
    }
    return MT_OK;
}

mt_status mt_scan_finish(struct mt_scan *r, void *buffer, int64_t room, mt_err *e)
{
    int64_t piece = r->piece, got;
    while (r->from_start && r->done && r->piece == piece) MT_TRY(read_some(r, buffer, room, &got, e));
    return MT_OK;
}
