/* direct.h: a large file written past the system's cache where the file system allows it, else through it. */
#ifndef MT_CKPT_DIRECT_H
#define MT_CKPT_DIRECT_H
#include <stdint.h>

#include "base/status.h"

/* A new file in the place of any other, with room for so many bytes where the file system can say so beforehand. *fd -1 after
 * a failure. */
MT_MUST_USE mt_status mt_direct_open(int *fd, const char *path, int64_t bytes, mt_err *e);
/* p, n and at: multiples of MT_PART_ALIGN. What lies behind the file's end goes with mt_direct_finish. */
MT_MUST_USE mt_status mt_direct_write(int fd, const char *path, const char *p, int64_t n, int64_t at,
                                      mt_err *e);
/* The file has so many bytes, and they are on the disk. */
MT_MUST_USE mt_status mt_direct_finish(int fd, const char *path, int64_t bytes, mt_err *e);
/* A finished file is read from the disk, through a buffer of `room` bytes, which like its address is a multiple of MT_PART_ALIGN: IO
 * unless its checksum is xxh3. Ends early, with OK, when the turn is over. */
struct mt_turn;
MT_MUST_USE mt_status mt_direct_check(const char *path, int64_t bytes, uint64_t xxh3, char *buffer,
                                      int64_t room, const struct mt_turn *turn, mt_err *e);
#endif
