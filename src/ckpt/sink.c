#include "ckpt/sink.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/direct.h"
#include "ckpt/parts.h"

enum { CHUNK = 512 * MT_PART_ALIGN };

mt_status mt_sink_init(struct mt_sink *k, mt_err *e)
{
    *k = (struct mt_sink){.fd = -1, .chunk = aligned_alloc(MT_PART_ALIGN, CHUNK), .whole = mt_sum_open()};
    MT_REQUIRE(k->chunk && k->whole, e, MT_IO, "no memory for a buffer of %d bytes to write files", CHUNK);
    return MT_OK;
}

void mt_sink_release(struct mt_sink *k)
{
    if (k->fd >= 0) close(k->fd);
    if (k->whole) mt_sum_close(k->whole);
    free(k->chunk);
    *k = (struct mt_sink){.fd = -1};
}

mt_status mt_sink_open(struct mt_sink *k, int64_t bytes, mt_err *e)
{
    k->fill = k->at = 0;
    mt_sum_reset(k->whole);
    return mt_direct_open(&k->fd, k->path, bytes, e);
}

static mt_status flush(struct mt_sink *k, mt_err *e)
{
    int64_t n = (k->fill + MT_PART_ALIGN - 1) / MT_PART_ALIGN * MT_PART_ALIGN;
    memset(k->chunk + k->fill, 0, (size_t)(n - k->fill));
    mt_sum_add(k->whole, k->chunk, k->fill);
    MT_TRY(mt_direct_write(k->fd, k->path, k->chunk, n, k->at, e));
    k->at += k->fill;
    k->fill = 0;
    return MT_OK;
}

void *mt_sink_room(struct mt_sink *k, int64_t *room)
{
    *room = CHUNK - k->fill;
    return k->chunk + k->fill;
}

mt_status mt_sink_took(struct mt_sink *k, int64_t bytes, mt_err *e)
{
    k->fill += bytes;
    return k->fill == CHUNK ? flush(k, e) : MT_OK;
}

mt_status mt_sink_put(struct mt_sink *k, const void *p, int64_t bytes, mt_err *e)
{
    for (int64_t at = 0, room; at < bytes;) {
        void *to = mt_sink_room(k, &room);
        int64_t n = bytes - at < room ? bytes - at : room;
        memcpy(to, (const char *)p + at, (size_t)n);
        at += n;
        MT_TRY(mt_sink_took(k, n, e));
    }
    return MT_OK;
}

mt_status mt_sink_end(struct mt_sink *k, mt_err *e)
{
    mt_status st = flush(k, e);
    if (st == MT_OK) st = mt_direct_finish(k->fd, k->path, k->at, e);
    close(k->fd);
    k->fd = -1;
    return st;
}
