/* table.h: what a tokenizer.json holds, made ready for encoding: tokens by their bytes, merges by their pair, splits, added
 * tokens. */
#ifndef MT_TOKENIZER_TABLE_H
#define MT_TOKENIZER_TABLE_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer/tokenizer.h"

enum { MT_MOST_SPLITS = 16 };

/* Tokens by their bytes: open addressing, the bytes in one text. */
struct mt_words {
    struct mt_word {
        int64_t at;
        int32_t bytes, id; /* id -1: free */
    } * slot;              /* owned */
    int64_t slots, n;      /* a power of two */
    char *text;            /* owned */
    int64_t text_bytes;
};
/* Room for `most` tokens of `bytes` bytes together. IO: no memory. */
MT_MUST_USE mt_status mt_words_open(struct mt_words *w, int64_t most, int64_t bytes, mt_err *e);
/* False: there is one of these bytes. */
bool mt_words_add(struct mt_words *w, const char *bytes, int64_t n, int32_t id);
int32_t mt_words_find(const struct mt_words *w, const char *bytes, int64_t n); /* -1: none */
void mt_words_close(struct mt_words *w);

/* Merges by the two ids: the lower the rank, the sooner. */
struct mt_merge {
    uint64_t pair; /* left << 32 | right; all ones: free */
    int32_t rank, id;
};
struct mt_merges {
    struct mt_merge *slot; /* owned */
    int64_t slots, n;
};
MT_MUST_USE mt_status mt_merges_open(struct mt_merges *m, int64_t most, mt_err *e);
bool mt_merges_add(struct mt_merges *m, int32_t left, int32_t right, int32_t rank, int32_t id);
static inline const struct mt_merge *mt_merges_find(const struct mt_merges *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, h = pair * UINT64_C(0x9E3779B97F4A7C15);
    for (int64_t i = (int64_t)(h >> 20) & (m->slots - 1);; i = (i + 1) & (m->slots - 1)) {
        if (m->slot[i].pair == pair) return &m->slot[i];
        if (m->slot[i].pair == UINT64_MAX) return NULL;
    }
}

/* Added tokens, found in text: a trie of bytes. */
struct mt_trie_node {
    int32_t child, sibling, token; /* 0: none; token -1: none, else a place in mt_tokenizer.added */
    unsigned char byte;
};
struct mt_trie {
    struct mt_trie_node *node; /* owned; [0] is the root */
    int64_t n;
    bool begins[256];
};
struct mt_added {
    char *text; /* owned */
    int32_t bytes, id;
    bool special, normalized, strip_left, strip_right;
};

struct mt_tokenizer {
    char *name;              /* owned: of the file, for messages */
    struct mt_words words;   /* of the vocabulary, by the bytes they stand for */
    struct mt_words written; /* of the vocabulary, as the file writes them */
    struct mt_merges merges;
    int32_t of_byte[256];
    bool nfc, ignore_merges;
    pcre2_code *split[MT_MOST_SPLITS]; /* owned */
    int n_splits;
    struct mt_added *added; /* owned */
    int64_t n_added;
    struct mt_trie raw,
        normal; /* of tokens found before and after normalization, and, [1], without the special ones */
    struct mt_trie raw_text, normal_text;
    int64_t vocab;
};
/* The longest added token that the text begins with: its place, or -1. */
int32_t mt_trie_longest(const struct mt_trie *t, const char *text, int64_t bytes);
MT_MUST_USE mt_status mt_trie_make(struct mt_trie *t, const struct mt_tokenizer *k, bool normalized,
                                   bool specials, mt_err *e);
#endif
