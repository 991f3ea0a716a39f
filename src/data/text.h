/* text.h: packs text and JSON-lines files, compressed by zstd or not, into a token index. */
#ifndef MT_DATA_TEXT_H
#define MT_DATA_TEXT_H
#include <stdint.h>

#include "base/progress.h"
#include "base/status.h"
#include "tokenizer/tokenizer.h"

/* What a document of a text file is: the file, a line, or a paragraph between blank lines. A JSON-lines file
 * holds one object a line, each a document. */
typedef enum mt_document_unit { MT_DOCUMENT_FILE, MT_DOCUMENT_LINE, MT_DOCUMENT_BLANK } mt_document_unit;

typedef struct mt_text_options {
    const char *const *inputs; /* [n_inputs] paths */
    int64_t n_inputs;
    const char *prefix; /* of the files to write */
    const char *
        jsonl_key; /* all inputs are JSON lines, with the text under this key; NULL: those named *.jsonl or *.jsonl.zst,
                            * with the key "text" */
    mt_document_unit unit;         /* of text files */
    int64_t eod;                   /* id put behind each document; -1: none */
    const mt_tokenizer *tokenizer; /* borrowed; NULL: a token a byte */
    bool specials_are_text;        /* what spells a special token is text */
    int threads;                   /* that encode; 0: one */
    struct mt_progress *progress;  /* of the inputs as they lie on the disk, or NULL */
} mt_text_options;

typedef struct mt_text_counts {
    int64_t documents, tokens, empty; /* empty documents are left out */
    int64_t bytes;                    /* of text */
    int64_t vocab;                    /* 256, or the tokenizer's; or eod + 1 if that is more */
} mt_text_counts;

/* MT_DATA names file and line of bad JSON, and of a document on which a regular expression gave up; nothing is left behind on
 * failure. A document is in memory as a whole, its text and its tokens. */
MT_MUST_USE mt_status mt_text_pack(const mt_text_options *o, mt_text_counts *counts, mt_err *e);
#endif
