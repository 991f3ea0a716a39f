/* fuzz_sums.c: any bytes as a rank's list of checksums. Whatever they are, reading refuses them or leaves names, shapes and rows
 * that are safe to use, each key once.
 *
 * With clang's -fsanitize=fuzzer this is a fuzz target; with -DMT_FUZZ_MAIN a program that takes files and runs
 * them and changed copies of them. */
#include "ckpt/sums.h"

#include "mutate.h"

/* What a changed copy is given: pieces of JSON and of such lists. */
#define FUZZ_SUMS_WORDS                                                                                    \
    "{", "}", "[", "]", ",", ":", "\"", "@", "@0", "@9", "@-1", "@01", "\\u0000", "\\u001b", "\\", "null", \
        "-1", "0", "1", "0.5", "1e300", "9007199254740992", "9007199254740993", "[[[[[[[[", "\"file\": {", \
        "\"tensors\": {", "\"shape\": [1]", "\"shape\": [2, 3]", "\"row\": 0", "\"bytes\": 1",             \
        "\"xxh3\": \"0123456789abcdef\"", "\xff", " ", "\"a\": \"0123456789abcdef\",",                     \
        "\"a@5\": {\"shape\": [7, 3], \"row\": 5, \"xxh3\": \"0123456789abcdef\"},"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_sums: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mt_sums s;
    mt_err e = {0};
    if (mt_sums_parse(&s, "fuzz", data, (int64_t)size, &e) != MT_OK) {
        check(e.code == MT_CKPT && e.msg[0], "no message");
        return 0;
    }
    check(!s.has_file || s.bytes >= 0, "a size below zero");
    for (int64_t i = 0; i < s.n; i++) {
        const struct mt_sums_entry *x = &s.entry[i];
        char name[MT_TENSOR_NAME];
        int64_t row;
        check(mt_sums_key(x->key, name, &row), "a key that is none");
        check(name[0] && strlen(name) < sizeof name && !strchr(name, '@'), "a name that is none");
        for (const char *c = name; *c; c++) check(*c > ' ' && *c <= '~', "a name that a terminal obeys");
        check(x->whole != s.has_file, "two versions in one");
        check(x->whole || x->row == row, "a row that is not the key's");
        check(x->rows >= 0 && x->cols >= 0 && x->row >= 0, "a count that is none");
        check(!i || strcmp(s.entry[i - 1].key, x->key) < 0, "a key that is there twice");
    }
    mt_sums_release(&s);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_SUMS_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 3000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
