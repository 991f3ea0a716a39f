/* fuzz_manifest.c: any bytes as the manifest of a checkpoint. Whatever they are, reading refuses them or
 * leaves counts and names that are safe to use, whose bytes the manifest's own checksum vouches for.
 *
 * With clang's -fsanitize=fuzzer this is a fuzz target; with -DMT_FUZZ_MAIN a program that takes files and runs
 * them and changed copies of them. */
#include "ckpt/file.h"
#include "ckpt/manifest.h"

#include "mutate.h"

#include <inttypes.h>

/* What a changed copy is given: pieces of JSON and of manifests. */
#define FUZZ_MANIFEST_WORDS                                                                                  \
    "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "\\u001b", "\\", "/", "..", ".", "null", "-1", "0", "1",  \
        "0.5", "1e300", "9007199254740992", "9007199254740993", "[[[[[[[[", "\"version\": 2", "\"step\": 3", \
        "\"world\": 0", "\"files\": [", "\"name\": \"a\"", "\"bytes\": 1", "\"xxh3\": \"0123456789abcdef\"", \
        "\xff", " ", "\"}\n", "{\"name\": \"a\", \"bytes\": 1, \"xxh3\": \"0123456789abcdef\"},"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_manifest: %s\n", what);
    abort();
}

static void try_manifest(const char *text, size_t size)
{
    struct mt_manifest m;
    mt_err e = {0};
    if (mt_manifest_parse(&m, "fuzz", text, (int64_t)size, &e) != MT_OK) {
        check(e.code == MT_CKPT && e.msg[0], "no message");
        return;
    }
    check(m.version == 1 || m.version == 2, "a version that is none");
    check(m.version == 2 || m.world == 1, "several ranks in version 1");
    check(m.meta.step >= 0 && m.meta.tokens >= 0 && m.world > 0 && m.n > 0, "a count that is none");
    for (int64_t i = 0; i < m.n; i++) {
        const char *name = m.file[i].name;
        check(memchr(name, 0, sizeof m.file[i].name) != NULL, "a name without end");
        check(name[0] && name[0] != '.' && !strchr(name, '/'), "a name outside the folder");
        check(m.file[i].bytes >= 0, "a size below zero");
        check(mt_manifest_find(&m, name) != NULL, "a file is not found by its name");
    }
    char sum[17];
    snprintf(sum, sizeof sum, "%016" PRIx64, mt_xxh3(text, (int64_t)size - 19));
    check(!memcmp(text + size - 19, sum, 16), "a wrong checksum was accepted");
    mt_manifest_release(&m);
}

/* As they are, and with the checksum that makes them sound: else every change would be refused for its
 * checksum alone. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_manifest((const char *)data, size);
    if (size < 19) return 0;
    char *copy = malloc(size), tail[20];
    check(copy, "no memory");
    memcpy(copy, data, size);
    snprintf(tail, sizeof tail, "%016" PRIx64 "\"}\n", mt_xxh3(copy, (int64_t)size - 19));
    memcpy(copy + size - 19, tail, 19);
    try_manifest(copy, size);
    free(copy);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_MANIFEST_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 3000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
