/* encode.c: a text into ids: added tokens are cut out, the rest is normalized, split, and each word merged. */
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tokenizer/table.h"
#include "tokenizer/utf8.h"
#include "tokenizer/word.h"

/* Words come again: those of a few bytes that become a few tokens are remembered, the last one of each slot. */
enum { CACHE_SLOTS = 1 << 16, CACHE_BYTES = 26, CACHE_IDS = 9 };
struct cached {
    uint8_t bytes, n;
    char text[CACHE_BYTES];
    int32_t id[CACHE_IDS];
};

struct mt_encoder {
    const mt_tokenizer *t;
    const struct mt_trie *raw, *normal;
    struct mt_text valid, composed; /* of the text, and of a part of it */
    int32_t *ids;                   /* owned */
    int64_t n, room;
    struct mt_word_room word;
    struct cached *cache;                    /* owned */
    pcre2_match_data *match[MT_MOST_SPLITS]; /* owned */
    pcre2_match_context *context;            /* owned */
    pcre2_jit_stack *stack;                  /* owned */
};

static mt_status open_matching(struct mt_encoder *x, mt_err *e)
{
    x->context = pcre2_match_context_create(NULL);
    x->stack = pcre2_jit_stack_create(1 << 15, 1 << 24, NULL);
    bool ok = x->context && x->stack;
    for (int i = 0; i < x->t->n_splits; i++) {
        x->match[i] = pcre2_match_data_create_from_pattern(x->t->split[i], NULL);
        ok = ok && x->match[i];
    }
    MT_REQUIRE(ok, e, MT_IO, "no memory for matching regular expressions");
    pcre2_jit_stack_assign(x->context, NULL, x->stack);
    return MT_OK;
}

mt_status mt_encoder_open(mt_encoder **out, const mt_tokenizer *t, bool specials, mt_err *e)
{
    struct mt_encoder *x = calloc(1, sizeof *x);
    *out = x;
    MT_REQUIRE(x, e, MT_IO, "no memory");
    x->t = t;
    x->raw = specials ? &t->raw : &t->raw_text;
    x->normal = specials ? &t->normal : &t->normal_text;
    x->cache = calloc(CACHE_SLOTS, sizeof *x->cache);
    mt_status st = x->cache ? open_matching(x, e) : mt_err_set(e, MT_IO, "no memory for the cache of words");
    if (st != MT_OK) {
        mt_encoder_close(x);
        *out = NULL;
    }
    return st;
}
void mt_encoder_close(mt_encoder *x)
{
    if (!x) return;
    for (int i = 0; i < MT_MOST_SPLITS; i++) pcre2_match_data_free(x->match[i]);
    pcre2_match_context_free(x->context);
    pcre2_jit_stack_free(x->stack);
    mt_text_release(&x->valid);
    mt_text_release(&x->composed);
    mt_word_room_release(&x->word);
    free(x->cache);
    free(x->ids);
    free(x);
}

/* ---- a word ---- */
static mt_status reserve(struct mt_encoder *x, int64_t more, mt_err *e)
{
    if (x->n + more <= x->room) return MT_OK;
    int64_t room = 2 * x->room + more + 1024;
    int32_t *ids = realloc(x->ids, (size_t)room * sizeof *ids);
    MT_REQUIRE(ids, e, MT_IO, "no memory for %lld tokens", (long long)room);
    x->ids = ids;
    x->room = room;
    return MT_OK;
}

static mt_status merge_word(struct mt_encoder *x, const char *text, int64_t bytes, mt_err *e)
{
    int32_t whole = x->t->ignore_merges ? mt_words_find(&x->t->words, text, bytes) : -1;
    if (whole >= 0) {
        x->ids[x->n++] = whole;
        return MT_OK;
    }
    int64_t n;
    MT_TRY(mt_word_merge(&x->word, x->t, text, bytes, x->ids + x->n, &n, e));
    x->n += n;
    return MT_OK;
}

static mt_status add_word(struct mt_encoder *x, const char *text, int64_t bytes, mt_err *e)
{
    MT_TRY(reserve(x, bytes, e));
    if (bytes == 1) {
        x->ids[x->n++] = x->t->of_byte[(unsigned char)*text];
        return MT_OK;
    }
    if (bytes > CACHE_BYTES) return merge_word(x, text, bytes, e);
    struct cached *c = &x->cache[XXH3_64bits(text, (size_t)bytes) & (CACHE_SLOTS - 1)];
    if (c->bytes != bytes || memcmp(c->text, text, (size_t)bytes)) {
        int64_t from = x->n;
        MT_TRY(merge_word(x, text, bytes, e));
        if (x->n - from > CACHE_IDS) return MT_OK;
        c->bytes = (uint8_t)bytes;
        c->n = (uint8_t)(x->n - from);
        memcpy(c->text, text, (size_t)bytes);
        memcpy(c->id, x->ids + from, c->n * sizeof *c->id);
        return MT_OK;
    }
    for (int i = 0; i < c->n; i++) x->ids[x->n++] = c->id[i];
    return MT_OK;
}

/* ---- splits ---- */
static mt_status next_match(struct mt_encoder *x, int level, const char *text, int64_t bytes, int64_t from,
                            int64_t match[2], mt_err *e)
{
    int rc = pcre2_match(x->t->split[level], (PCRE2_SPTR)text, (PCRE2_SIZE)bytes, (PCRE2_SIZE)from,
                         PCRE2_NO_UTF_CHECK, x->match[level], x->context);
    match[0] = match[1] = bytes;
    if (rc == PCRE2_ERROR_NOMATCH) return MT_OK;
    if (rc < 0) {
        PCRE2_UCHAR why[200] = "";
        pcre2_get_error_message(rc, why, sizeof why);
        MT_FAIL(e, MT_DATA,
                "splitting a text of %lld bytes at byte %lld by regular expression %d of '%s': %s",
                (long long)bytes, (long long)from, level, x->t->name, (const char *)why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(x->match[level]);
    match[0] = (int64_t)at[0];
    match[1] = (int64_t)at[1];
    return MT_OK;
}

/* Matches and what lies between them go to the next level one by one, each a text of its own: a look-ahead ends with it. */
static mt_status split(struct mt_encoder *x, int level, const char *text, int64_t bytes, mt_err *e)
{
    if (level == x->t->n_splits) return add_word(x, text, bytes, e);
    for (int64_t done = 0, from = 0; done < bytes;) {
        int64_t match[2];
        MT_TRY(next_match(x, level, text, bytes, from, match, e));
        if (match[1] == match[0] && match[0] < bytes) { /* of nothing */
            from = match[0] + mt_utf8_length(text[match[0]]);
            continue;
        }
        if (match[0] > done) MT_TRY(split(x, level + 1, text + done, match[0] - done, e));
        if (match[1] > match[0]) MT_TRY(split(x, level + 1, text + match[0], match[1] - match[0], e));
        done = from = match[1];
    }
    return MT_OK;
}

/* ---- added tokens ---- */
static bool is_space(const char *p)
{
    return (*p >= 9 && *p <= 13) || *p == ' ';
}

/* Calls `rest` with what lies between added tokens, and puts these. */
static mt_status cut(struct mt_encoder *x, const struct mt_trie *trie, const char *text, int64_t bytes,
                     mt_status (*rest)(struct mt_encoder *x, const char *text, int64_t bytes, mt_err *e),
                     mt_err *e)
{
    int64_t done = 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (!trie->begins[(unsigned char)text[i]]) continue;
        int32_t k = mt_trie_longest(trie, text + i, bytes - i);
        if (k < 0) continue;
        const struct mt_added *a = &x->t->added[k];
        int64_t begin = i, end = i + a->bytes;
        while (a->strip_left && begin > done && is_space(text + begin - 1)) begin--;
        while (a->strip_right && end < bytes && is_space(text + end)) end++;
        if (begin > done) MT_TRY(rest(x, text + done, begin - done, e));
        MT_TRY(reserve(x, 1, e));
        x->ids[x->n++] = a->id;
        done = end;
        i = end - 1;
    }
    return bytes > done ? rest(x, text + done, bytes - done, e) : MT_OK;
}

static mt_status encode_plain(struct mt_encoder *x, const char *text, int64_t bytes, mt_err *e)
{
    return split(x, 0, text, bytes, e);
}
static mt_status encode_raw(struct mt_encoder *x, const char *text, int64_t bytes, mt_err *e)
{
    if (x->t->nfc) {
        x->composed.bytes = 0;
        MT_TRY(mt_utf8_nfc(&x->composed, text, bytes, e));
        text = x->composed.at;
        bytes = x->composed.bytes;
    }
    return cut(x, x->normal, text, bytes, encode_plain, e);
}

mt_status mt_encode(mt_encoder *x, const char *text, int64_t bytes, const int32_t **ids, int64_t *n,
                    mt_err *e)
{
    x->n = 0;
    if (mt_utf8_valid(text, bytes) < bytes) {
        x->valid.bytes = 0;
        MT_TRY(mt_utf8_repair(&x->valid, text, bytes, e));
        text = x->valid.at;
        bytes = x->valid.bytes;
    }
    mt_status st = cut(x, x->raw, text, bytes, encode_raw, e);
    *ids = x->ids;
    *n = x->n;
    return st;
}
