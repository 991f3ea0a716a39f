/* file.h: whole files, safely: written with fsync, read through mmap, folders listed and removed. */
#ifndef MT_CKPT_FILE_H
#define MT_CKPT_FILE_H
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A file being written: every byte passes through the checksum. */
struct mt_out {
    int fd;
    int64_t bytes;
    void *hash;       /* XXH3 state of all bytes; owned */
    void *part;       /* the same of the bytes since mt_out_mark; owned */
    const char *path; /* borrowed */
};
MT_MUST_USE mt_status mt_out_open(struct mt_out *o, const char *path, mt_err *e);
MT_MUST_USE mt_status mt_out_write(struct mt_out *o, const void *p, int64_t bytes, mt_err *e);
/* The checksum of what is written between a mark and the question. */
void mt_out_mark(struct mt_out *o);
uint64_t mt_out_since_mark(const struct mt_out *o);
/* fsync and close; *xxh3 of the whole file. */
MT_MUST_USE mt_status mt_out_close(struct mt_out *o, uint64_t *xxh3, mt_err *e);
/* After a failure of mt_out_write: closes and removes what was written. */
void mt_out_abandon(struct mt_out *o);
/* All of it at once: nothing is left after a failure. */
MT_MUST_USE mt_status mt_write_file(const char *path, const void *p, int64_t bytes, uint64_t *xxh3,
                                    mt_err *e);

struct mt_in {
    const unsigned char *data; /* NULL if the file is empty */
    int64_t bytes;
};
/* CKPT: there is no such file, or it is something else. IO: the system did not let it be read. */
MT_MUST_USE mt_status mt_in_open(struct mt_in *f, const char *path, mt_err *e);
void mt_in_close(struct mt_in *f);
/* Size and checksum by reading, which reports what a failing disk cannot give; a map would end the
 * process. */
MT_MUST_USE mt_status mt_hash_file(const char *path, int64_t *bytes, uint64_t *xxh3, mt_err *e);

/* mkdir -p; what it made is on the disk when it returns. */
MT_MUST_USE mt_status mt_make_folders(const char *path, mt_err *e);
MT_MUST_USE mt_status mt_sync_folder(const char *path, mt_err *e);
/* A folder of files, without subfolders; nothing there is fine. The file `first` (NULL: none) is gone from
 * the disk before any other: without it the rest counts for nothing. A link to a folder is refused. */
MT_MUST_USE mt_status mt_remove_folder(const char *path, const char *first, mt_err *e);
uint64_t mt_xxh3(const void *p, int64_t bytes);
#endif
