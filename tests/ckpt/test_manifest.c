/* The manifest: it is read as written or not at all. */
#include "ckpt/source.h"

#include "helper.h"

static mt_status parse(const void *p, size_t n, struct mt_manifest *m, mt_err *e)
{
    char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    memcpy(copy, p, n);
    *e = (mt_err){0};
    mt_status st = mt_manifest_parse(m, "FILE", copy, (int64_t)n, e);
    free(copy);
    return st;
}

static mt_status refuse(const void *p, size_t n, mt_err *e)
{
    struct mt_manifest m;
    mt_status st = parse(p, n, &m, e);
    mt_manifest_release(&m);
    return st;
}

/* `text` with its checksum put behind it, as docs/checkpoints.md says. */
static mt_status refuse_sealed(const char *text, mt_err *e)
{
    char *sealed = NULL;
    int front = asprintf(&sealed, "%s, \"xxh3\": \"", text);
    if (front < 0) abort();
    uint64_t sum = mt_xxh3(sealed, front);
    free(sealed);
    int n = asprintf(&sealed, "%s, \"xxh3\": \"%016" PRIx64 "\"}\n", text, sum);
    if (n < 0) abort();
    mt_status st = refuse(sealed, (size_t)n, e);
    free(sealed);
    return st;
}

static void write_example(struct bytes *b)
{
    mt_err e = {0};
    struct mt_manifest m = {.meta = {.step = 1234567, .tokens = INT64_C(9007199254740992)}, .world = 3};
    char path[160];
    CHECK_INT(mt_make_folders(run_folder(), &e), MT_OK);
    CHECK_INT(mt_manifest_add(&m, "rank-00000.safetensors", INT64_C(1) << 50, UINT64_MAX, &e), MT_OK);
    CHECK_INT(mt_manifest_add(&m, "config.yaml", 0, 7, &e), MT_OK);
    CHECK_INT(mt_manifest_write(&m, run_folder(), &e), MT_OK);
    mt_manifest_release(&m);
    snprintf(path, sizeof path, "%s/manifest.json", run_folder());
    CHECK(read_bytes(b, path));
    strcat(path, ".tmp");
    CHECK(!exists(path));
}

TEST(read_as_written)
{
    static struct bytes b;
    struct mt_manifest m;
    mt_err e = {0};
    write_example(&b);
    CHECK_INT(mt_manifest_parse(&m, "FILE", (const char *)b.at, (int64_t)b.n, &e), MT_OK);
    CHECK_INT(m.version, 2);
    CHECK_INT(m.meta.step, 1234567);
    CHECK_INT(m.meta.tokens, INT64_C(9007199254740992));
    CHECK_INT(m.world, 3);
    CHECK_INT(m.n, 2);
    CHECK_STR(m.file[0].name, "rank-00000.safetensors");
    CHECK_INT(m.file[0].bytes, INT64_C(1) << 50);
    CHECK(m.file[0].xxh3 == UINT64_MAX);
    CHECK(mt_manifest_find(&m, "config.yaml") == &m.file[1]);
    CHECK(!mt_manifest_find(&m, "config"));
    mt_manifest_release(&m);
}

TEST(every_bit_counts)
{
    static struct bytes b;
    mt_err e;
    write_example(&b);
    CHECK_INT(refuse(b.at, b.n, &e), MT_OK);
    for (size_t i = 0; i < 8 * b.n; i++) {
        b.at[i / 8] ^= (unsigned char)(1 << i % 8);
        if (!CHECK(failed_so(refuse(b.at, b.n, &e), &e, MT_CKPT, "'FILE'"))) printf("    byte %zu\n", i / 8);
        b.at[i / 8] ^= (unsigned char)(1 << i % 8);
    }
}

TEST(cut_or_longer)
{
    static struct bytes b;
    mt_err e;
    write_example(&b);
    for (size_t n = 0; n < b.n; n++) CHECK(failed_so(refuse(b.at, n, &e), &e, MT_CKPT, "'FILE'"));
    for (int c = 0; c < 256; c++) {
        b.at[b.n] = (unsigned char)c;
        CHECK(failed_so(refuse(b.at, b.n + 1, &e), &e, MT_CKPT, "'FILE'"));
    }
}

#define FRONT "{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 5, \"tokens\": 6, \"world\": 1"
#define ENTRY(name, bytes, sum) "{\"name\": " name ", \"bytes\": " bytes ", \"xxh3\": " sum "}"
#define SUM "\"0123456789abcdef\""
TEST(contents_refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"format\": \"other\", \"version\": 1", "no manifest of a moetitan checkpoint"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 3",
         "no manifest of a moetitan checkpoint, version 1 or 2"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 0",
         "no manifest of a moetitan checkpoint, version 1 or 2"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 5, \"tokens\": 6, \"world\": 2",
         "version 1 is of one rank, and this of 2"},
        {"{\"version\": 1", "no manifest"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": -1, \"tokens\": 6, \"world\": 1",
         "no count"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 1.5, \"tokens\": 6, \"world\": 1",
         "no count"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 1, \"tokens\": 1e17, \"world\": 1",
         "no count"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 1, \"tokens\": \"6\", \"world\": 1",
         "no count"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 1, \"tokens\": 6, \"world\": 0",
         "no count"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 1, \"tokens\": 6, \"world\": 1e9",
         "no count"},
        {"{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": 1, \"tokens\": 6", "no count"},
        {FRONT, "the list of files is missing"},
        {FRONT ", \"files\": []", "the list of files is missing"},
        {FRONT ", \"files\": {\"a\": 1}", "the list of files is missing"},
        {FRONT ", \"files\": [7]", "entry 0 of the files"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1", SUM) ", " ENTRY("\"\"", "1", SUM) "]",
         "entry 1 of the files"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1", SUM) ", " ENTRY("\"b\"", "1",
                                                                    SUM) ", " ENTRY("\"a\"", "2", SUM) "]",
         "lists the file a twice"},
        {FRONT ", \"files\": [" ENTRY("\"../a\"", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"/etc/passwd\"", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a/b\"", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"..\"", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\".hidden\"", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"0123456789012345678901234567890123456789012345678901234567890123\"",
                                      "1", SUM) "]",
         "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\\u001b\"", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("7", "1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "-1", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1e300", SUM) "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1", "\"123\"") "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1", "\"0123456789abcdeg\"") "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1", "\" 123456789abcdef\"") "]", "entry 0"},
        {FRONT ", \"files\": [" ENTRY("\"a\"", "1", "\"0123456789abcdef0\"") "]", "entry 0"},
    };
    mt_err e;
    CHECK_INT(refuse_sealed(FRONT ", \"files\": [" ENTRY("\"a\"", "1", SUM) "]", &e), MT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK(failed_so(refuse_sealed(bad[i].text, &e), &e, MT_CKPT, bad[i].says)))
            printf("    manifest: %s\n", bad[i].text);
    static const char open[] = FRONT ", \"files\": [" ENTRY("\"a\"", "1", SUM) "]}\n";
    CHECK(
        failed_so(refuse(open, sizeof open - 1, &e), &e, MT_CKPT, "does not end with a checksum of itself"));
}

TEST(missing)
{
    struct mt_source c;
    mt_err e = {0};
    CHECK(failed_so(mt_source_open(&c, "/nonexistent", &e), &e, MT_CKPT, "/nonexistent/manifest.json"));
    /* A pipe in its place: refused, not waited for. */
    char path[160];
    e = (mt_err){0};
    CHECK_INT(mt_make_folders(run_folder(), &e), MT_OK);
    snprintf(path, sizeof path, "%s/manifest.json", run_folder());
    CHECK(!mkfifo(path, 0644));
    CHECK(failed_so(mt_source_open(&c, run_folder(), &e), &e, MT_CKPT, "is not a file"));
}

int main(void)
{
    RUN(read_as_written);
    RUN(every_bit_counts);
    RUN(cut_or_longer);
    RUN(contents_refused);
    RUN(missing);
    remove_temporary_folder();
    return DONE();
}
