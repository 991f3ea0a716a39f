/* fuzz_huggingface.c: any bytes as config.json and as an index. Whatever they are, reading refuses them with a message, or leaves
 * a configuration that is written and read again as the same, and a sorted index of plain names.
 *
 * With clang's -fsanitize=fuzzer this is a fuzz target; with -DMT_FUZZ_MAIN a program that takes files and runs
 * them and changed copies of them. */
#include "hf/config.h"
#include "hf/folder.h"

#include "mutate.h"

/* What a changed copy is given: pieces of JSON, of keys, of numbers. */
#define FUZZ_HUGGINGFACE_WORDS                                                                               \
    "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "\\", "null", "true", "false", "-1", "0", "1", "2", "64", \
        "0.5", "1e300", "1e999", "9007199254740992", "18446744073709551615", "\"rope_parameters\":{",        \
        "\"rope_theta\":", "\"head_dim\":", "\"num_experts\":", "\"mlp_only_layers\":[0]",                   \
        "\"n_shared_experts\":", "\"rope_scaling\":{\"type\":\"yarn\",", "\"sliding_window\":3,",            \
        "glm4_moe", "qwen3", "qwen2", "llama", "mixtral", "deepseek_v3", "\"weight_map\":{", "../",          \
        "model.safetensors", "\"hidden_size\":8,", "\xff", "\xc3\xa4", " "

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_huggingface: %s\n", what);
    abort();
}

static void try_again(const mt_config *c, enum mt_hf_family f)
{
    static mt_config const zero;
    mt_config again = zero;
    enum mt_hf_family g;
    char *text, unused[MT_HF_UNUSED];
    int64_t bytes;
    mt_err e = {0};
    check(mt_hf_config_write(c, f, false, &text, &bytes, &e) == MT_OK, "what was read is not written");
    check(mt_hf_config_read(&again, &g, "again", text, bytes, unused, &e) == MT_OK,
          "what was written is not read");
    check(f == g, "another family");
    check(mt_config_hash(c) == mt_config_hash(&again), "read as another configuration");
    free(text);
}

static void try_config(const uint8_t *data, size_t size)
{
    static mt_config const zero;
    mt_config c = zero;
    enum mt_hf_family f;
    char unused[MT_HF_UNUSED];
    mt_err e = {0};
    if (mt_hf_config_read(&c, &f, "fuzz", (const char *)data, (int64_t)size, unused, &e) == MT_OK)
        try_again(&c, f);
    else
        check((e.code == MT_CKPT || e.code == MT_CONFIG) && e.msg[0], "no message");
}

static void try_index(const uint8_t *data, size_t size)
{
    struct mt_hf_index x;
    mt_err e = {0};
    if (mt_hf_index_parse(&x, "fuzz", (const char *)data, (int64_t)size, &e) != MT_OK) {
        check(e.code == MT_CKPT && e.msg[0], "no message");
        return;
    }
    check(x.n > 0, "an index of nothing");
    for (int64_t i = 0; i < x.n; i++) {
        check(!i || strcmp(x.place[i - 1].tensor, x.place[i].tensor) < 0, "not in the order of names");
        check(!strchr(x.place[i].file, '/') && x.place[i].file[0] != '.', "a file elsewhere");
    }
    mt_hf_index_close(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_config(data, size);
    try_index(data, size);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_HUGGINGFACE_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 3000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
