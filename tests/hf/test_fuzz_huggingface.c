/* The fuzz target of tests/fuzz, over its seeds and some thousand changed copies of them: it aborts on a
 * failure. */
#include "../fuzz/fuzz_huggingface.c"

#include "../check.h"

TEST(changed_files)
{
    static const char *const seeds[] = {
        "tests/fuzz/huggingface/glm4_moe.json", "tests/fuzz/huggingface/qwen3_moe.json",
        "tests/fuzz/huggingface/llama.json", "tests/fuzz/huggingface/mixtral.json",
        "tests/fuzz/huggingface/index.json"};
    static const char *const words[] = {FUZZ_HUGGINGFACE_WORDS};
    FILE *f = fopen(seeds[0], "rb");
    if (!f) SKIP("%s is not seen from here: run from the repository's root", seeds[0]);
    fclose(f);
    CHECK_INT(fuzz_run(LLVMFuzzerTestOneInput, 5, seeds, 1000, words, sizeof words / sizeof *words), 5005);
}

int main(void)
{
    RUN(changed_files);
    return DONE();
}
