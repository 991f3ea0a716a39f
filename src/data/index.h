/* index.h: token files PREFIX.idx + PREFIX.bin, in the format of Megatron's indexed dataset.
 *
 * PREFIX.idx, little-endian, without padding: 9 bytes "MMIDIDX\0\0", u64 version = 1, u8 token type,
 * u64 sequences S, u64 document entries D (one more than documents), i32[S] lengths in tokens,
 * i64[S] byte offsets into PREFIX.bin, i64[D] document boundaries as sequence numbers (first 0, last S),
 * optionally i8[S] modes, which are ignored. PREFIX.bin: the tokens, no header.
 *
 * Or a .bin of llm.c, which has no index: 256 i32, of which [0] is 20240520, [1] version 1 and the tokens u16, or [0] is 20240801, [1] version
 * 7 and the tokens u32, [2] tokens; then the tokens. It is read as one document, which data.eod divides.
 *
 * Sequences must lie in PREFIX.bin in order and without gaps, as every writer of the format leaves them. Then
 * the token position of a sequence is its offset over the token width, so positions and documents are found
 * by binary search in the mapped arrays, with no table in memory. */
#ifndef MT_DATA_INDEX_H
#define MT_DATA_INDEX_H
#include "base/status.h"
#include "data/mapped.h"

#include <stdbool.h>
#include <stdint.h>

/* Codes of the file format. Floating-point tokens (6, 7) are refused. */
typedef enum mt_token_type {
    MT_TOKEN_U8 = 1,
    MT_TOKEN_I8 = 2,
    MT_TOKEN_I16 = 3,
    MT_TOKEN_I32 = 4,
    MT_TOKEN_I64 = 5,
    MT_TOKEN_U16 = 8
} mt_token_type;

enum { MT_INDEX_HEADER_BYTES = 34 };
#define MT_INDEX_MAGIC "MMIDIDX\0" /* with its final NUL: 9 bytes */

typedef struct mt_index {
    char *idx_path, *bin_path; /* owned; for messages */
    mt_mapped idx_file, bin_file;
    mt_token_type type;
    int64_t width;                              /* bytes of a token */
    int64_t n_sequences, n_documents, n_tokens; /* all at least 1 after opening */
    const uint8_t *lengths, *offsets,
        *documents;        /* i32[S], i64[S], i64[D] in idx_file, unaligned; lengths NULL: no index */
    const uint8_t *tokens; /* in bin_file */
} mt_index;

/* Opens PREFIX.idx and PREFIX.bin (an ending .idx or .bin of `prefix` is dropped) and validates every entry; without a PREFIX.idx, a
 * PREFIX.bin of llm.c.
 * MT_DATA names the file, the entry and what is wrong with it. */
MT_MUST_USE mt_status mt_index_open(mt_index *x, const char *prefix, mt_err *e);
void mt_index_close(mt_index *x);

/* Validates x->idx_file against x->bin_file.bytes and fills the rest; the token bytes are not looked at.
 * Called by mt_index_open; separate so that bytes in memory can be validated. */
MT_MUST_USE mt_status mt_index_parse(mt_index *x, mt_err *e);

const char *mt_token_type_name(mt_token_type t); /* "u16" */

/* Whether the bytes begin as a .bin of llm.c does; and x from x->bin_file, which is one. */
bool mt_index_is_llmc(const mt_mapped *bin);
MT_MUST_USE mt_status mt_index_parse_llmc(mt_index *x, mt_err *e);

/* Length in tokens of sequence s. */
int64_t mt_index_length(const mt_index *x, int64_t s);
/* Token position at which document d begins, 0 <= d <= n_documents (the last gives n_tokens). */
int64_t mt_index_document_start(const mt_index *x, int64_t d);
/* The document that holds token position p, 0 <= p < n_tokens. Empty documents hold none. */
int64_t mt_index_document_at(const mt_index *x, int64_t p);

/* tokens[n] = those at positions [p, p + n), a range inside the file. MT_DATA when one is negative or not
 * below `vocab`: names file, document and position. */
MT_MUST_USE mt_status mt_index_read(const mt_index *x, int32_t *tokens, int64_t p, int64_t n, int64_t vocab,
                                    mt_err *e);
#endif
