/* file.h: whole files, safely: written with fsync, folders listed and removed. */
#ifndef MT_CKPT_FILE_H
#define MT_CKPT_FILE_H
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A new file in the place of any other, all of it at once, on the disk: nothing is left after a failure. Does not allocate. */
MT_MUST_USE mt_status mt_write_file(const char *path, const void *p, int64_t bytes, uint64_t *xxh3,
                                    mt_err *e);

/* The first `bytes` bytes of a file, to a new one in the place of any other, on the disk. */
MT_MUST_USE mt_status mt_copy_file(const char *to, const char *from, int64_t bytes, mt_err *e);

/* Size and checksum. CKPT: there is no such file. IO: the system did not let it be read. */
MT_MUST_USE mt_status mt_hash_file(const char *path, int64_t *bytes, uint64_t *xxh3, mt_err *e);

/* mkdir -p; what it made is on the disk when it returns. */
MT_MUST_USE mt_status mt_make_folders(const char *path, mt_err *e);
MT_MUST_USE mt_status mt_sync_folder(const char *path, mt_err *e);
/* A folder of files, without subfolders; nothing there is fine. The file `first` (NULL: none) is gone from
 * the disk before any other: without it the rest counts for nothing. A link to a folder is refused. */
MT_MUST_USE mt_status mt_remove_folder(const char *path, const char *first, mt_err *e);
uint64_t mt_xxh3(const void *p, int64_t bytes);
#endif
