/* zst.h: a text file for reading, decompressed on the way if its name ends with .zst. */
#ifndef MT_DATA_ZST_H
#define MT_DATA_ZST_H
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct mt_zst;
struct mt_input {
    FILE *file;         /* for fread and getline */
    struct mt_zst *zst; /* NULL: it is not compressed */
    const char *path;   /* borrowed */
};
/* DATA: it cannot be opened. */
MT_MUST_USE mt_status mt_input_open(struct mt_input *in, const char *path, mt_err *e);
/* After the last read: DATA if the compressed stream is damaged or ends early, IO if the system did not let it be read. */
MT_MUST_USE mt_status mt_input_check(const struct mt_input *in, mt_err *e);
int64_t mt_input_bytes(const struct mt_input *in); /* read from the file so far */
void mt_input_close(struct mt_input *in);
/* The name without .zst, in bytes. */
int64_t mt_input_stem(const char *path);
#endif
