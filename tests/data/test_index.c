#include "data/index.h"
#include "data/writer.h"
#include "files.h"

#include <fcntl.h>

static const int32_t lengths[] = {3, 0, 2, 4};
static const int64_t documents[] = {0, 1, 1, 3, 4}; /* of 3, 0, 2 and 4 tokens */

static raw_index sound(void)
{
    return raw_make(8, 2, lengths, 4, documents, 5);
}

static mt_status parse(const raw_index *r, int64_t bin_bytes, mt_index *x, mt_err *e)
{
    static char idx[] = "a.idx", bin[] = "a.bin";
    *x = (mt_index){.idx_path = idx,
                    .bin_path = bin,
                    .idx_file = {.at = r->bytes, .bytes = r->n},
                    .bin_file = {.bytes = bin_bytes}};
    *e = (mt_err){0};
    return mt_index_parse(x, e);
}

/* The damaged index must be refused with a message that holds both the file and `part`. */
static void refuse(const raw_index *r, int64_t bin_bytes, const char *part)
{
    mt_index x;
    mt_err e;
    CHECK_INT(parse(r, bin_bytes, &x, &e), MT_DATA);
    if (!CHECK(strstr(e.msg, part) && (strstr(e.msg, "a.idx") || strstr(e.msg, "a.bin"))))
        printf("  wanted \"%s\" in: %s\n", part, e.msg);
    CHECK(!strchr(e.msg, '\n'));
}

TEST(a_sound_index)
{
    raw_index r = sound();
    mt_index x;
    mt_err e;
    CHECK_INT(parse(&r, 18, &x, &e), MT_OK);
    CHECK_INT(x.n_sequences, 4);
    CHECK_INT(x.n_documents, 4);
    CHECK_INT(x.n_tokens, 9);
    CHECK_INT(x.width, 2);
    CHECK_INT(mt_index_length(&x, 3), 4);
    const int64_t start[] = {0, 3, 3, 5, 9};
    for (int d = 0; d <= 4; d++) CHECK_INT(mt_index_document_start(&x, d), start[d]);
    const int64_t at[] = {0, 0, 0, 2, 2, 3, 3, 3, 3}; /* never the empty document 1 */
    for (int p = 0; p < 9; p++) CHECK_INT(mt_index_document_at(&x, p), at[p]);
    unsigned char modes[4] = {0};
    raw_put(&r, modes, 4);
    CHECK_INT(parse(&r, 18, &x, &e), MT_OK); /* the optional modes */
}

TEST(damaged_headers)
{
    raw_index r = sound(), cut;
    for (int64_t n = 0; n < r.n; n++) { /* cut anywhere */
        cut = r;
        cut.n = n;
        refuse(&cut, 18, "a.idx");
    }
    cut = r;
    cut.bytes[3] = 'x';
    refuse(&cut, 18, "does not begin with MMIDIDX");
    cut = r;
    cut.bytes[9] = 2;
    refuse(&cut, 18, "format version 2, expected 1");
    for (int code = 0; code < 256; code++) {
        if ((code >= 1 && code <= 5) || code == 8) continue;
        cut = r;
        cut.bytes[17] = (unsigned char)code;
        refuse(&cut, 18, "token type code");
    }
    cut = r;
    raw_put(&cut, "?", 1);
    refuse(&cut, 18, "truncated or damaged");
}

TEST(counts_that_overflow)
{
    const uint64_t wild[] = {5,
                             UINT64_MAX,
                             UINT64_C(1) << 63,
                             INT64_MAX,
                             INT64_MAX / 8,
                             INT64_MAX / 12,
                             INT64_MAX / 12 + 1,
                             UINT64_C(0x1555555555555556)};
    for (int i = 0; i < 8; i++)
        for (int field = 18; field <= 26; field += 8) {
            raw_index r = sound();
            memcpy(r.bytes + field, &wild[i], 8);
            if (field == 26 && wild[i] == 5) continue; /* the true count */
            refuse(&r, 18, "a.idx");
        }
}

TEST(damaged_sequences)
{
    raw_index r = sound();
    int32_t n = -1;
    memcpy(r.bytes + 34 + 4, &n, 4);
    refuse(&r, 18, "sequence 1: negative length -1");
    r = sound();
    int64_t offset = -2;
    memcpy(r.bytes + 34 + 16 + 8, &offset, 8);
    refuse(&r, 18, "sequence 1: offset -2, expected 6");
    offset = 8;
    memcpy(r.bytes + 34 + 16 + 8, &offset, 8);
    refuse(&r, 18, "sequence 1: offset 8, expected 6");
    r = sound();
    refuse(&r, 17, "sequence 3: 4 tokens of 2 bytes at offset 10 reach past the end");
    refuse(&r, 0, "reach past the end");
    refuse(&r, 20, "do not belong together");
    n = INT32_MAX;
    memcpy(r.bytes + 34 + 12, &n, 4);
    refuse(&r, 18, "reach past the end");
}

TEST(damaged_documents)
{
    const struct {
        int64_t bounds[5];
        const char *message;
    } wrong[] = {{{1, 1, 1, 3, 4}, "document entry 0: 1, expected 0"},
                 {{0, 2, 1, 3, 4}, "document entry 2: sequence 1, expected 2 to 4"},
                 {{0, 1, 5, 5, 5}, "document entry 2: sequence 5"},
                 {{0, -1, 1, 3, 4}, "document entry 1: sequence -1"},
                 {{0, 1, 1, 3, 3}, "last document entry: 3"}};
    for (int i = 0; i < 5; i++) {
        raw_index r = raw_make(8, 2, lengths, 4, wrong[i].bounds, 5);
        refuse(&r, 18, wrong[i].message);
    }
    raw_index none = raw_make(8, 2, lengths, 4, documents, 1);
    refuse(&none, 18, "holds no documents");
    none = raw_make(8, 2, lengths, 0, documents, 2);
    refuse(&none, 0, "holds no documents");
    const int32_t zero[] = {0, 0};
    const int64_t bounds[] = {0, 1, 2};
    none = raw_make(8, 2, zero, 2, bounds, 3);
    refuse(&none, 0, "holds no tokens");
}

TEST(missing_files)
{
    mt_index x;
    mt_err e = {0};
    CHECK_INT(mt_index_open(&x, in_folder("nothing"), &e), MT_DATA);
    CHECK(strstr(e.msg, "nothing.idx: cannot open"));
    raw_index r = sound();
    put_file(in_folder("half.idx"), r.bytes, r.n);
    e = (mt_err){0};
    CHECK_INT(mt_index_open(&x, in_folder("half"), &e), MT_DATA);
    CHECK(strstr(e.msg, "half.bin: cannot open"));
    put_file(in_folder("half.bin"), "", 0);
    e = (mt_err){0};
    CHECK_INT(mt_index_open(&x, in_folder("half"), &e), MT_DATA);
    CHECK(strstr(e.msg, "reach past the end"));
    e = (mt_err){0};
    CHECK_INT(mt_index_open(&x, temporary_folder(), &e), MT_DATA);
    CHECK(!x.idx_path && !x.idx_file.at);
}

/* Every token type returns what was stored, and refuses what is no id of the vocabulary. */
TEST(every_token_type)
{
    const int32_t n = 3;
    const int64_t bounds[] = {0, 1};
    const struct {
        int code, width;
        int64_t good, bad;
    } type[] = {{1, 1, 255, -1},
                {2, 1, 127, -1},
                {3, 2, 32767, -1},
                {4, 4, 99999, -5},
                {5, 8, 99999, INT64_C(1) << 40},
                {8, 2, 65535, -1}};
    for (int i = 0; i < 6; i++) {
        raw_index r = raw_make(type[i].code, type[i].width, &n, 1, bounds, 2);
        int64_t ids[] = {0, type[i].good, 1};
        unsigned char bin[24];
        for (int t = 0; t < 3; t++) memcpy(bin + t * type[i].width, &ids[t], (size_t)type[i].width);
        put_file(in_folder("t.idx"), r.bytes, r.n);
        put_file(in_folder("t.bin"), bin, 3 * type[i].width);
        mt_index x;
        mt_err e = {0};
        int32_t got[3];
        CHECK_INT(mt_index_open(&x, in_folder("t.bin"), &e), MT_OK);
        CHECK_INT(mt_index_read(&x, got, 0, 3, 100000, &e), MT_OK);
        CHECK(got[0] == 0 && got[1] == type[i].good && got[2] == 1);
        CHECK_INT(mt_index_read(&x, got, 0, 3, type[i].good, &e), MT_DATA);
        CHECK(strstr(e.msg, "at position 1 (document 0, its token 1)") && strstr(e.msg, "t.bin"));
        mt_index_close(&x);
        if (type[i].code == 1 || type[i].code == 8) continue; /* has no negative ids */
        memcpy(bin + 2 * type[i].width, &type[i].bad, (size_t)type[i].width);
        put_file(in_folder("t.bin"), bin, 3 * type[i].width);
        e = (mt_err){0};
        CHECK_INT(mt_index_open(&x, in_folder("t"), &e), MT_OK);
        CHECK_INT(mt_index_read(&x, got, 0, 3, INT32_MAX, &e), MT_DATA);
        CHECK(strstr(e.msg, "position 2"));
        mt_index_close(&x);
    }
}

/* More than 2^31 tokens in three sequences, in a sparse file with a few real tokens at the end. */
TEST(past_two_to_the_31_tokens)
{
    const int32_t n[] = {INT32_MAX, 1500000000, 1000};
    const int64_t bounds[] = {0, 1, 3}, total = INT64_C(2147483647) + 1500000000 + 1000;
    const uint16_t last[] = {11, 12, 13, 14};
    raw_index r = raw_make(8, 2, n, 3, bounds, 3);
    put_file(in_folder("big.idx"), r.bytes, r.n);
    int fd = open(in_folder("big.bin"), O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, 2 * total)) {
        close(fd);
        unlink(in_folder("big.bin"));
        SKIP("no sparse file of %lld bytes in /tmp", 2 * (long long)total);
    }
    CHECK_INT(pwrite(fd, last, 8, 2 * (total - 4)), 8);
    close(fd);
    mt_index x;
    mt_err e = {0};
    int32_t got[4];
    CHECK_INT(mt_index_open(&x, in_folder("big"), &e), MT_OK);
    CHECK_INT(x.n_tokens, total);
    CHECK_INT(mt_index_document_start(&x, 1), INT32_MAX);
    CHECK_INT(mt_index_document_at(&x, total - 1), 1);
    CHECK_INT(mt_index_document_at(&x, INT32_MAX - 1), 0);
    CHECK_INT(mt_index_document_at(&x, INT32_MAX), 1);
    CHECK_INT(mt_index_read(&x, got, total - 4, 4, 100, &e), MT_OK);
    for (int i = 0; i < 4; i++) CHECK_INT(got[i], last[i]);
    CHECK_INT(mt_index_read(&x, got, total - 4, 4, 14, &e), MT_DATA);
    CHECK(strstr(e.msg, "at position 3647484646 (document 1, its token 1500000999)"));
    mt_index_close(&x);
    unlink(in_folder("big.bin"));
}

static void write_and_read(int64_t vocab, int code, int32_t top)
{
    mt_index_writer *w;
    mt_index x;
    mt_err e = {0};
    int32_t ids[5000], got[5000];
    for (int i = 0; i < 5000; i++) ids[i] = (int32_t)(i * 7919 % top);
    CHECK_INT(mt_index_writer_open(&w, in_folder("w"), vocab, &e), MT_OK);
    CHECK(access(in_folder("w.bin.tmp"), F_OK) == 0);
    CHECK_INT(mt_index_writer_tokens(w, ids, 4997, &e), MT_OK);
    CHECK_INT(mt_index_writer_end_document(w, &e), MT_OK);
    CHECK_INT(mt_index_writer_end_document(w, &e), MT_OK);
    CHECK_INT(mt_index_writer_tokens(w, ids + 4997, 3, &e), MT_OK);
    CHECK_INT(mt_index_writer_end_document(w, &e), MT_OK);
    CHECK_INT(mt_index_writer_close(w, &e), MT_OK);
    CHECK(access(in_folder("w.bin.tmp"), F_OK) && access(in_folder("w.idx.tmp"), F_OK));
    const int32_t written[] = {4997, 0, 3};
    const int64_t bounds[] = {0, 1, 2, 3};
    raw_index want = raw_make(code, code == 8 ? 2 : 4, written, 3, bounds, 4);
    unsigned char bytes[512];
    CHECK_INT(get_file(in_folder("w.idx"), bytes, sizeof bytes), want.n);
    CHECK(!memcmp(bytes, want.bytes, (size_t)want.n));
    CHECK_INT(mt_index_open(&x, in_folder("w"), &e), MT_OK);
    CHECK_INT(x.type, code);
    CHECK_INT(x.n_documents, 3);
    CHECK_INT(mt_index_document_start(&x, 2), 4997);
    CHECK_INT(mt_index_read(&x, got, 0, 5000, vocab, &e), MT_OK);
    CHECK(!memcmp(got, ids, sizeof ids));
    mt_index_close(&x);
}

TEST(the_writer_chooses_a_type)
{
    write_and_read(65499, 8, 65499);
    write_and_read(65500, 4, 65500);
    write_and_read(200000, 4, 200000);
    mt_index_writer *w;
    mt_err e = {0};
    CHECK_INT(mt_index_writer_open(&w, in_folder("no/such/w"), 256, &e), MT_IO);
    CHECK(!w && strstr(e.msg, "no/such/w.bin.tmp"));
}

TEST(a_discarded_writer_leaves_the_old_files)
{
    mt_index_writer *w;
    mt_err e = {0};
    const int32_t id = 1;
    char before[512], after[512];
    write_and_read(256, 8, 256);
    int64_t n = get_file(in_folder("w.idx"), before, sizeof before);
    CHECK_INT(mt_index_writer_open(&w, in_folder("w"), 256, &e), MT_OK);
    CHECK_INT(mt_index_writer_tokens(w, &id, 1, &e), MT_OK);
    mt_index_writer_discard(w);
    CHECK(access(in_folder("w.bin.tmp"), F_OK) && access(in_folder("w.idx.tmp"), F_OK));
    CHECK_INT(get_file(in_folder("w.idx"), after, sizeof after), n);
    CHECK(!memcmp(before, after, (size_t)n));
}

int main(void)
{
    RUN(a_sound_index);
    RUN(damaged_headers);
    RUN(counts_that_overflow);
    RUN(damaged_sequences);
    RUN(damaged_documents);
    RUN(missing_files);
    RUN(every_token_type);
    RUN(past_two_to_the_31_tokens);
    RUN(the_writer_chooses_a_type);
    RUN(a_discarded_writer_leaves_the_old_files);
    remove_temporary_folder();
    return DONE();
}
