#include "data/index.h"
#include "data/text.h"
#include "files.h"

static mt_text_counts counts;
static mt_err e;

static mt_status pack(const char *name, const char *text, int64_t bytes, mt_document_unit unit,
                      const char *key, int64_t eod)
{
    const char *input = in_folder(name);
    mt_text_options o = {.inputs = &input,
                         .n_inputs = 1,
                         .prefix = in_folder("out"),
                         .jsonl_key = key,
                         .unit = unit,
                         .eod = eod};
    unlink(in_folder("out.idx"));
    put_file(input, text, bytes);
    e = (mt_err){0};
    return mt_text_pack(&o, &counts, &e);
}

/* The packed file holds exactly `want`, in which '|' ends a document and '$' is the id 256. */
static void holds(const char *want)
{
    mt_index x;
    int64_t at = 0, documents = 0;
    e = (mt_err){0};
    if (!CHECK_INT(mt_index_open(&x, in_folder("out"), &e), MT_OK)) return;
    for (; *want; want++) {
        if (*want == '|') {
            CHECK_INT(mt_index_document_start(&x, ++documents), at);
            continue;
        }
        int32_t id = -1;
        CHECK_INT(mt_index_read(&x, &id, at++, 1, 257, &e), MT_OK);
        CHECK_INT(id, *want == '$' ? 256 : (unsigned char)*want);
    }
    CHECK_INT(x.n_tokens, at);
    CHECK_INT(x.n_documents, documents);
    CHECK_INT(counts.tokens, at);
    CHECK_INT(counts.documents, documents);
    CHECK_INT(x.type, MT_TOKEN_U16);
    mt_index_close(&x);
}

#define PACK(name, text, unit, key, eod) CHECK_INT(pack(name, text, sizeof(text) - 1, unit, key, eod), MT_OK)

TEST(text_by_file_line_and_paragraph)
{
    PACK("a.txt", "one\n\n two\nthree\n \n\n\nfour", MT_DOCUMENT_FILE, NULL, -1);
    holds("one\n\n two\nthree\n \n\n\nfour|");
    CHECK_INT(counts.vocab, 256);
    PACK("a.txt", "one\n\n two\r\nthree\n\n\nfour", MT_DOCUMENT_LINE, NULL, 256);
    holds("one$| two$|three$|four$|");
    CHECK_INT(counts.empty, 3);
    CHECK_INT(counts.vocab, 257);
    PACK("a.txt", "\n\none\n\n two\nthree\n \n\n\nfour", MT_DOCUMENT_BLANK, NULL, 256);
    holds("one\n$| two\nthree\n$|four$|");
    CHECK_INT(counts.empty, 0);
    PACK("a.txt", "a\0\xff\n", MT_DOCUMENT_FILE, NULL, -1); /* any byte is a token */
    CHECK_INT(counts.tokens, 4);
}

TEST(several_files_and_a_long_one)
{
    static char big[300000];
    for (int i = 0; i < 300000; i++) big[i] = (char)(i * 31 % 251);
    put_file(in_folder("big.txt"), big, sizeof big);
    put_file(in_folder("small.jsonl"), "{\"text\":\"hi\"}\n", 14);
    const char *inputs[] = {in_folder("big.txt"), in_folder("small.jsonl")};
    mt_text_options o = {.inputs = inputs, .n_inputs = 2, .prefix = in_folder("out"), .eod = 0};
    mt_index x;
    int32_t id;
    e = (mt_err){0};
    CHECK_INT(mt_text_pack(&o, &counts, &e), MT_OK);
    CHECK_INT(mt_index_open(&x, in_folder("out"), &e), MT_OK);
    CHECK_INT(x.n_documents, 2);
    CHECK_INT(mt_index_document_start(&x, 1), 300001);
    int64_t wrong = 0;
    for (int i = 0; i < 300000; i++)
        wrong += mt_index_read(&x, &id, i, 1, 256, &e) != MT_OK || id != i * 31 % 251;
    CHECK_INT(wrong, 0);
    CHECK_INT(x.n_tokens, 300004);
    mt_index_close(&x);
}

TEST(json_lines)
{
    PACK("a.jsonl", "{\"text\": \"one\\ntwo \\u00e9\"}\n\n{\"id\": 1, \"text\": \"\\\\u0000\"}", 0, NULL,
         256);
    holds("one\ntwo \xc3\xa9$|\\u0000$|");
    PACK("a.txt", "{\"body\": \"x\", \"text\": \"y\"}\n{\"body\": \"\"}\n", 0, "body", -1);
    holds("x|");
    CHECK_INT(counts.empty, 1);
}

#define REFUSE(text, message)                                                                \
    do {                                                                                     \
        CHECK_INT(pack("a.jsonl", text, sizeof(text) - 1, 0, NULL, -1), MT_DATA);            \
        if (!CHECK(strstr(e.msg, message))) printf("  %s\n", e.msg);                         \
        CHECK(access(in_folder("out.idx"), F_OK) && access(in_folder("out.bin.tmp"), F_OK)); \
    } while (0)

TEST(bad_json_names_file_and_line)
{
    REFUSE("{\"text\": \"a\"}\n{\"text\": \"b\"\n", "a.jsonl:2:");
    REFUSE("\n\n{\"text\": \"a\"} x\n", "a.jsonl:3:");
    REFUSE("{\"text\": \"a\n\"}\n", "a.jsonl:1:");
    REFUSE("{\"text\": 5}\n", "a.jsonl:1: no string under the key \"text\"");
    REFUSE("{\"Text\": \"a\"}\n", "no string under the key \"text\"");
    REFUSE("[\"text\"]\n", "no string under the key");
    REFUSE("{\"text\": \"a\\u0000b\"}\n", "NUL");
    REFUSE("{\"text\": \"a\0b\"}\n", "a.jsonl:1: holds a NUL");
    REFUSE("", "hold no text");
    REFUSE("{\"text\": \"\"}\n", "hold no text");
    static char deep[5000];
    memset(deep, '[', sizeof deep);
    CHECK_INT(pack("a.jsonl", deep, sizeof deep, 0, NULL, -1), MT_DATA);
}

TEST(files_that_are_not_there)
{
    const char *input = in_folder("none.txt");
    mt_text_options o = {.inputs = &input, .n_inputs = 1, .prefix = in_folder("out"), .eod = -1};
    e = (mt_err){0};
    CHECK_INT(mt_text_pack(&o, &counts, &e), MT_DATA);
    CHECK(strstr(e.msg, "none.txt: cannot open"));
    input = temporary_folder();
    e = (mt_err){0};
    CHECK_INT(mt_text_pack(&o, &counts, &e), MT_IO);
    o.prefix = in_folder("no/such/out");
    e = (mt_err){0};
    CHECK_INT(mt_text_pack(&o, &counts, &e), MT_IO);
    o.eod = -2;
    e = (mt_err){0};
    CHECK_INT(mt_text_pack(&o, &counts, &e), MT_CONFIG);
}

/* The tokens of a file by one thread, into ids; how many. */
static int64_t ids_of(const char *const *inputs, int64_t n_inputs, const mt_tokenizer *t, int threads,
                      int32_t *ids, int64_t room)
{
    mt_text_options o = {.inputs = inputs,
                         .n_inputs = n_inputs,
                         .prefix = in_folder("out"),
                         .unit = MT_DOCUMENT_LINE,
                         .eod = 1,
                         .tokenizer = t,
                         .threads = threads};
    mt_index x;
    e = (mt_err){0};
    if (!CHECK_INT(mt_text_pack(&o, &counts, &e), MT_OK) ||
        !CHECK_INT(mt_index_open(&x, in_folder("out"), &e), MT_OK))
        return -1;
    int64_t n = x.n_tokens < room ? x.n_tokens : room;
    CHECK_INT(mt_index_read(&x, ids, 0, n, INT32_MAX, &e), MT_OK);
    mt_index_close(&x);
    return n;
}

/* Lines of all lengths, among them some longer than a batch. */
static void write_lines(const char *path, int64_t lines)
{
    FILE *f = fopen(path, "wb");
    for (int64_t i = 0; f && i < lines; i++) {
        int64_t words = i % 1000 == 999 ? 300000 : i % 37;
        for (int64_t w = 0; w < words; w++) fprintf(f, "caf\xc3\xa9 %lld ", (long long)(i * w % 9973));
        fputc('\n', f);
    }
    CHECK(f && !fclose(f));
}

TEST(threads_and_compression_change_nothing)
{
    enum { ROOM = 40000000 };
    static int32_t one[ROOM], other[ROOM];
    char plain_path[200], packed_path[200], command[500];
    const char *plain = plain_path, *packed = packed_path;
    mt_tokenizer *t;
    e = (mt_err){0};
    if (!CHECK_INT(mt_tokenizer_open(&t, "tests/golden/tokenizer_llama3.json", &e), MT_OK)) return;
    snprintf(plain_path, sizeof plain_path, "%s", in_folder("lines.txt"));
    snprintf(packed_path, sizeof packed_path, "%s", in_folder("lines.txt.zst"));
    write_lines(plain, 3000);
    int64_t n = ids_of(&plain, 1, t, 1, one, ROOM);
    CHECK(n > 1000000 && n < ROOM);
    CHECK_INT(ids_of(&plain, 1, t, 3, other, ROOM), n);
    CHECK(!memcmp(one, other, (size_t)n * sizeof *one));
    CHECK_INT(counts.empty, 81); /* 82 lines are multiples of 37, one of them is long */
    snprintf(command, sizeof command, "zstd -q -f '%s' -o '%s'", plain, packed);
    if (!system(command)) {
        CHECK_INT(ids_of(&packed, 1, t, 2, other, ROOM), n);
        CHECK(!memcmp(one, other, (size_t)n * sizeof *one));
        CHECK_INT(truncate(packed, 5000), 0);
        mt_text_options o = {.inputs = &packed, .n_inputs = 1, .prefix = in_folder("out"), .eod = -1};
        e = (mt_err){0};
        CHECK_INT(mt_text_pack(&o, &counts, &e), MT_DATA);
        CHECK(strstr(e.msg, "lines.txt.zst: damaged") && strstr(e.msg, "within a frame"));
    }
    mt_tokenizer_close(t);
}

/* The committed tokenizer, with a regular expression that tries every way to cut a row of x in ones and twos. */
static mt_status open_exponential(mt_tokenizer **t)
{
    static char text[1 << 20], changed[1 << 20];
    static const char from[] = "\"Regex\":\"";
    FILE *f = fopen("tests/golden/tokenizer_llama3.json", "rb");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    char *at = strstr(text, from);
    if (!CHECK(f && !fclose(f) && at)) return MT_IO;
    int bytes = snprintf(changed, sizeof changed, "%.*s%s(?:x|xx)+y|%s", (int)(at - text), text, from,
                         at + strlen(from));
    e = (mt_err){0};
    return mt_tokenizer_parse(t, "slow.json", changed, bytes, &e);
}
TEST(a_regular_expression_that_gives_up_names_both_files)
{
    static const struct {
        mt_document_unit unit;
        const char *begin, *where;
    } places[] = {
        {MT_DOCUMENT_FILE, "", "row.txt:1: "},
        {MT_DOCUMENT_LINE, "short\n", "row.txt:2: "},
        {MT_DOCUMENT_BLANK, "a\nb\n\n\n", "row.txt:5: "},
    };
    static const char why[] = " by regular expression 0 of 'slow.json': match limit exceeded";
    const char *input = in_folder("row.txt");
    mt_tokenizer *t;
    if (!CHECK_INT(open_exponential(&t), MT_OK)) return;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char row[200];
        mt_text_options o = {.inputs = &input,
                             .n_inputs = 1,
                             .prefix = in_folder("out"),
                             .unit = places[i].unit,
                             .eod = -1,
                             .tokenizer = t};
        memset(row, 'x', sizeof row);
        memcpy(row, places[i].begin, strlen(places[i].begin));
        put_file(input, row, sizeof row);
        e = (mt_err){0};
        CHECK_INT(mt_text_pack(&o, &counts, &e), MT_DATA);
        if (!CHECK(strstr(e.msg, places[i].where) && strstr(e.msg, why))) printf("  %s\n", e.msg);
    }
    mt_tokenizer_close(t);
}

TEST(the_first_bad_line_is_told_whatever_thread_met_it)
{
    char path[200];
    const char *input = path;
    snprintf(path, sizeof path, "%s", in_folder("bad.jsonl"));
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < 60000; i++)
        fprintf(f, i == 40000 || i == 59000 ? "{\"text\": 1}\n" : "{\"text\": \"some text %d\"}\n", i);
    CHECK(f && !fclose(f));
    mt_text_options o = {
        .inputs = &input, .n_inputs = 1, .prefix = in_folder("out"), .eod = -1, .threads = 4};
    e = (mt_err){0};
    CHECK_INT(mt_text_pack(&o, &counts, &e), MT_DATA);
    CHECK(strstr(e.msg, "bad.jsonl:40001:"));
}

int main(void)
{
    RUN(threads_and_compression_change_nothing);
    RUN(a_regular_expression_that_gives_up_names_both_files);
    RUN(the_first_bad_line_is_told_whatever_thread_met_it);
    RUN(text_by_file_line_and_paragraph);
    RUN(several_files_and_a_long_one);
    RUN(json_lines);
    RUN(bad_json_names_file_and_line);
    RUN(files_that_are_not_there);
    remove_temporary_folder();
    return DONE();
}
