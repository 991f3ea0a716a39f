/* Ids equal those of the tokenizers library, for four kinds of tokenizers; what a file asks for and is not there is refused. */
#include "check.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

static char *read_file(const char *path, int64_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!CHECK(f)) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = ftell(f);
    rewind(f);
    char *text = malloc((size_t)*bytes + 1);
    *bytes = (int64_t)fread(text, 1, (size_t)*bytes, f);
    text[*bytes] = 0;
    fclose(f);
    return text;
}

static int64_t from_base64(const char *s, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int64_t n = 0;
    unsigned bits = 0, have = 0;
    for (; *s && *s != '='; s++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *s) - digits);
        have += 6;
        if (have >= 8) out[n++] = (char)(bits >> (have -= 8));
    }
    return n;
}

static void check_ids(mt_encoder *x, const char *text, int64_t bytes, const cJSON *want)
{
    mt_err e = {0};
    const int32_t *ids;
    int64_t n, wrong = 0, i = 0;
    if (!CHECK_INT(mt_encode(x, text, bytes, &ids, &n, &e), MT_OK)) return;
    CHECK_INT(n, cJSON_GetArraySize(want));
    for (const cJSON *w = want->child; w && i < n; w = w->next) wrong += ids[i++] != w->valueint;
    CHECK_INT(wrong, 0);
}

static void check_kind(const char *kind, const cJSON *texts, const cJSON *want)
{
    char path[100], text[4096];
    mt_err e = {0};
    mt_tokenizer *t = NULL;
    mt_encoder *x = NULL;
    snprintf(path, sizeof path, "tests/golden/tokenizer_%s.json", kind);
    if (CHECK_INT(mt_tokenizer_open(&t, path, &e), MT_OK) &&
        CHECK_INT(mt_encoder_open(&x, t, true, &e), MT_OK))
        for (int round = 0; round < 2; round++) /* the second finds words in the cache */
            for (const cJSON *i = texts->child, *w = want->child; i && w; i = i->next, w = w->next)
                check_ids(x, text, from_base64(i->valuestring, text), w);
    if (e.msg[0]) printf("  %s\n", e.msg);
    mt_encoder_close(x);
    mt_tokenizer_close(t);
}

TEST(ids_are_the_library_s)
{
    int64_t bytes;
    char *text = read_file("tests/golden/tokenizer_ids.json", &bytes);
    cJSON *o = cJSON_Parse(text);
    const cJSON *ids = cJSON_GetObjectItem(o, "ids"), *texts = cJSON_GetObjectItem(o, "texts");
    CHECK_INT(cJSON_GetArraySize(ids), 4);
    CHECK(cJSON_GetArraySize(texts) >= 18);
    for (const cJSON *k = ids ? ids->child : NULL; k; k = k->next) {
        CHECK_INT(cJSON_GetArraySize(k), cJSON_GetArraySize(texts));
        check_kind(k->string, texts, k);
    }
    cJSON_Delete(o);
    free(text);
}

TEST(special_tokens_can_be_text)
{
    mt_err e = {0};
    mt_tokenizer *t;
    mt_encoder *x;
    const int32_t *ids;
    int64_t n;
    if (!CHECK_INT(mt_tokenizer_open(&t, "tests/golden/tokenizer_gpt2.json", &e), MT_OK)) return;
    int32_t end = mt_tokenizer_id(t, "<|endoftext|>");
    CHECK(end >= 0 && end < mt_tokenizer_vocab(t));
    CHECK_INT(mt_tokenizer_id(t, "no such token"), -1);
    for (int specials = 0; specials < 2; specials++) {
        if (!CHECK_INT(mt_encoder_open(&x, t, specials, &e), MT_OK)) break;
        CHECK_INT(mt_encode(x, "<|endoftext|>", 13, &ids, &n, &e), MT_OK);
        CHECK(specials ? n == 1 && ids[0] == end : n > 1);
        CHECK_INT(mt_encode(x, "", 0, &ids, &n, &e), MT_OK);
        CHECK_INT(n, 0);
        mt_encoder_close(x);
    }
    mt_tokenizer_close(t);
}

/* The committed file with one place replaced. */
static void refuses(const char *from, const char *to, const char *message)
{
    int64_t bytes;
    mt_err e = {0};
    mt_tokenizer *t;
    char *text = read_file("tests/golden/tokenizer_qwen.json", &bytes),
         *at = text ? strstr(text, from) : NULL;
    if (!CHECK(at)) {
        printf("  no %s\n", from);
        free(text);
        return;
    }
    char *changed = malloc((size_t)bytes + strlen(to) + 1);
    int n = sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    CHECK_INT(mt_tokenizer_parse(&t, "qwen.json", changed, n, &e), MT_DATA);
    if (!CHECK(!strncmp(e.msg, "qwen.json: ", 11) && strstr(e.msg, message) && !strchr(e.msg, '\n')))
        printf("  %s\n", e.msg);
    free(changed);
    free(text);
}

TEST(what_is_not_supported_is_named)
{
    refuses("\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model.type is \"Unigram\"");
    refuses("\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback");
    refuses("\"type\":\"NFC\"", "\"type\":\"Lowercase\"", "normalizer \"Lowercase\"");
    refuses("\"behavior\":\"Isolated\"", "\"behavior\":\"Removed\"", "behavior \"Removed\"");
    refuses("\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"", "pre-tokenizer \"Whitespace\"");
    refuses("(?!", "(?!(", "regular expression");
    refuses("\"single_word\":false", "\"single_word\":true", "single_word");
    refuses("\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space");
}
TEST(damage_is_named)
{
    refuses("\"model\"", "\"muddle\"", "no \"model\"");
    refuses("\"vocab\":{", "\"vocab\":{\"a\":1,", "\"a\" twice");
    refuses("\"vocab\":{\"!\":", "\"vocab\":{\"zzz\":-1, \"!\":", "expected an id");
    refuses("\"vocab\":{\"!\":", "\"vocab\":{\"!\":1e9, \"zz\":", "expected an id");
    refuses("\"vocab\":{\"!\"", "\"vocab\":{\"!!!\"", "no token for byte 0x21");
    refuses("\"merges\":[", "\"merges\":[[\"a\"],", "merge number 0 is no pair");
    refuses("\"merges\":[", "\"merges\":[[\"a\",\"never\"],", "the second is not in model.vocab");
    refuses("\"model\":{", "\"model\":[", "no valid JSON");
    mt_err e = {0};
    mt_tokenizer *t;
    CHECK_INT(mt_tokenizer_parse(&t, "x", "", 0, &e), MT_DATA);
    CHECK_INT(mt_tokenizer_open(&t, "tests/golden/absent.json", &(mt_err){0}), MT_DATA);
}

TEST(what_says_two_things_is_refused)
{
    refuses("\"model\":{", "\"model\":{},\"model\":{", "the document has the key \"model\" twice");
    refuses("\"normalizer\":", "\"added_tokens\":[],\"normalizer\":",
            "the document has the key \"added_tokens\"");
    refuses("\"vocab\":{", "\"merges\":[],\"vocab\":{", "model has the key \"merges\" twice");
    refuses("\"type\":\"NFC\"", "\"type\":\"NFC\",\"type\":\"NFD\"", "normalizer has the key \"type\" twice");
    refuses("\"pretokenizers\":", "\"pretokenizers\":[],\"pretokenizers\":",
            "pre_tokenizer has the key \"pretokenizers\" twice");
    refuses("\"behavior\":", "\"behavior\":\"Removed\",\"behavior\":",
            "a pre-tokenizer of pre_tokenizer.pretokenizers has the key \"behavior\" twice");
    refuses("\"pattern\":{", "\"pattern\":{\"Regex\":\"x\",",
            "the pattern of pre-tokenizer Split has the key \"Regex\" twice");
    refuses("\"id\":600", "\"id\":600,\"id\":601", "added token \"<|endoftext|>\" has the key \"id\" twice");
    refuses("\"version\":", "\"a\\nb\":1,\"a\\nb\":1,\"version\":", "the key \"a?b\" twice");
}
TEST(an_id_is_of_one_token)
{
    refuses("\"\\\"\":1,", "\"\\\"\":0,", "model.vocab gives id 0 to token \"!\" and to \"\"\"");
    refuses("\"id\":601", "\"id\":600",
            "added token \"<|im_start|>\" has id 600, which is that of token \"<|endoftext|>\"");
    refuses("\"id\":600", "\"id\":0", "added token \"<|endoftext|>\" has id 0, which is that of token \"!\"");
    refuses("\"id\":415", "\"id\":700", "added token \"two\" has id 700, but id 415 in model.vocab");
}
TEST(nothing_follows_the_document)
{
    int64_t bytes;
    char *text = read_file("tests/golden/tokenizer_qwen.json", &bytes);
    static const struct {
        const char *tail;
        int64_t n;
        mt_status st;
    } tails[] = {{" \n\t\r\n", 5, MT_OK}, {"}", 1, MT_DATA}, {"\n{}", 3, MT_DATA}, {"\0", 1, MT_DATA}};
    char *all = text ? malloc((size_t)bytes + 8) : NULL;
    for (size_t i = 0; all && i < sizeof tails / sizeof *tails; i++) {
        mt_err e = {0};
        mt_tokenizer *t;
        memcpy(all, text, (size_t)bytes);
        memcpy(all + bytes, tails[i].tail, (size_t)tails[i].n);
        CHECK_INT(mt_tokenizer_parse(&t, "qwen.json", all, bytes + tails[i].n, &e), tails[i].st);
        CHECK(tails[i].st == MT_OK ||
              strstr(e.msg, "qwen.json: something follows the JSON document, at byte "));
        mt_tokenizer_close(t);
    }
    free(all);
    free(text);
}

static void repairs(const char *text, const char *want)
{
    struct mt_text out = {0};
    mt_err e = {0};
    CHECK_INT(mt_utf8_repair(&out, text, (int64_t)strlen(text), &e), MT_OK);
    CHECK(out.bytes == (int64_t)strlen(want) && !memcmp(out.at, want, strlen(want)));
    mt_text_release(&out);
}
TEST(invalid_utf8_becomes_replacement_characters)
{
    CHECK_INT(mt_utf8_valid("abcdefgh\xc3\xa9\xe2\x82", 12), 10);
    repairs("a\xff", "a\xef\xbf\xbd");
    repairs("\xe2\x82", "\xef\xbf\xbd");
    repairs("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    repairs("\xf0\x9f\x91z", "\xef\xbf\xbdz");
}

int main(void)
{
    RUN(ids_are_the_library_s);
    RUN(special_tokens_can_be_text);
    RUN(what_is_not_supported_is_named);
    RUN(damage_is_named);
    RUN(what_says_two_things_is_refused);
    RUN(an_id_is_of_one_token);
    RUN(nothing_follows_the_document);
    RUN(invalid_utf8_becomes_replacement_characters);
    return DONE();
}
