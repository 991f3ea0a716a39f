/* packer.h: documents into a token index, encoded by several threads and written in the order in which they came. */
#ifndef MT_DATA_PACKER_H
#define MT_DATA_PACKER_H
#include "data/writer.h"
#include "tokenizer/tokenizer.h"

struct mt_packer_options {
    const mt_tokenizer *tokenizer; /* NULL: a token a byte */
    bool specials;                 /* as mt_encoder_open's */
    int64_t eod;                   /* id put behind each document; -1: none */
    const char *json_key;          /* of the text, in documents that are JSON objects */
    int threads;                   /* 1 or more */
};
struct mt_packer_counts {
    int64_t documents, tokens, empty; /* empty documents are left out */
    int64_t bytes;                    /* of text that was given */
};
struct mt_packer;

/* Writes to a writer of the caller's. mt_packer_close is due whatever came of it. */
MT_MUST_USE mt_status mt_packer_open(struct mt_packer **out, mt_index_writer *writer,
                                     const struct mt_packer_options *o, mt_err *e);
/* Bytes of the open document. */
MT_MUST_USE mt_status mt_packer_add(struct mt_packer *p, const char *bytes, int64_t n, mt_err *e);
int64_t mt_packer_open_bytes(const struct mt_packer *p);
/* Ends it. json: it is a JSON object. It begins at that line of that file, whose path is borrowed until
 * mt_packer_finish. The first failure in the order of documents is met here or later. */
MT_MUST_USE mt_status mt_packer_end(struct mt_packer *p, bool json, const char *path, int64_t line,
                                    mt_err *e);
/* Waits until all is written. */
MT_MUST_USE mt_status mt_packer_finish(struct mt_packer *p, struct mt_packer_counts *counts, mt_err *e);
const struct mt_packer_counts *mt_packer_counts(const struct mt_packer *p); /* so far */
void mt_packer_close(struct mt_packer *p);                                  /* NULL is fine */
#endif
