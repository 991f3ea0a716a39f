/* The fuzz target of tests/fuzz, over its seeds and some thousand changed copies of them: it aborts on a
 * failure. */
#include "../fuzz/fuzz_config.c"

#include "../check.h"

TEST(changed_configurations)
{
    static const char *const seeds[] = {"tests/fuzz/config/values.yaml", "tests/fuzz/config/overrides.txt",
                                        "configs/quickstart.yaml", "configs/jupiter-952b.yaml"};
    static const char *const words[] = {FUZZ_CONFIG_WORDS};
    FILE *f = fopen(seeds[0], "rb");
    if (!f) SKIP("%s is not seen from here: run from the repository's root", seeds[0]);
    fclose(f);
    CHECK_INT(fuzz_run(LLVMFuzzerTestOneInput, 4, seeds, 1000, words, sizeof words / sizeof *words), 4004);
}

int main(void)
{
    RUN(changed_configurations);
    return DONE();
}
