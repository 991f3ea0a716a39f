/* mapped.h: a file mapped read-only. */
#ifndef MT_DATA_MAPPED_H
#define MT_DATA_MAPPED_H
#include "base/status.h"

#include <stdint.h>

typedef struct mt_mapped {
    const uint8_t *at; /* `bytes` bytes; NULL for an empty file */
    int64_t bytes;
    int fd; /* kept open so that mt_mapped_check can ask for the size again */
} mt_mapped;

/* Maps `path`. MT_DATA when it is missing or not a regular file, MT_IO when the system refuses the
 * mapping. */
MT_MUST_USE mt_status mt_mapped_open(mt_mapped *m, const char *path, mt_err *e);
/* MT_DATA when the file has become shorter since it was opened. Touching a page past the end of a mapped file
 * raises SIGBUS, so readers ask before each batch; a file cut between the question and the read still ends
 * the process. Data files must not be changed while a run reads them. */
MT_MUST_USE mt_status mt_mapped_check(const mt_mapped *m, const char *path, mt_err *e);
/* Unmaps; a zeroed mt_mapped is allowed. */
void mt_mapped_close(mt_mapped *m);
#endif
