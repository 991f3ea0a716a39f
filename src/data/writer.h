/* writer.h: writes a PREFIX.idx + PREFIX.bin pair, one sequence per document, in the format of index.h.
 *
 * Tokens stream to PREFIX.bin.tmp; lengths are kept in memory (4 bytes a document). Closing renames the
 * .bin and then the .idx, so a PREFIX.idx never describes tokens that are not there. */
#ifndef MT_DATA_WRITER_H
#define MT_DATA_WRITER_H
#include "base/status.h"

#include <stdint.h>

typedef struct mt_index_writer mt_index_writer;

/* A vocabulary below 65,500 is stored as u16, any other as i32, as Megatron's writer does. */
MT_MUST_USE mt_status mt_index_writer_open(mt_index_writer **out, const char *prefix, int64_t vocab,
                                           mt_err *e);
/* Appends tokens to the open document; ids must be in [0, vocab). */
MT_MUST_USE mt_status mt_index_writer_tokens(mt_index_writer *w, const int32_t *tokens, int64_t n, mt_err *e);
/* Ends the open document, which may be empty. MT_DATA past 2^31 - 1 tokens, the format's limit of a
 * sequence. */
MT_MUST_USE mt_status mt_index_writer_end_document(mt_index_writer *w, mt_err *e);
/* Writes the index, puts both files in place and frees `w`, also on failure. */
MT_MUST_USE mt_status mt_index_writer_close(mt_index_writer *w, mt_err *e);
/* Frees `w` and removes what it wrote; NULL is allowed. */
void mt_index_writer_discard(mt_index_writer *w);
#endif
