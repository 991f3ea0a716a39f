/* sums.h: rank-*.json: what a rank wrote of each tensor, with checksums. */
#ifndef MT_CKPT_SUMS_H
#define MT_CKPT_SUMS_H
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { MT_TENSOR_NAME = 112 }; /* bytes of a tensor's name, with its end */

struct mt_sums_entry {
    const char *key;         /* NAME, or NAME@ROW */
    bool whole;              /* version 1: all of a tensor, whose shape is in the header alone */
    int64_t rows, cols, row; /* of the whole tensor, cols 0: a vector; the first row that is here */
    uint64_t xxh3;
};
struct mt_sums {
    struct cJSON *json; /* owned: holds the keys */
    bool has_file;      /* it tells of the file beside it (version 2): */
    int64_t bytes;
    uint64_t xxh3;
    struct mt_sums_entry *entry; /* owned: n of them, by key */
    int64_t n;
};
/* Of bytes in memory; name stands for them in messages. A failure (CKPT, which names the key; IO: no memory) leaves nothing to
 * release. */
MT_MUST_USE mt_status mt_sums_parse(struct mt_sums *s, const char *name, const void *text, int64_t bytes,
                                    mt_err *e);
void mt_sums_release(struct mt_sums *s);
/* The name in a key, to name[MT_TENSOR_NAME]; *row: behind an '@', else 0. False: too long, or not printable ASCII, or no plain
 * number behind the '@'. */
bool mt_sums_key(const char *key, char *name, int64_t *row);
#endif
