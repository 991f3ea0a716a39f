/* fuzz_config.c: any bytes, as a configuration file and as overrides, give a configuration or one line of
 * error.
 *
 * With clang's -fsanitize=fuzzer this is a fuzz target; with -DMT_FUZZ_MAIN a program that takes files and
 * runs them and changed copies of them. */
#include "config/config.h"

#include "mutate.h"

/* What a changed copy is given: pieces of YAML, of values, of names. */
#define FUZZ_CONFIG_WORDS                                                                                 \
    "\n", "  ", ": ", "- ", "[", "]", "{", "}", ", ", "\"", "'", "#", "&a ", "*a", "!x ", "? ", "|\n",    \
        ">-\n", "---\n", "~", "\xc3\xa4", "\xff", "\xef\xbb\xbf", "\\n", "\\0", "\t", "=", ".", "-", "0", \
        "1e999", "64Ki", "9223372036854775807", "model",                                                  \
        "model.dim=", "optim.groups=[{match: \"*\", optimizer: adamw}]", "shard.groups=[]",               \
        "train.steps=", "extends: ", "experts", "run:\n  dir: "

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, const char *text)
{
    fprintf(stderr, "fuzz_config: %s: %s\n", what, text);
    abort();
}

static void check_message(mt_status s, const mt_err *e)
{
    if (s != e->code || e->msg[0] == 0) fail("no message", "");
    if (strchr(e->msg, '\n')) fail("more than one line", e->msg);
}

static char *dump(const mt_config *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) fail("no memory", "");
    mt_config_dump(c, f);
    fclose(f);
    return text;
}

/* What was accepted is written and read back to itself. */
static void check_dump(const mt_config *c)
{
    static mt_config again;
    mt_err e = {0};
    char *text = dump(c);
    if (mt_config_parse(&again, "dump", text, strlen(text), &e) != MT_OK) fail(e.msg, text);
    if (mt_config_hash(c) != mt_config_hash(&again))
        fail("the dump reads back as another configuration", text);
    free(text);
}

/* Each line of the input is an override. */
static void check_overrides(const uint8_t *data, size_t size)
{
    static mt_config c;
    char *text = malloc(size + 1), *lines[16], *save = NULL;
    int n = 0;
    if (!text) fail("no memory", "");
    memcpy(text, data, size);
    text[size] = 0;
    for (char *line = strtok_r(text, "\n", &save); line && n < 16; line = strtok_r(NULL, "\n", &save))
        lines[n++] = line;
    mt_err e = {0};
    mt_status s = mt_config_load(&c, NULL, n, lines, &e);
    if (s == MT_OK)
        check_dump(&c);
    else
        check_message(s, &e);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mt_config c;
    mt_err e = {0};
    mt_status s = mt_config_parse(&c, "fuzz", (const char *)data, size, &e);
    if (s == MT_OK)
        check_dump(&c);
    else
        check_message(s, &e);
    check_overrides(data, size);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_CONFIG_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 1000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
