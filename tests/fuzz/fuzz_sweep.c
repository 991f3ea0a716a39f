/* fuzz_sweep.c: any bytes, as a sweep file, give points that can be told, each with values that options take, or one line of
 * error. */
#include "config/sweep.h"

#include "mutate.h"

#define FUZZ_SWEEP_WORDS                                                                                \
    "\n", "  ", ": ", "- ", "[", "]", "{", "}", ", ", "\"",                                             \
        "grid: ", "zip: ", "list: ", "set: ", "where: ", "baseline: ", "train.steps",                   \
        "train: {steps: [1, 2]}", "shard.prefetch: [1, 2]", "and ", "or ", "not ", "(", ")",            \
        "<= ", "== ", "* ", "/ ", "% ", "-", "1e999", "64Ki", "30s", "full", "'", "halving: {from: 1}", \
        "repeats: ", "~", "\xff", "&a "

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, const char *text)
{
    fprintf(stderr, "fuzz_sweep: %s: %s\n", what, text);
    abort();
}
static void check(mt_status s, const mt_err *e)
{
    if (s != MT_OK && (s != e->code || !e->msg[0] || strchr(e->msg, '\n')))
        fail("not one line of error", e->msg);
}

/* Every point's values are good by themselves: only rules may refuse them. */
static void check_points(const mt_sweep *s)
{
    static mt_config c;
    char words[256];
    if (s->at_baseline < 0 || s->at_baseline >= s->n) fail("no baseline", "");
    for (int i = 0; i < s->n && i < 64; i++) {
        mt_err e = {0};
        mt_sweep_words(&s->point[i], words, sizeof words);
        if (mt_sweep_config(s, &s->point[i], false, &c, &e) != MT_OK)
            fail("a point whose values are refused", e.msg);
        check(mt_sweep_config(s, &s->point[i], true, &c, &e), &e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mt_sweep s;
    mt_err e = {0};
    mt_status st = mt_sweep_parse(&s, "fuzz", (const char *)data, size, &e);
    s.base[0] = 0; /* files of the system are none of the input's */
    if (st == MT_OK) st = mt_sweep_expand(&s, &e);
    check(st, &e);
    if (st == MT_OK) check_points(&s);
    mt_sweep_close(&s);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_SWEEP_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 1000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
