/* fuzz_cluster.c: any bytes, as a cluster file and as an override, give a cluster whose numbers are all in range, or one line of
 * error. */
#include <math.h>

#include "launch/cluster.h"

#include "mutate.h"

#define FUZZ_CLUSTER_WORDS                                                                              \
    "\n", "  ", ": ", "- ", "{", "}", ", ", "\"", "value: ", "source: ", "assumed", "net", "bandwidth", \
        "peak.bf16=", "1e999", "-1", "nan", "0x1p3", "name: x\n", "target: cuda\n", "&a ", "*a", "\xff"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what)
{
    fprintf(stderr, "fuzz_cluster: %s\n", what);
    abort();
}
static void check(mt_status s, const mt_err *e, const struct mt_cluster *c)
{
    if (s != MT_OK && (s != e->code || !e->msg[0] || strchr(e->msg, '\n'))) fail("not one line of error");
    for (int k = 0; k < MT_N_CLUSTER_KEYS && s == MT_OK; k++)
        if (!(c->of[k].value >= mt_cluster_rows[k].low && c->of[k].value <= mt_cluster_rows[k].high))
            fail("a number out of range");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mt_cluster c;
    mt_err e = {0};
    char *text = malloc(size + 1);
    if (!text) fail("no memory");
    check(mt_cluster_parse(&c, "fuzz", (const char *)data, size, &e), &e, &c);
    memcpy(text, data, size);
    text[size] = 0;
    e = (mt_err){0};
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) c.of[k].value = mt_cluster_rows[k].low;
    check(mt_cluster_override(&c, text, &e), &e, &c);
    free(text);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_CLUSTER_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 1000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
