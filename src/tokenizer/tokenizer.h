/* tokenizer.h: byte-level BPE as in a tokenizer.json of the Hugging Face tokenizers library: added tokens, normalization,
 * pre-tokenization by regular expressions, merges.
 *
 * What a file asks for and this reader lacks is an error that names it: another model than BPE, other normalizers than NFC, other
 * pre-tokenizers than Split (isolated), Digits and ByteLevel. Post-processors (templates that put tokens around a text) are not
 * applied: what stands between documents is for `data pack` to say. */
#ifndef MT_TOKENIZER_TOKENIZER_H
#define MT_TOKENIZER_TOKENIZER_H
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mt_tokenizer mt_tokenizer; /* read by any number of threads */
typedef struct mt_encoder mt_encoder;     /* one thread's */

/* DATA names the file and what is wrong with it, a key that is there twice, an id of two tokens and what follows the document
 * included; IO what the system refused. */
MT_MUST_USE mt_status mt_tokenizer_open(mt_tokenizer **out, const char *path, mt_err *e);
/* The same for bytes in memory; name stands for them in messages. */
MT_MUST_USE mt_status mt_tokenizer_parse(mt_tokenizer **out, const char *name, const char *text,
                                         int64_t bytes, mt_err *e);
void mt_tokenizer_close(mt_tokenizer *t); /* NULL is fine */
/* Ids are below it. */
int64_t mt_tokenizer_vocab(const mt_tokenizer *t);
/* Of a token as the file writes it, among the added ones or in the vocabulary; -1: there is none. */
int32_t mt_tokenizer_id(const mt_tokenizer *t, const char *token);

/* specials: text that spells a special token becomes that token, as the library has it; false: it is text like any other. The
 * tokenizer is borrowed. */
MT_MUST_USE mt_status mt_encoder_open(mt_encoder **out, const mt_tokenizer *t, bool specials, mt_err *e);
void mt_encoder_close(mt_encoder *x); /* NULL is fine */
/* Appends nothing to earlier results: *ids, *n are this text's, good until the next call. Bytes that are not UTF-8 are read as
 * U+FFFD, one for each longest part of a character. IO: no memory; DATA: a regular expression of the file, which is named, gave up. */
MT_MUST_USE mt_status mt_encode(mt_encoder *x, const char *text, int64_t bytes, const int32_t **ids,
                                int64_t *n, mt_err *e);
#endif
