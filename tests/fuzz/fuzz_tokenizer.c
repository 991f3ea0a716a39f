/* fuzz_tokenizer.c: any bytes, as a tokenizer.json, give a tokenizer that encodes any bytes into ids below its vocabulary, or one
 * line of error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

#include "mutate.h"

#define FUZZ_TOKENIZER_WORDS                                                                              \
    "\"model\":{", "\"vocab\":{", "\"merges\":[", "[\"a\",\"b\"],", "\"a b\",", "\"type\":\"BPE\"",       \
        "\"Regex\":\"\\\\s+\"", "\"NFC\"", "\"Sequence\"", "\"Split\"", "\"ByteLevel\"",                  \
        "\"use_regex\":true", "\"Digits\"", "\"ignore_merges\":true", "\"id\":", "1e99", "-1", "\\u0000", \
        "\xc4\xa0", "\"lstrip\":true", "(?:a|b)*", "\xff"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what)
{
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

static void encode(const mt_tokenizer *t, const uint8_t *data, size_t size)
{
    mt_err e = {0};
    mt_encoder *x;
    const int32_t *ids;
    int64_t n;
    if (mt_encoder_open(&x, t, true, &e) != MT_OK) fail(e.msg);
    mt_status st = mt_encode(x, (const char *)data, (int64_t)size, &ids, &n, &e);
    if (st != MT_OK && st != MT_DATA) fail(e.msg);
    for (int64_t i = 0; st == MT_OK && i < n; i++)
        if (ids[i] < 0 || ids[i] >= mt_tokenizer_vocab(t)) fail("an id beyond the vocabulary");
    mt_encoder_close(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err e = {0};
    mt_tokenizer *t;
    mt_status st = mt_tokenizer_parse(&t, "fuzz", (const char *)data, (int64_t)size, &e);
    if (st != MT_OK && (st != e.code || !e.msg[0])) fail("no message");
    if (st == MT_OK) encode(t, data, size);
    mt_tokenizer_close(t);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_TOKENIZER_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 1000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
