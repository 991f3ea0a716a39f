/* outfile.h: a file written beside its final name and put in place when complete. */
#ifndef MT_DATA_OUTFILE_H
#define MT_DATA_OUTFILE_H
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

typedef struct mt_outfile {
    FILE *file;
    char *path, *temporary; /* owned */
} mt_outfile;

/* Opens PREFIX + suffix + ".tmp" for writing. */
MT_MUST_USE mt_status mt_outfile_open(mt_outfile *f, const char *prefix, const char *suffix, mt_err *e);
MT_MUST_USE mt_status mt_outfile_write(mt_outfile *f, const void *data, int64_t bytes, mt_err *e);
/* Flushes to the disk and closes; the temporary name stays. */
MT_MUST_USE mt_status mt_outfile_finish(mt_outfile *f, mt_err *e);
/* Renames to the final name. */
MT_MUST_USE mt_status mt_outfile_place(mt_outfile *f, mt_err *e);
/* Closes, removes the temporary file if it was not placed, frees; a zeroed mt_outfile is allowed. */
void mt_outfile_release(mt_outfile *f);
#endif
