/* text.h: bytes that grow, and files read into them. */
#ifndef MT_BASE_TEXT_H
#define MT_BASE_TEXT_H
#include <stdint.h>

#include "base/status.h"

struct mt_text {
    char *at; /* owned; NULL: nothing was ever added */
    int64_t bytes, room;
};
/* IO: no memory. */
MT_MUST_USE mt_status mt_text_append(struct mt_text *t, const char *from, int64_t bytes, mt_err *e);
/* All of a file of at most `most` bytes, appended; a 0 follows it, which does not count. `code` where it cannot be opened or has
 * more; IO: no memory, or it cannot be read. */
MT_MUST_USE mt_status mt_text_read(struct mt_text *t, const char *path, int64_t most, mt_status code,
                                   mt_err *e);
void mt_text_release(struct mt_text *t);
#endif
