/* test: timeout=60 variants=release,asan,aarch64,tsan */
/* Blends take sources in the order of Megatron's, at any position; files of llm.c are read, damaged ones refused. */
#include "data/corpus.h"
#include "files.h"

/* ---- the order ---- */
static void order(const double *weight, int n, const char *want)
{
    mt_blend b;
    mt_err e = {0};
    int64_t within, taken[8] = {0};
    CHECK_INT(mt_blend_open(&b, n, weight, false, 12, &e), MT_OK);
    for (int64_t s = 0; s < 12; s++) {
        int i = mt_blend_at(&b, s, &within);
        CHECK_INT(i, want[s] - '0');
        CHECK_INT(within, taken[i]++);
    }
    mt_blend_close(&b);
}
/* What megatron-core 0.16.1 builds for these weights. */
TEST(order_of_megatron)
{
    order((double[]){0.7, 0.3}, 2, "010010010001");
    order((double[]){7, 3}, 2, "010010010001");
    order((double[]){0.5, 0.3, 0.2}, 3, "012010201001");
}

TEST(any_position_is_what_walking_there_gives)
{
    enum { N = 7, MOST = 3 * MT_BLEND_BLOCK + 100 };
    double weight[N], sum = 0;
    static int source[2 * MOST];
    static int64_t number[2 * MOST];
    int64_t taken[N] = {0}, within;
    for (int i = 0; i < N; i++) sum += weight[i] = 1 + i * 37 % 11;
    for (int64_t s = 0; s < 2 * MOST; s++) { /* the rule, plainly */
        int best = 0;
        for (int i = 1; i < N; i++) {
            double at = s ? (double)s : 1;
            if (weight[i] / sum * at - (double)taken[i] > weight[best] / sum * at - (double)taken[best])
                best = i;
        }
        source[s] = best;
        number[s] = taken[best]++;
    }
    mt_blend b;
    mt_err e = {0};
    int64_t wrong = 0;
    CHECK_INT(mt_blend_open(&b, N, weight, true, MOST, &e), MT_OK);
    for (int64_t k = 0; k < 3000; k++) { /* also beyond what was announced */
        int64_t s = k * 7919 * 13 % (2 * MOST);
        wrong += mt_blend_at(&b, s, &within) != source[s] || within != number[s];
    }
    for (int64_t s = 0; s < 2 * MOST; s++)
        wrong += mt_blend_at(&b, s, &within) != source[s] || within != number[s];
    CHECK_INT(wrong, 0);
    mt_blend_close(&b);
}

/* ---- files ---- */
/* A .bin of llm.c, of tokens first, first + 1, ...; wide: the form with 32 bits. */
static const char *put_llmc(const char *name, bool wide, int32_t first, int32_t n, int32_t version,
                            int32_t told)
{
    static unsigned char bytes[1024 + 4 * 4096];
    int32_t head[256] = {wide ? 20240801 : 20240520, version, told};
    memcpy(bytes, head, 1024);
    for (int32_t i = 0; i < n; i++) {
        int32_t t = first + i;
        memcpy(bytes + 1024 + i * (wide ? 4 : 2), &t, wide ? 4 : 2);
    }
    put_file(in_folder(name), bytes, 1024 + n * (wide ? 4 : 2));
    return in_folder(name);
}

static mt_corpus_options options(const mt_corpus_part *part, int n, double valid_fraction)
{
    return (mt_corpus_options){.part = part,
                               .n = n,
                               .valid_fraction = valid_fraction,
                               .seed = 3,
                               .most = 1000,
                               .rules = {.seq_len = 10, .vocab = 200000, .eod = -1, .document_mask = true}};
}

TEST(files_of_llmc)
{
    for (int wide = 0; wide < 2; wide++) {
        mt_index x;
        mt_err e = {0};
        int32_t t[3];
        const char *path = put_llmc("l.bin", wide, wide ? 100000 : 500, 1001, wide ? 7 : 1, 1001);
        if (!CHECK_INT(mt_index_open(&x, path, &e), MT_OK)) continue;
        CHECK_INT(x.n_tokens, 1001);
        CHECK_INT(x.n_documents, 1);
        CHECK_INT(mt_index_length(&x, 0), 1001);
        CHECK_INT(mt_index_document_start(&x, 1), 1001);
        CHECK_INT(mt_index_document_at(&x, 700), 0);
        CHECK_INT(mt_index_read(&x, t, 998, 3, 200000, &e), MT_OK);
        CHECK_INT(t[2], (wide ? 100000 : 500) + 1000);
        CHECK_INT(mt_index_read(&x, t, 998, 3, (wide ? 100000 : 500) + 1000, &e), MT_DATA);
        CHECK(strstr(e.msg, "l.bin: token id") && strstr(e.msg, "at position 1000"));
        mt_index_close(&x);
    }
}

static void refuse(const char *path, const char *message)
{
    mt_index x;
    mt_err e = {0};
    CHECK_INT(mt_index_open(&x, path, &e), MT_DATA);
    if (!CHECK(strstr(e.msg, message))) printf("  %s\n", e.msg);
}
TEST(damaged_files_of_llmc)
{
    refuse(put_llmc("d.bin", false, 0, 100, 7, 100),
           "d.bin: byte 4: version 7 of llm.c's format, expected 1");
    refuse(put_llmc("d.bin", true, 0, 100, 7, 101),
           "101 tokens of 4 bytes need a file of 1428 bytes, this one has 1424");
    refuse(put_llmc("d.bin", false, 0, 100, 1, -5), "d.bin: byte 8: -5 tokens");
    refuse(put_llmc("d.bin", false, 0, 0, 1, 0), "d.bin: byte 8: 0 tokens");
    put_llmc("d.bin", false, 0, 100, 1, 100);
    CHECK_INT(truncate(in_folder("d.bin"), 1000), 0);
    refuse(in_folder("d.bin"), "too short for the header");
    put_file(in_folder("e.bin"), "xxxxxxxx", 8);
    refuse(in_folder("e.bin"), "e.idx: cannot open");
}

/* Each part's samples come in its own shuffled order, all of them once an epoch, and no sample of validation among them. */
TEST(parts_keep_their_samples_apart)
{
    mt_corpus_part part[2];
    mt_corpus c;
    mt_err e = {0};
    char path[2][300];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s",
                 put_llmc(i ? "b.bin" : "a.bin", i, i * 10000, i ? 2001 : 501, i ? 7 : 1, i ? 2001 : 501));
        part[i] = (mt_corpus_part){path[i], i ? 3 : 1};
    }
    mt_corpus_options o = options(part, 2, 0.1);
    if (!CHECK_INT(mt_corpus_open(&c, &o, &e), MT_OK)) return;
    CHECK_INT(c.n_train, 45 + 180);
    CHECK_INT(c.n_valid, 5 + 20);
    int seen[2][180] = {{0}};
    for (int64_t s = 0; s < 240; s++) {
        int64_t unit;
        const mt_split *split = mt_corpus_train(&c, s, &unit);
        int k = split == &c.source[1].train;
        if (CHECK(unit >= 0 && unit < split->count)) seen[k][unit]++;
    }
    for (int i = 0; i < 45; i++) CHECK(seen[0][i] >= 1 && seen[0][i] <= 2); /* 60 samples of 45 */
    for (int i = 0; i < 180; i++) CHECK_INT(seen[1][i], 1);                 /* 180 of 180 */
    int valid[2] = {0};
    for (int64_t s = 0; s < c.n_valid; s++) {
        int64_t unit;
        valid[mt_corpus_valid(&c, s, &unit) == &c.source[1].valid]++;
    }
    CHECK(valid[0] == 5 && valid[1] == 20);
    CHECK_INT(mt_corpus_check(&c, &e), MT_OK);
    CHECK_INT(truncate(path[1], 5000), 0);
    CHECK_INT(mt_corpus_check(&c, &e), MT_DATA);
    mt_corpus_close(&c);
}

TEST(weights_for_all_or_for_none)
{
    mt_corpus c;
    mt_err e = {0};
    char path[300];
    snprintf(path, sizeof path, "%s", put_llmc("a.bin", false, 0, 501, 1, 501));
    mt_corpus_part part[2] = {{path, 1}, {path, 0}};
    mt_corpus_options o = options(part, 2, 0);
    CHECK_INT(mt_corpus_open(&c, &o, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "give one to each, or to none"));
    mt_corpus_close(&c);
}

int main(void)
{
    RUN(order_of_megatron);
    RUN(any_position_is_what_walking_there_gives);
    RUN(files_of_llmc);
    RUN(damaged_files_of_llmc);
    RUN(parts_keep_their_samples_apart);
    RUN(weights_for_all_or_for_none);
    remove_temporary_folder();
    return DONE();
}
