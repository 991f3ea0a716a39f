/* safetensors files: written as the format says, read back to the bit, and nothing else accepted. */
#include "ckpt/tensors.h"

#include "helper.h"

static const char *file_of_test(void)
{
    static char path[MT_CKPT_PATH + 80];
    char folder[MT_CKPT_PATH];
    mt_ckpt_folder(run_folder(), 1, folder);
    snprintf(path, sizeof path, "%s/rank-00000.safetensors", folder);
    return path;
}

/* As a save writes it. */
static void write_world(const struct world *w)
{
    static mt_config cfg;
    struct mt_ckpt_meta meta = {.step = 1};
    mt_err e = {0};
    mt_config_defaults(&cfg);
    CHECK_INT(mt_ckpt_save(run_folder(), &w->items, &meta, &cfg, &e), MT_OK);
}

/* A copy of exact size on the heap, for the address sanitizer. */
static mt_status parse(const void *p, size_t n, mt_err *e)
{
    struct mt_tensors t;
    unsigned char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    memcpy(copy, p, n);
    *e = (mt_err){0};
    mt_status st = mt_tensors_parse(&t, "FILE", copy, (int64_t)n, (int64_t)n, e);
    mt_tensors_close(&t);
    free(copy);
    return st;
}

TEST(checksum_is_xxh3_of_seed_0)
{
    CHECK(mt_xxh3("", 0) == UINT64_C(0x2d06800538d394c2));
    CHECK(mt_xxh3("a", 1) == UINT64_C(0xe6c632b61e964e1f));
}

TEST(read_back_to_the_bit)
{
    static struct world w;
    static struct bytes b;
    struct mt_tensors t;
    mt_err e = {0};
    make_world(&w, 1);
    write_world(&w);
    CHECK(read_bytes(&b, file_of_test()));
    CHECK_INT(mt_tensors_open(&t, file_of_test(), &e), MT_OK);
    CHECK_INT(t.n, TENSORS);
    CHECK_INT(t.bytes, b.n);
    for (int i = 0; i < TENSORS; i++) {
        const struct mt_tensor_entry *x = mt_tensors_find(&t, w.item[i].name);
        if (!CHECK(x)) continue;
        CHECK_INT(x->shape[0], w.item[i].rows);
        CHECK_INT(x->shape[1], w.item[i].cols);
        CHECK_INT(x->end - x->begin, mt_ckpt_item_bytes(&w.item[i]));
        CHECK(!memcmp(b.at + t.data + x->begin, w.data[i], (size_t)mt_ckpt_item_bytes(&w.item[i])));
    }
    CHECK(!mt_tensors_find(&t, "embed"));
    CHECK(!mt_tensors_find(&t, "__metadata__"));
    CHECK(mt_tensors_told(&t, "format", "pt") && mt_tensors_told(&t, "rank", "0"));
    CHECK(!mt_tensors_told(&t, "rank", "1") && !mt_tensors_told(&t, "ranks", "0"));
    mt_tensors_close(&t);
}

/* The bytes themselves, without the reader. */
TEST(layout_of_the_file)
{
    static struct world w;
    static struct bytes b;
    uint64_t length;
    make_world(&w, 2);
    write_world(&w);
    CHECK(read_bytes(&b, file_of_test()));
    memcpy(&length, b.at, 8);
    CHECK_INT((8 + length) % 4096, 0);
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"moetitan\":\"2\",\"rank\":\"0\",\"world\":\"1\"},"
        "\"embed.weight\":{\"dtype\":\"F32\",\"shape\":[8,12],\"data_offsets\":[0,384]},"
        "\"layers.0.norm.weight\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[384,404]},";
    CHECK(!memcmp(b.at + 8, want, sizeof want - 1));
    CHECK(!memcmp(b.at + 8 + length, w.data[0], 384));
    CHECK(!memcmp(b.at + 8 + length + 384, w.data[1], 20));
    CHECK(!memcmp(b.at + b.n - 16, w.data[TENSORS - 1], 16));
}

TEST(cut_at_every_byte)
{
    static struct world w;
    static struct bytes b;
    mt_err e;
    make_world(&w, 3);
    write_world(&w);
    CHECK(read_bytes(&b, file_of_test()));
    CHECK_INT(parse(b.at, b.n, &e), MT_OK);
    for (size_t n = 0; n < b.n; n++)
        if (!CHECK(failed_so(parse(b.at, n, &e), &e, MT_CKPT, "FILE"))) break;
    b.at[b.n] = 0;
    CHECK(failed_so(parse(b.at, b.n + 1, &e), &e, MT_CKPT, "the header describes"));
}

TEST(header_lengths)
{
    static const uint64_t length[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX,  (uint64_t)INT64_MAX + 1,
                                      100000001,  100000000,      UINT32_MAX, 57};
    unsigned char b[64] = {0};
    mt_err e;
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
        memset(b, ' ', sizeof b);
        memcpy(b, &length[i], 8);
        b[8] = '{';
        b[9] = '}';
        CHECK(failed_so(parse(b, sizeof b, &e), &e, MT_CKPT, "the header's length"));
    }
    memcpy(b, &(uint64_t){56}, 8);
    CHECK_INT(parse(b, sizeof b, &e), MT_OK); /* the same with a length that fits: no tensors */
}

static mt_status parse_header(const char *header, size_t data, mt_err *e)
{
    static unsigned char b[1 << 16];
    uint64_t length = strlen(header);
    memcpy(b, &length, 8);
    memcpy(b + 8, header, length);
    memset(b + 8 + length, 0, data);
    return parse(b, 8 + length + data, e);
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"
TEST(headers_refused)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } bad[] = {
        {"", 0, "not a JSON object"},
        {"[]", 0, "not a JSON object"},
        {"{}x", 0, "not a JSON object"},
        {"{} {}", 0, "not a JSON object"},
        {"{", 0, "not a JSON object"},
        {"{}", 4, "the header describes 0 bytes"},
        {"{" T("a", "BF16", "1", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1,1,1", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "2", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "5,0", "0,0") "}", 0, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "-1", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "0.5,2", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "\"1\"", "0,4") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1", "4,0") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1", "-4,0") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1", "0") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1", "0,4,8") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1", "0,1e300") "}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "4294967296,4294967296", "0,0") "}", 0, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "9007199254740992,9007199254740992", "0,0") "}", 0, "tensor 'a' has no valid"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 'a' has no valid"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor 'a' has no valid"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor 'a' has no valid"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":{\"x\":1},\"data_offsets\":[0,4]}}", 4,
         "tensor 'a' has no valid"},
        {"{\"\":{}}", 0, "the name of tensor 0 is not printable"},
        {"{\"a\\u001b\":{}}", 0, "the name of tensor 0 is not printable"},
        {"{\"\xc3\xa4\":{}}", 0, "the name of tensor 0 is not printable"},
        {"{\"a\":7}", 4, "tensor 'a' has no valid"},
        {"{" T("a", "F32", "1", "0,4") "," T("b", "F32", "1", "8,12") "}", 12,
         "a hole at offset 4, before tensor 'b'"},
        {"{" T("a", "F32", "1", "4,8") "}", 8, "a hole at offset 0, before tensor 'a'"},
        {"{" T("a", "F32", "2", "0,8") "," T("b", "F32", "1", "4,8") "}", 8,
         "an overlap at offset 8, before tensor 'b'"},
        {"{" T("a", "F32", "1", "0,4") "," T("b", "F32", "1", "0,4") "}", 4, "an overlap at offset 4"},
        {"{" T("a", "F32", "1", "0,4") "}", 8, "describes 4 bytes of tensors, the file holds 8"},
        {"{" T("a", "F32", "2", "0,8") "}", 4, "describes 8 bytes of tensors, the file holds 4"},
        {"{" T("a", "F32", "1", "0,4") "," T("a", "F32", "1", "4,8") "}", 8, "tensor 'a' is there twice"},
    };
    mt_err e;
    CHECK_INT(parse_header("{" T("b", "F32", "1", "4,8") "," T("a", "F32", "1,1",
                                                               "0,4") "," T("c", "F32", "0", "8,8") "}",
                           8, &e),
              MT_OK); /* any order, and empty ones */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK(failed_so(parse_header(bad[i].header, bad[i].data, &e), &e, MT_CKPT, bad[i].says)))
            printf("    header: %s\n", bad[i].header);
}

TEST(deep_nesting)
{
    static char text[50001];
    mt_err e;
    memset(text, '[', 50000);
    memcpy(text, "{\"a\":", 5);
    CHECK(failed_so(parse_header(text, 0, &e), &e, MT_CKPT, "not a JSON object"));
}

int main(void)
{
    RUN(checksum_is_xxh3_of_seed_0);
    RUN(read_back_to_the_bit);
    RUN(layout_of_the_file);
    RUN(cut_at_every_byte);
    RUN(header_lengths);
    RUN(headers_refused);
    RUN(deep_nesting);
    remove_temporary_folder();
    return DONE();
}
