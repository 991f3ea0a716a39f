/* bins.h: best-fit packing. Which pieces of documents share a sample of T tokens, kept in PREFIX.pack.
 *
 * A document longer than T is cut into pieces of T and a rest. Pieces go, longest first, each into the bin
 * with the least room that still holds it; equal pieces go in corpus order, so the result depends on nothing
 * else.
 *
 * PREFIX.pack, little-endian: 8 bytes "MTPACK\0\0", then u64 version = 1, T, bins, pieces, tokens and
 * documents of the index it was made for; i64[bins + 1] number of the first piece of each bin; i64[pieces]
 * token positions; i32[pieces] lengths. Every array is aligned to its elements. */
#ifndef MT_DATA_BINS_H
#define MT_DATA_BINS_H
#include "base/status.h"
#include "data/index.h"
#include "data/mapped.h"

#include <stdint.h>

enum { MT_BINS_HEADER_BYTES = 56, MT_BINS_MAX_LENGTH = 1 << 24 };
#define MT_BINS_MAGIC "MTPACK\0" /* with its final NUL: 8 bytes */

typedef struct mt_bins {
    char *path; /* owned; for messages */
    mt_mapped file;
    int64_t seq_len, n_bins, n_pieces;
    const int64_t *first, *start; /* [n_bins + 1] piece numbers, [n_pieces] token positions; in the file */
    const int32_t *length;        /* [n_pieces] */
} mt_bins;

/* Packs the documents of `x` into bins of `seq_len` tokens (1 to MT_BINS_MAX_LENGTH) and writes PREFIX.pack.
 * Memory: 44 bytes a piece and 8 a token of seq_len; time O(pieces * log seq_len). */
MT_MUST_USE mt_status mt_bins_write(const mt_index *x, const char *prefix, int64_t seq_len, mt_err *e);

/* Opens PREFIX.pack and validates it against the index and `seq_len`. MT_DATA names the entry that is
 * wrong. */
MT_MUST_USE mt_status mt_bins_open(mt_bins *b, const mt_index *x, const char *prefix, int64_t seq_len,
                                   mt_err *e);
void mt_bins_close(mt_bins *b);
/* Validates b->file and fills the rest. `seq_len` 0 accepts any. */
MT_MUST_USE mt_status mt_bins_parse(mt_bins *b, const mt_index *x, int64_t seq_len, mt_err *e);
#endif
