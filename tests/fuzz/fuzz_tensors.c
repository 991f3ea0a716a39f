/* fuzz_tensors.c: any bytes as a safetensors file. Whatever they are, reading refuses them or leaves
 * tensors that can all be found and read, and that cover the data.
 *
 * With clang's -fsanitize=fuzzer this is a fuzz target; with -DMT_FUZZ_MAIN a program that takes files and runs
 * them and changed copies of them. */
#include "ckpt/tensors.h"

#include "mutate.h"

/* What a changed copy is given: pieces of JSON, of headers, of numbers. */
#define FUZZ_TENSORS_WORDS                                                                                   \
    "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "\\u001b", "\\", "null", "true", "-1", "0", "1", "4",     \
        "8", "0.5", "1e300", "1e-300", "9007199254740992", "4294967296", "18446744073709551615", "[[[[[[[[", \
        "\"F32\"", "BF16", "F16", "I64", "\"shape\":[1,1,1,1]", "\"shape\":[]", "\"dtype\"",                 \
        "\"shape\":[1]", "\"data_offsets\":[0,4]", "__metadata__", "\xff", "\xc3\xa4", " ",                  \
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_tensors: %s\n", what);
    abort();
}

static void check_accepted(const struct mt_tensors *t)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const struct mt_tensor_entry *x = &t->entry[i];
        check(mt_tensors_find(t, x->name) == x, "a tensor is not found by its name");
        check(x->begin >= 0 && x->end >= x->begin && x->end <= t->bytes - t->data,
              "a tensor outside the file");
        check(x->end - x->begin == 4 * x->shape[0] * (x->shape[1] ? x->shape[1] : x->end > x->begin),
              "a shape that is not the bytes'");
        bytes += x->end - x->begin;
    }
    check(bytes == t->bytes - t->data, "bytes that belong to no tensor");
}

/* Of others: the same, but that only some types tell what a shape takes. */
static void try_any(const uint8_t *data, size_t size)
{
    struct mt_tensors t;
    mt_err e = {0};
    int64_t bytes = 0;
    if (mt_tensors_parse_any(&t, "fuzz", data, (int64_t)size, (int64_t)size, &e) != MT_OK) {
        check(e.code == MT_CKPT && e.msg[0], "no message");
        return;
    }
    for (int64_t i = 0; i < t.n; i++) {
        const struct mt_tensor_entry *x = &t.entry[i];
        int64_t n = mt_tensor_element(x->type);
        for (int d = 0; d < x->dims; d++) n *= x->shape[d];
        check(x->dims <= MT_TENSOR_DIMS && x->end >= x->begin && x->end <= t.bytes - t.data,
              "a tensor outside the file");
        check(x->type == MT_TENSOR_OTHER || n == x->end - x->begin, "a shape that is not the bytes'");
        bytes += x->end - x->begin;
    }
    check(bytes == t.bytes - t.data, "bytes that belong to no tensor");
    mt_tensors_close(&t);
}

static void try_file(const uint8_t *data, size_t size)
{
    struct mt_tensors t;
    mt_err e = {0};
    if (mt_tensors_parse(&t, "fuzz", data, (int64_t)size, (int64_t)size, &e) == MT_OK)
        check_accepted(&t);
    else
        check(e.code == MT_CKPT && e.msg[0], "no message");
    mt_tensors_close(&t);
}

/* As they are, and behind the length that fits them best: most changes would be refused for their length
 * alone. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_file(data, size);
    try_any(data, size);
    if (size < 8) return 0;
    uint8_t *copy = malloc(size);
    check(copy, "no memory");
    memcpy(copy, data, size);
    uint64_t length = size - 8;
    while (length && copy[8 + length - 1] != '}') length--;
    memcpy(copy, &length, 8);
    try_file(copy, size);
    try_any(copy, size);
    free(copy);
    return 0;
}

#ifdef MT_FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const words[] = {FUZZ_TENSORS_WORDS};
    long n = fuzz_run(LLVMFuzzerTestOneInput, argc - 1, (const char *const *)(argv + 1), 3000, words,
                      sizeof words / sizeof *words);
    printf("%ld inputs\n", n);
    return n > 0 ? 0 : 1;
}
#endif
