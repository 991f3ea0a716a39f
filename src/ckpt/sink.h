/* sink.h: bytes on their way to a new file, by whole chunks, past the system's cache where it allows that. */
#ifndef MT_CKPT_SINK_H
#define MT_CKPT_SINK_H
#include "ckpt/source.h"
#include "ckpt/sum.h"

struct mt_sink {
    int fd; /* -1: no file is open */
    char path[MT_SOURCE_FILE];
    char *chunk; /* owned */
    int64_t fill, at;
    struct mt_sum *whole; /* owned: of all bytes of the file so far */
};
/* Buffers, no file. IO: no memory. mt_sink_release is due even so. */
MT_MUST_USE mt_status mt_sink_init(struct mt_sink *k, mt_err *e);
/* A file that is still open stays as it is. */
void mt_sink_release(struct mt_sink *k);
/* A new file in the place of any other, of so many bytes in the end; `path` is put into k by the caller. */
MT_MUST_USE mt_status mt_sink_open(struct mt_sink *k, int64_t bytes, mt_err *e);
/* Where the next bytes belong: room for *room of them, 1 or more. They count with mt_sink_took. */
void *mt_sink_room(struct mt_sink *k, int64_t *room);
MT_MUST_USE mt_status mt_sink_took(struct mt_sink *k, int64_t bytes, mt_err *e);
MT_MUST_USE mt_status mt_sink_put(struct mt_sink *k, const void *p, int64_t bytes, mt_err *e);
/* All of it is on the disk; closes the file, also after a failure. */
MT_MUST_USE mt_status mt_sink_end(struct mt_sink *k, mt_err *e);
#endif
