/* read.h: bytes of files, by pread: a failing disk gives an error, where a map would end the process. */
#ifndef MT_CKPT_READ_H
#define MT_CKPT_READ_H
#include <stdint.h>

#include "base/status.h"

enum {
    MT_READ_CHUNK = 2 << 20
}; /* bytes of one read: what fits a core's cache, and more than a disk asks for */

/* CKPT: there is no such file, or it is something else. IO: the system did not let it be read. The caller closes fd. */
MT_MUST_USE mt_status mt_read_open(int *fd, const char *path, int64_t *bytes, mt_err *e);
/* All of [at, at + bytes). CKPT: the file ends before. Threads may share a file. */
MT_MUST_USE mt_status mt_read_at(int fd, const char *path, int64_t at, void *to, int64_t bytes, mt_err *e);
/* A whole file of at most `most` bytes, malloc'ed, the caller's; a 0 follows it. CKPT: it has more. */
MT_MUST_USE mt_status mt_read_whole(const char *path, int64_t most, char **text, int64_t *bytes, mt_err *e);
/* [at, at + bytes) in parts of at most `room` bytes through `buffer`; each part goes to `take` with its offset from `at`. */
MT_MUST_USE mt_status mt_read_parts(int fd, const char *path, int64_t at, int64_t bytes, void *buffer,
                                    int64_t room,
                                    void (*take)(void *arg, const void *p, int64_t from, int64_t bytes),
                                    void *arg, mt_err *e);
#endif
