/* The fuzz target of tests/fuzz, over its seeds and some thousand changed copies of them: it aborts on a
 * failure. */
#include "../fuzz/fuzz_sums.c"

#include "../check.h"

TEST(changed_lists)
{
    static const char *const seeds[] = {"tests/fuzz/sums/pieces.json", "tests/fuzz/sums/whole.json"};
    static const char *const words[] = {FUZZ_SUMS_WORDS};
    FILE *f = fopen(seeds[0], "rb");
    if (!f) SKIP("%s is not seen from here: run from the repository's root", seeds[0]);
    fclose(f);
    CHECK_INT(fuzz_run(LLVMFuzzerTestOneInput, 2, seeds, 10000, words, sizeof words / sizeof *words), 20002);
}

int main(void)
{
    RUN(changed_lists);
    return DONE();
}
