/* load.c: a tokenizer.json into tables. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/regex.h"
#include "tokenizer/table.h"
#include "tokenizer/utf8.h"

enum { MOST_ID = 1 << 24 };

static const cJSON *get(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(o, key);
}
static bool is_true(const cJSON *o, const char *key)
{
    return cJSON_IsTrue(get(o, key));
}
static const char *text_of(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(get(o, key));
    return s ? s : "";
}
static bool is_type(const cJSON *o, const char *type)
{
    return !strcmp(text_of(o, "type"), type);
}

/* The library's look-up takes the first of two keys, other readers the last: `where` is refused if it has one twice. */
static mt_status check_keys(const cJSON *o, const char *where, mt_err *e)
{
    if (!cJSON_IsObject(o)) return MT_OK;
    for (const cJSON *j = o->child; j; j = j->next)
        for (const cJSON *k = j->next; k; k = k->next)
            MT_REQUIRE(strcmp(j->string, k->string), e, MT_DATA, "%s has the key \"%.60s\" twice", where,
                       j->string);
    return MT_OK;
}

/* ---- the alphabet of bytes ---- */
/* ByteLevel writes a byte as a character: printable ones of Latin-1 as themselves, the others, ascending, as U+0100 and on. */
static bool is_itself(int c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}
struct alphabet {
    int16_t byte_of[0x144]; /* -1: the character stands for no byte */
};
static void alphabet_make(struct alphabet *a)
{
    int next = 0x100;
    memset(a->byte_of, -1, sizeof a->byte_of);
    for (int b = 0; b < 256; b++) a->byte_of[is_itself(b) ? b : next++] = (int16_t)b;
}
/* The bytes that a token's text stands for, no longer than the text; -1: it has a character that stands for none. */
static int64_t bytes_of(const struct alphabet *a, const char *text, char *out)
{
    int64_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        int c = *p;
        if (c >= 0xC2 && c < 0xE0 && p[1])
            c = (c & 0x1F) << 6 | (*++p & 0x3F);
        else if (c >= 0x80)
            return -1;
        if (c >= 0x144 || a->byte_of[c] < 0) return -1;
        out[n++] = (char)a->byte_of[c];
    }
    return n;
}

/* ---- the vocabulary ---- */
static mt_status id_of(const cJSON *x, const char *token, int32_t *id, mt_err *e)
{
    double v = cJSON_IsNumber(x) ? x->valuedouble : -1;
    MT_REQUIRE(v >= 0 && v < MOST_ID && v == (double)(int32_t)v, e, MT_DATA,
               "token \"%.60s\": expected an id from 0 to %d", token, MOST_ID - 1);
    *id = (int32_t)v;
    return MT_OK;
}

static mt_status add_word(mt_tokenizer *t, const struct alphabet *a, const cJSON *x, char *room, mt_err *e)
{
    int32_t id;
    MT_TRY(id_of(x, x->string, &id, e));
    MT_REQUIRE(mt_words_add(&t->written, x->string, (int64_t)strlen(x->string), id), e, MT_DATA,
               "model.vocab has token \"%.60s\" twice", x->string);
    int64_t n = bytes_of(a, x->string, room);
    if (n > 0) (void)mt_words_add(&t->words, room, n, id); /* others are added tokens, met as such */
    if (n == 1) t->of_byte[(unsigned char)room[0]] = id;
    if (id >= t->vocab) t->vocab = id + 1;
    return MT_OK;
}

static mt_status read_vocab(mt_tokenizer *t, const cJSON *vocab, mt_err *e)
{
    struct alphabet a;
    int64_t n = 0, bytes = 0, longest = 0;
    MT_REQUIRE(cJSON_IsObject(vocab) && vocab->child, e, MT_DATA,
               "model.vocab is no object of tokens and ids");
    for (const cJSON *x = vocab->child; x; x = x->next, n++) {
        int64_t length = (int64_t)strlen(x->string);
        bytes += length;
        if (length > longest) longest = length;
    }
    alphabet_make(&a);
    MT_TRY(mt_words_open(&t->words, n, bytes, e));
    MT_TRY(mt_words_open(&t->written, n, bytes, e));
    char *room = malloc((size_t)longest + 1);
    mt_status st = room ? MT_OK : mt_err_set(e, MT_IO, "no memory");
    for (const cJSON *x = vocab->child; x && st == MT_OK; x = x->next) st = add_word(t, &a, x, room, e);
    free(room);
    MT_TRY(st);
    for (int b = 0; b < 256; b++)
        MT_REQUIRE(t->of_byte[b] >= 0, e, MT_DATA,
                   "model.vocab has no token for byte 0x%02x: this is no byte-level vocabulary", b);
    return MT_OK;
}

/* ---- merges: "left right" or ["left", "right"] ---- */
static bool merge_sides(const cJSON *x, const char *side[2], int64_t bytes[2])
{
    const char *text = cJSON_GetStringValue(x);
    if (text) {
        const char *space = strchr(text, ' ');
        if (!space) return false;
        side[0] = text;
        bytes[0] = space - text;
        side[1] = space + 1;
    } else {
        if (cJSON_GetArraySize(x) != 2) return false;
        side[0] = cJSON_GetStringValue(x->child);
        side[1] = cJSON_GetStringValue(x->child->next);
        if (!side[0] || !side[1]) return false;
        bytes[0] = (int64_t)strlen(side[0]);
    }
    bytes[1] = (int64_t)strlen(side[1]);
    return bytes[0] && bytes[1];
}

static mt_status add_merge(mt_tokenizer *t, const cJSON *x, int64_t rank, struct mt_text *joined, mt_err *e)
{
    const char *side[2];
    int64_t bytes[2];
    MT_REQUIRE(merge_sides(x, side, bytes), e, MT_DATA, "merge number %lld is no pair of tokens",
               (long long)rank);
    joined->bytes = 0;
    for (int i = 0; i < 2; i++) MT_TRY(mt_text_append(joined, side[i], bytes[i], e));
    int32_t left = mt_words_find(&t->written, side[0], bytes[0]),
            right = mt_words_find(&t->written, side[1], bytes[1]),
            both = mt_words_find(&t->written, joined->at, joined->bytes);
    MT_REQUIRE(left >= 0 && right >= 0 && both >= 0, e, MT_DATA,
               "merge number %lld, \"%.40s\" + \"%.40s\": %s is not in model.vocab", (long long)rank, side[0],
               side[1],
               left < 0    ? "the first"
               : right < 0 ? "the second"
                           : "what they make");
    MT_REQUIRE(mt_merges_add(&t->merges, left, right, (int32_t)rank, both), e, MT_DATA,
               "merge number %lld, \"%.40s\" + \"%.40s\", is there twice", (long long)rank, side[0], side[1]);
    return MT_OK;
}

static mt_status read_merges(mt_tokenizer *t, const cJSON *merges, mt_err *e)
{
    struct mt_text joined = {0};
    int64_t rank = 0;
    mt_status st = MT_OK;
    MT_REQUIRE(cJSON_IsArray(merges), e, MT_DATA, "model.merges is no list");
    MT_TRY(mt_merges_open(&t->merges, cJSON_GetArraySize(merges), e));
    for (const cJSON *x = merges->child; x && st == MT_OK; x = x->next)
        st = add_merge(t, x, rank++, &joined, e);
    mt_text_release(&joined);
    return st;
}

static mt_status read_model(mt_tokenizer *t, const cJSON *m, mt_err *e)
{
    MT_TRY(check_keys(m, "model", e));
    MT_REQUIRE(is_type(m, "BPE"), e, MT_DATA, "model.type is \"%.40s\"; only BPE is supported",
               text_of(m, "type"));
    MT_REQUIRE(!is_true(m, "byte_fallback"), e, MT_DATA,
               "model.byte_fallback is not supported, only byte-level vocabularies are");
    MT_REQUIRE(!text_of(m, "continuing_subword_prefix")[0] && !text_of(m, "end_of_word_suffix")[0], e,
               MT_DATA, "model.continuing_subword_prefix and model.end_of_word_suffix are not supported");
    const cJSON *dropout = get(m, "dropout");
    MT_REQUIRE(!cJSON_IsNumber(dropout) || !(dropout->valuedouble > 0), e, MT_DATA,
               "model.dropout is not supported");
    t->ignore_merges = is_true(m, "ignore_merges");
    MT_TRY(read_vocab(t, get(m, "vocab"), e));
    return read_merges(t, get(m, "merges"), e);
}

/* ---- normalizer and pre-tokenizer: one, or a sequence ---- */
static mt_status read_normalizer(mt_tokenizer *t, const cJSON *x, mt_err *e)
{
    if (!x || cJSON_IsNull(x)) return MT_OK;
    MT_TRY(check_keys(x, "normalizer", e));
    if (is_type(x, "Sequence")) {
        const cJSON *i;
        cJSON_ArrayForEach(i, get(x, "normalizers"))
        {
            MT_REQUIRE(!is_type(i, "Sequence"), e, MT_DATA, "a sequence of normalizers inside of one");
            MT_TRY(read_normalizer(t, i, e));
        }
        return MT_OK;
    }
    MT_REQUIRE(is_type(x, "NFC"), e, MT_DATA, "normalizer \"%.40s\" is not supported, only NFC is",
               text_of(x, "type"));
    t->nfc = true;
    return MT_OK;
}

static mt_status add_split(mt_tokenizer *t, const char *pattern, bool literal, mt_err *e)
{
    MT_REQUIRE(t->n_splits < MT_MOST_SPLITS, e, MT_DATA, "more than %d pre-tokenizers", MT_MOST_SPLITS);
    return mt_regex_compile(&t->split[t->n_splits++], pattern, literal, e);
}

static mt_status read_split(mt_tokenizer *t, const cJSON *x, mt_err *e)
{
    MT_TRY(check_keys(get(x, "pattern"), "the pattern of pre-tokenizer Split", e));
    const char *regex = text_of(get(x, "pattern"), "Regex"), *string = text_of(get(x, "pattern"), "String");
    MT_REQUIRE(!strcmp(text_of(x, "behavior"), "Isolated") && !is_true(x, "invert"), e, MT_DATA,
               "pre-tokenizer Split: behavior \"%.40s\"%s is not supported, only \"Isolated\" is",
               text_of(x, "behavior"), is_true(x, "invert") ? " with invert" : "");
    MT_REQUIRE(regex[0] || string[0], e, MT_DATA, "pre-tokenizer Split has no pattern");
    return add_split(t, regex[0] ? regex : string, !regex[0], e);
}

/* byte_level: met, as it must be: this reader's vocabularies are of bytes. */
static mt_status read_pre_tokenizer(mt_tokenizer *t, const cJSON *x, bool nested, bool *byte_level, mt_err *e)
{
    MT_TRY(check_keys(x, nested ? "a pre-tokenizer of pre_tokenizer.pretokenizers" : "pre_tokenizer", e));
    if (is_type(x, "Sequence") && !nested) {
        const cJSON *i;
        cJSON_ArrayForEach(i, get(x, "pretokenizers")) MT_TRY(read_pre_tokenizer(t, i, true, byte_level, e));
        return MT_OK;
    }
    MT_REQUIRE(!*byte_level, e, MT_DATA, "pre-tokenizer \"%.40s\" after ByteLevel is not supported",
               text_of(x, "type"));
    if (is_type(x, "Split")) return read_split(t, x, e);
    if (is_type(x, "Digits"))
        return add_split(t, is_true(x, "individual_digits") ? "\\p{N}" : "\\p{N}+", false, e);
    MT_REQUIRE(is_type(x, "ByteLevel"), e, MT_DATA,
               "pre-tokenizer \"%.40s\" is not supported; Split, Digits and ByteLevel are",
               text_of(x, "type"));
    MT_REQUIRE(!is_true(x, "add_prefix_space"), e, MT_DATA,
               "pre-tokenizer ByteLevel: add_prefix_space is not supported");
    *byte_level = true;
    return cJSON_IsFalse(get(x, "use_regex")) ? MT_OK : add_split(t, mt_regex_gpt2, false, e);
}

/* ---- added tokens ---- */
static mt_status read_added_token(mt_tokenizer *t, const cJSON *x, mt_err *e)
{
    const char *content = text_of(x, "content");
    char where[100];
    int32_t id;
    MT_REQUIRE(content[0], e, MT_DATA, "an added token without content");
    snprintf(where, sizeof where, "added token \"%.60s\"", content);
    MT_TRY(check_keys(x, where, e));
    MT_TRY(id_of(get(x, "id"), content, &id, e));
    MT_REQUIRE(!is_true(x, "single_word"), e, MT_DATA, "added token \"%.60s\": single_word is not supported",
               content);
    for (int64_t i = 0; i < t->n_added; i++)
        MT_REQUIRE(strcmp(t->added[i].text, content), e, MT_DATA, "added token \"%.60s\" is there twice",
                   content);
    char *text = strdup(content);
    MT_REQUIRE(text, e, MT_IO, "no memory");
    t->added[t->n_added++] = (struct mt_added){.text = text,
                                               .bytes = (int32_t)strlen(content),
                                               .id = id,
                                               .special = is_true(x, "special"),
                                               .normalized = is_true(x, "normalized"),
                                               .strip_left = is_true(x, "lstrip"),
                                               .strip_right = is_true(x, "rstrip")};
    if (id >= t->vocab) t->vocab = id + 1;
    return MT_OK;
}

static mt_status read_added(mt_tokenizer *t, const cJSON *list, mt_err *e)
{
    int n = cJSON_GetArraySize(list);
    MT_REQUIRE(!list || cJSON_IsNull(list) || cJSON_IsArray(list), e, MT_DATA, "added_tokens is no list");
    t->added = calloc((size_t)n + 1, sizeof *t->added);
    MT_REQUIRE(t->added, e, MT_IO, "no memory for %d added tokens", n);
    const cJSON *x;
    cJSON_ArrayForEach(x, list) MT_TRY(read_added_token(t, x, e));
    MT_TRY(mt_trie_make(&t->raw, t, false, true, e));
    MT_TRY(mt_trie_make(&t->normal, t, true, true, e));
    MT_TRY(mt_trie_make(&t->raw_text, t, false, false, e));
    return mt_trie_make(&t->normal_text, t, true, false, e);
}

/* token_of: [t->vocab], NULL everywhere. An added token may be in model.vocab too, with the same id. */
static mt_status name_ids(const mt_tokenizer *t, const cJSON *vocab, const char **token_of, mt_err *e)
{
    for (const cJSON *x = vocab->child; x; x = x->next) {
        const char **seen = &token_of[(int32_t)x->valuedouble];
        MT_REQUIRE(!*seen, e, MT_DATA, "model.vocab gives id %d to token \"%.60s\" and to \"%.60s\"",
                   (int32_t)x->valuedouble, *seen, x->string);
        *seen = x->string;
    }
    for (int64_t i = 0; i < t->n_added; i++) {
        const struct mt_added *a = &t->added[i];
        const char **seen = &token_of[a->id];
        int32_t id = mt_words_find(&t->written, a->text, a->bytes);
        MT_REQUIRE(!*seen || !strcmp(*seen, a->text), e, MT_DATA,
                   "added token \"%.60s\" has id %d, which is that of token \"%.60s\"", a->text, a->id,
                   *seen);
        MT_REQUIRE(id < 0 || id == a->id, e, MT_DATA,
                   "added token \"%.60s\" has id %d, but id %d in model.vocab", a->text, a->id, id);
        *seen = a->text;
    }
    return MT_OK;
}

/* A token for an id and an id for a token. */
static mt_status check_ids(const mt_tokenizer *t, const cJSON *vocab, mt_err *e)
{
    const char **token_of = calloc((size_t)t->vocab, sizeof *token_of);
    MT_REQUIRE(token_of, e, MT_IO, "no memory for %lld ids", (long long)t->vocab);
    mt_status st = name_ids(t, vocab, token_of, e);
    free(token_of);
    return st;
}

static mt_status read_all(mt_tokenizer *t, const cJSON *o, mt_err *e)
{
    bool byte_level = false;
    MT_REQUIRE(cJSON_IsObject(o) && cJSON_IsObject(get(o, "model")), e, MT_DATA,
               "there is no \"model\": this is no tokenizer.json");
    MT_TRY(check_keys(o, "the document", e));
    MT_TRY(read_model(t, get(o, "model"), e));
    MT_TRY(read_normalizer(t, get(o, "normalizer"), e));
    MT_TRY(read_pre_tokenizer(t, get(o, "pre_tokenizer"), false, &byte_level, e));
    MT_REQUIRE(byte_level, e, MT_DATA,
               "its pre-tokenizers do not end with ByteLevel: only byte-level tokenizers are supported");
    MT_TRY(read_added(t, get(o, "added_tokens"), e));
    return check_ids(t, get(get(o, "model"), "vocab"), e);
}

/* Messages name keys and tokens, which may hold the end of a line. */
static void make_one_line(mt_err *e)
{
    for (char *c = e->msg; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
}

mt_status mt_tokenizer_parse(mt_tokenizer **out, const char *name, const char *text, int64_t bytes, mt_err *e)
{
    const char *end = text;
    cJSON *o = cJSON_ParseWithLengthOpts(text, (size_t)bytes, &end, 0);
    mt_tokenizer *t = calloc(1, sizeof *t);
    mt_status st = MT_OK;
    while (o && end < text + bytes && *end && strchr(" \t\r\n", *end)) end++;
    if (!t)
        st = mt_err_set(e, MT_IO, "no memory");
    else if (!o)
        st = mt_err_set(e, MT_DATA, "no valid JSON at byte %lld", (long long)(end - text));
    else if (end < text + bytes)
        st = mt_err_set(e, MT_DATA, "something follows the JSON document, at byte %lld",
                        (long long)(end - text));
    if (st == MT_OK && !(t->name = strdup(name))) st = mt_err_set(e, MT_IO, "no memory");
    if (st == MT_OK) {
        for (int b = 0; b < 256; b++) t->of_byte[b] = -1;
        st = read_all(t, o, e);
    }
    cJSON_Delete(o);
    if (st != MT_OK) {
        mt_tokenizer_close(t);
        t = NULL;
        make_one_line(e);
        mt_err_while(e, "%s", name);
    }
    *out = t;
    return st;
}

mt_status mt_tokenizer_open(mt_tokenizer **out, const char *path, mt_err *e)
{
    enum { MOST = 1 << 30 };
    struct mt_text text = {0};
    *out = NULL;
    mt_status st = mt_text_read(&text, path, MOST, MT_DATA, e);
    if (st == MT_OK) st = mt_tokenizer_parse(out, path, text.at, text.bytes, e);
    mt_text_release(&text);
    return st;
}

void mt_tokenizer_close(mt_tokenizer *t)
{
    if (!t) return;
    mt_words_close(&t->words);
    mt_words_close(&t->written);
    free(t->merges.slot);
    for (int i = 0; i < t->n_splits; i++) pcre2_code_free(t->split[i]);
    for (int64_t i = 0; i < t->n_added; i++) free(t->added[i].text);
    free(t->added);
    free(t->name);
    free(t->raw.node);
    free(t->normal.node);
    free(t->raw_text.node);
    free(t->normal_text.node);
    free(t);
}

int64_t mt_tokenizer_vocab(const mt_tokenizer *t)
{
    return t->vocab;
}
int32_t mt_tokenizer_id(const mt_tokenizer *t, const char *token)
{
    for (int64_t i = 0; i < t->n_added; i++)
        if (!strcmp(t->added[i].text, token)) return t->added[i].id;
    return mt_words_find(&t->written, token, (int64_t)strlen(token));
}
