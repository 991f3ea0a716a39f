/* The fuzz target of tests/fuzz, over its seeds and some thousand changed copies of them: it aborts on a
 * failure. */
#include "../fuzz/fuzz_manifest.c"

#include "../check.h"

TEST(changed_manifests)
{
    static const char *const seeds[] = {"tests/fuzz/manifest/sound.json", "tests/fuzz/manifest/ranks.json"};
    static const char *const words[] = {FUZZ_MANIFEST_WORDS};
    FILE *f = fopen(seeds[0], "rb");
    if (!f) SKIP("%s is not seen from here: run from the repository's root", seeds[0]);
    fclose(f);
    CHECK_INT(fuzz_run(LLVMFuzzerTestOneInput, 2, seeds, 10000, words, sizeof words / sizeof *words), 20002);
}

int main(void)
{
    RUN(changed_manifests);
    return DONE();
}
