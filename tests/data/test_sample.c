#include "data/sample.h"
#include "files.h"

enum { MOST = 64 };

typedef struct filled {
    int32_t tokens[MOST], labels[MOST], begin[MOST], pos[MOST];
    int64_t n_labels;
} filled;

static mt_index x;

/* Ids 10, 11, ... in documents of `lengths`; the index stays open in `x` until the next call. */
static void open_counting(const int32_t *lengths, int64_t documents)
{
    static bool open;
    uint16_t ids[256];
    mt_err e = {0};
    for (int i = 0; i < 256; i++) ids[i] = (uint16_t)(10 + i);
    if (open) mt_index_close(&x);
    open = mt_index_open(&x, put_u16("s", ids, lengths, documents), &e) == MT_OK;
    if (!CHECK(open)) printf("  %s\n", e.msg);
}

static filled fill(const mt_split *split, const mt_sample_rules *rules, int64_t unit, int32_t base)
{
    filled f;
    mt_err e = {0};
    memset(&f, 0x55, sizeof f);
    f.n_labels = 0;
    mt_sample out = {f.tokens, f.labels, f.begin, f.pos};
    CHECK_INT(mt_sample_fill(split, rules, &out, &f.n_labels, unit, base, &e), MT_OK);
    CHECK(f.tokens[rules->seq_len] == 0x55555555 && f.labels[rules->seq_len] == 0x55555555);
    CHECK(f.begin[rules->seq_len] == 0x55555555 && f.pos[rules->seq_len] == 0x55555555);
    return f;
}

static void same(const int32_t *got, const int32_t *want, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i]) {
            CHECK_INT(got[i], want[i]);
            printf("  %s[%lld]\n", what, (long long)i);
        }
}

TEST(windows_by_hand)
{
    const int32_t lengths[] = {3, 5, 0, 0, 4}; /* positions 0-2, 3-7, 8-11 */
    open_counting(lengths, 5);
    mt_sample_rules rules = {
        .seq_len = 5, .vocab = 100, .eod = -1, .document_mask = true, .reset_positions = true};
    mt_split train, valid;
    mt_err e = {0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_OK);
    CHECK_INT(train.count, 2); /* (12 - 1) / 5 */
    CHECK_INT(valid.count, 0);

    filled f = fill(&train, &rules, 0, 0);
    same(f.tokens, (int32_t[]){10, 11, 12, 13, 14}, 5, "tokens");
    same(f.labels, (int32_t[]){11, 12, -1, 14, 15}, 5, "labels");
    same(f.begin, (int32_t[]){0, 0, 0, 3, 3}, 5, "begin");
    same(f.pos, (int32_t[]){0, 1, 2, 0, 1}, 5, "pos");
    CHECK_INT(f.n_labels, 4);

    f = fill(&train, &rules, 1, 100); /* goes over the empty documents */
    same(f.tokens, (int32_t[]){15, 16, 17, 18, 19}, 5, "tokens");
    same(f.labels, (int32_t[]){16, 17, -1, 19, 20}, 5, "labels");
    same(f.begin, (int32_t[]){100, 100, 100, 103, 103}, 5, "begin");
    same(f.pos, (int32_t[]){0, 1, 2, 0, 1}, 5, "pos");
    CHECK_INT(f.n_labels, 4);

    open_counting((int32_t[]){1, 0, 0, 2, 0, 9}, 6); /* documents end behind empty ones */
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_OK);
    f = fill(&train, &rules, 0, 0);
    same(f.labels, (int32_t[]){-1, 12, -1, 14, 15}, 5, "labels");
    same(f.begin, (int32_t[]){0, 1, 1, 3, 3}, 5, "begin");
}

TEST(masks_and_positions_are_options)
{
    const int32_t lengths[] = {3, 5, 0, 4};
    open_counting(lengths, 4);
    mt_sample_rules rules = {.seq_len = 5, .vocab = 100, .eod = -1};
    mt_split train, valid;
    mt_err e = {0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_OK);
    filled f = fill(&train, &rules, 0, 40);
    same(f.begin, (int32_t[]){40, 40, 40, 40, 40}, 5, "begin");
    same(f.pos, (int32_t[]){0, 1, 2, 3, 4}, 5, "pos");
    same(f.labels, (int32_t[]){11, 12, -1, 14, 15}, 5, "labels");
    rules.reset_positions = true;
    f = fill(&train, &rules, 0, 40);
    same(f.begin, (int32_t[]){40, 40, 40, 40, 40}, 5, "begin");
    same(f.pos, (int32_t[]){0, 1, 2, 0, 1}, 5, "pos");
}

TEST(an_id_ends_documents)
{
    const int32_t lengths[] = {11};
    open_counting(lengths, 1);
    mt_sample_rules rules = {
        .seq_len = 10, .vocab = 100, .eod = 13, .document_mask = true, .reset_positions = true};
    mt_split train, valid;
    mt_err e = {0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_OK);
    filled f = fill(&train, &rules, 0, 0);
    same(f.labels, (int32_t[]){11, 12, 13, -1, 15, 16, 17, 18, 19, 20}, 10, "labels");
    same(f.begin, (int32_t[]){0, 0, 0, 0, 4, 4, 4, 4, 4, 4}, 10, "begin");
    same(f.pos, (int32_t[]){0, 1, 2, 3, 0, 1, 2, 3, 4, 5}, 10, "pos");
}

/* Inputs of all windows of both splits: each token once, in order; training never sees a validation token. */
TEST(windows_cover_each_token_once)
{
    const int32_t lengths[] = {50, 1, 1, 70, 79};
    open_counting(lengths, 5); /* 201 tokens */
    mt_sample_rules rules = {.seq_len = 8, .vocab = 1000, .eod = -1, .document_mask = true};
    mt_split split[2];
    mt_err e = {0};
    CHECK_INT(mt_split_cut(&split[0], &split[1], &x, NULL, &rules, 0.2, &e), MT_OK);
    CHECK_INT(split[0].count, 20);
    CHECK_INT(split[1].count, 5);
    int next = 10, most_trained = 0;
    for (int s = 0; s < 2; s++)
        for (int64_t u = 0; u < split[s].count; u++) {
            filled f = fill(&split[s], &rules, u, 0);
            for (int i = 0; i < 8; i++) {
                CHECK_INT(f.tokens[i], next++);
                if (!s && f.tokens[i] > most_trained) most_trained = f.tokens[i];
                if (!s && f.labels[i] > most_trained) most_trained = f.labels[i];
            }
        }
    CHECK_INT(next, 10 + 200);
    CHECK_INT(most_trained, 10 + 159);
    CHECK_INT(fill(&split[0], &rules, 19, 0).labels[7], -1); /* its label would be of the other split */
    CHECK_INT(fill(&split[1], &rules, 0, 0).tokens[0], 10 + 160);
    char seen[20] = {0};
    for (int64_t i = 0; i < 20; i++) seen[mt_split_shuffled(&split[0], 9, 40 + i)]++; /* the third epoch */
    for (int i = 0; i < 20; i++) CHECK_INT(seen[i], 1);
}

TEST(splits_that_cannot_be)
{
    const int32_t lengths[] = {17};
    open_counting(lengths, 1);
    mt_sample_rules rules = {.seq_len = 17, .vocab = 1000, .eod = -1};
    mt_split train, valid;
    mt_err e = {0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_DATA);
    CHECK(strstr(e.msg, "17 tokens are fewer than train.seq_len + 1 = 18"));
    rules.seq_len = 16;
    e = (mt_err){0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_OK);
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0.01, &e), MT_DATA);
    CHECK(strstr(e.msg, "leaves none to train on"));
    rules.seq_len = 8;
    e = (mt_err){0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0.01, &e), MT_OK); /* at least one unit */
    CHECK_INT(valid.count, 1);
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, (double)NAN, &e), MT_CONFIG);
}

TEST(ids_outside_the_vocabulary)
{
    const int32_t lengths[] = {4, 5};
    open_counting(lengths, 2);
    mt_sample_rules rules = {.seq_len = 4, .vocab = 14, .eod = -1};
    mt_split train, valid;
    mt_err e = {0};
    filled f;
    mt_sample out = {f.tokens, f.labels, f.begin, f.pos};
    CHECK_INT(mt_split_cut(&train, &valid, &x, NULL, &rules, 0, &e), MT_OK);
    CHECK_INT(mt_sample_fill(&train, &rules, &out, &f.n_labels, 0, 0, &e), MT_DATA); /* as the label behind */
    CHECK(strstr(e.msg, "s.bin: token id 14 at position 4 (document 1, its token 0)"));
}

TEST(packed_by_hand)
{
    const int32_t lengths[] = {3, 7, 2, 1}; /* T = 5: pieces 3, 5 + 2, 2, 1 */
    open_counting(lengths, 4);
    mt_bins bins;
    mt_err e = {0};
    CHECK_INT(mt_bins_write(&x, in_folder("s"), 5, &e), MT_OK);
    CHECK_INT(mt_bins_open(&bins, &x, in_folder("s"), 5, &e), MT_OK);
    CHECK_INT(bins.n_bins, 3); /* 5 | 3 + 2 | 2 + 1 */
    mt_sample_rules rules = {
        .seq_len = 5, .vocab = 100, .eod = -1, .document_mask = true, .reset_positions = true};
    mt_split train, valid;
    CHECK_INT(mt_split_cut(&train, &valid, &x, &bins, &rules, 0, &e), MT_OK);
    filled f = fill(&train, &rules, 0, 0);
    same(f.tokens, (int32_t[]){13, 14, 15, 16, 17}, 5, "tokens");
    same(f.labels, (int32_t[]){14, 15, 16, 17, 18}, 5, "labels"); /* its document goes on */
    same(f.begin, (int32_t[]){0, 0, 0, 0, 0}, 5, "begin");
    f = fill(&train, &rules, 1, 0);
    same(f.tokens, (int32_t[]){10, 11, 12, 18, 19}, 5, "tokens");
    same(f.labels, (int32_t[]){11, 12, -1, 19, -1}, 5, "labels");
    same(f.begin, (int32_t[]){0, 0, 0, 3, 3}, 5, "begin");
    same(f.pos, (int32_t[]){0, 1, 2, 0, 1}, 5, "pos");
    f = fill(&train, &rules, 2, 10);
    same(f.tokens, (int32_t[]){20, 21, 22, 0, 0}, 5, "tokens");
    same(f.labels, (int32_t[]){21, -1, -1, -1, -1}, 5, "labels");
    same(f.begin, (int32_t[]){10, 10, 12, 13, 14}, 5, "begin");
    same(f.pos, (int32_t[]){0, 1, 0, 0, 0}, 5, "pos");
    CHECK_INT(f.n_labels, 1);
    /* Splits of bins: together all of them, once. */
    char seen[3] = {0};
    CHECK_INT(mt_split_cut(&train, &valid, &x, &bins, &rules, 0.34, &e), MT_OK);
    CHECK_INT(train.count, 2);
    for (int i = 0; i < 3; i++) {
        f = i < 2 ? fill(&train, &rules, i, 0) : fill(&valid, &rules, 0, 0);
        seen[f.tokens[0] == 13 ? 0 : f.tokens[0] == 10 ? 1 : 2]++;
    }
    for (int i = 0; i < 3; i++) CHECK_INT(seen[i], 1);
    mt_bins_close(&bins);
}

int main(void)
{
    RUN(windows_by_hand);
    RUN(masks_and_positions_are_options);
    RUN(an_id_ends_documents);
    RUN(windows_cover_each_token_once);
    RUN(splits_that_cannot_be);
    RUN(ids_outside_the_vocabulary);
    RUN(packed_by_hand);
    mt_index_close(&x);
    remove_temporary_folder();
    return DONE();
}
