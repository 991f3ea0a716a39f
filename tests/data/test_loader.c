/* test: timeout=60 variants=release,asan,aarch64,tsan,tsan-plain */
#include "data/loader.h"
#include "files.h"

#include <sched.h>
#include <time.h>

enum { DOCUMENTS = 40, TOKENS = 2000 };

typedef struct arrays {
    int32_t *all;
    int64_t n;
    mt_sample at;
} arrays;

static arrays arrays_open(int64_t n)
{
    arrays a = {.all = malloc((size_t)n * 16), .n = n};
    if (!a.all) abort();
    memset(a.all, 0x55, (size_t)n * 16);
    a.at = (mt_sample){a.all, a.all + n, a.all + 2 * n, a.all + 3 * n};
    return a;
}

/* TOKENS ids, each its position, in documents of various lengths. */
static const char *put_corpus(const char *name)
{
    uint16_t ids[TOKENS];
    int32_t lengths[DOCUMENTS], left = TOKENS;
    for (int i = 0; i < TOKENS; i++) ids[i] = (uint16_t)i;
    for (int d = 0; d < DOCUMENTS - 1; d++) left -= lengths[d] = 5 + d * 37 % 83;
    lengths[DOCUMENTS - 1] = left;
    return put_u16(name, ids, lengths, DOCUMENTS);
}

static mt_data_options options(const char *train)
{
    static mt_corpus_part part[8];
    static int turn;
    mt_corpus_part *p = &part[turn++ % 8];
    *p = (mt_corpus_part){train, 0};
    return (mt_data_options){.train = p,
                             .n_train = 1,
                             .steps = 100,
                             .valid_fraction = 0.1,
                             .document_mask = true,
                             .reset_positions = true,
                             .eod = -1,
                             .seq_len = 10,
                             .micro_batch = 2,
                             .global_batch = 16,
                             .vocab = TOKENS,
                             .n_ranks = 1,
                             .local_ranks = 1,
                             .prefetch = 2,
                             .seed = 5};
}

/* Reads `steps` steps for all ranks and puts the rows by their global number: the result of any layout is the
 * same where begin[] is given relative to the row. Returns false on failure. */
static bool read_layout(mt_data_options o, int64_t ranks, int64_t micro, int64_t steps, arrays *to)
{
    mt_loader *l;
    mt_err e = {0};
    o.n_ranks = o.local_ranks = ranks;
    o.micro_batch = micro;
    if (!CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK)) return false;
    int64_t T = o.seq_len, rows = o.global_batch / ranks;
    arrays *in = calloc((size_t)ranks, sizeof *in);
    for (int64_t r = 0; r < ranks; r++) in[r] = arrays_open(rows * T);
    for (int64_t s = 0; s < steps; s++) {
        for (int64_t r = 0; r < ranks; r++) CHECK_INT(mt_loader_prefetch(l, r, s, &in[r].at, &e), MT_OK);
        for (int64_t r = ranks - 1; r >= 0; r--) { /* waited for in another order than queued */
            mt_batch_info info;
            int64_t labels = 0;
            CHECK_INT(mt_loader_wait(l, r, s, &info, &e), MT_OK);
            CHECK(info.waited_s >= 0 && info.waited_s < 60);
            for (int64_t i = 0; i < rows * T; i++) labels += in[r].at.labels[i] >= 0;
            CHECK_INT(info.n_labels, labels);
            for (int64_t row = 0; row < rows; row++) {
                int64_t number = mt_loader_sample_number(l, s, r, row / micro, row % micro);
                for (int64_t i = 0; i < T; i++) {
                    int64_t f = row * T + i, t = number * T + i;
                    to->at.tokens[t] = in[r].at.tokens[f];
                    to->at.labels[t] = in[r].at.labels[f];
                    to->at.begin[t] = in[r].at.begin[f] - (int32_t)(row % micro * T);
                    to->at.pos[t] = in[r].at.pos[f];
                }
            }
        }
    }
    for (int64_t r = 0; r < ranks; r++) free(in[r].all);
    free(in);
    mt_loader_close(l);
    return true;
}

TEST(batches_do_not_depend_on_the_layout)
{
    mt_data_options o = options(put_corpus("c"));
    const int64_t steps = 15, n = steps * 16 * 10;
    const int64_t layouts[][2] = {{1, 16}, {2, 2}, {4, 4}, {16, 1}, {8, 1}};
    arrays want = arrays_open(n), got = arrays_open(n);
    CHECK(read_layout(o, 1, 1, steps, &want));
    for (int64_t i = 0; i < n; i++) {
        CHECK(want.at.tokens[i] >= 0 && want.at.tokens[i] < 1800); /* the last tenth is for validation */
        CHECK(want.at.labels[i] == -1 || want.at.labels[i] == want.at.tokens[i] + 1);
        CHECK(want.at.begin[i] >= 0 && want.at.begin[i] <= i % 10);
        CHECK_INT(want.at.pos[i], i % 10 - want.at.begin[i]);
    }
    for (int k = 0; k < 5; k++) {
        memset(got.all, 0, (size_t)n * 16);
        CHECK(read_layout(o, layouts[k][0], layouts[k][1], steps, &got));
        CHECK(!memcmp(got.all, want.all, (size_t)n * 16));
    }
    /* 199 windows, 19 of them held: the first 180 numbers are an epoch, each window once. */
    char seen[180] = {0};
    for (int64_t s = 0; s < 180; s++) {
        CHECK_INT(want.at.tokens[s * 10] % 10, 0);
        seen[want.at.tokens[s * 10] / 10]++;
    }
    for (int w = 0; w < 180; w++) CHECK_INT(seen[w], 1);
    free(want.all);
    free(got.all);
}

/* Balanced, every sequence of a step is there once, and in no other step; ranks that never meet agree. */
TEST(balanced_batches_are_the_same_sequences)
{
    const int64_t steps = 8, n = steps * 16 * 64, layouts[][2] = {{2, 2}, {4, 4}, {16, 1}, {4, 1}, {1, 4}};
    mt_data_options o = options(put_corpus("b"));
    mt_index x;
    mt_err e = {0};
    CHECK_INT(mt_index_open(&x, o.train->path, &e), MT_OK);
    CHECK_INT(mt_bins_write(&x, o.train->path, 64, &e), MT_OK);
    mt_index_close(&x);
    o.seq_len = 64;
    o.price = (mt_balance_price){.token = 1, .pair = 1};
    arrays want = arrays_open(n), got = arrays_open(n);
    for (int k = 0; k < 20; k++) {
        o.mode = k % 2 ? MT_DATA_PACKED : MT_DATA_WINDOWS;
        o.balance = false;
        CHECK(read_layout(o, 1, 1, steps, &want));
        o.balance = true;
        o.together = k >= 10;
        memset(got.all, 0, (size_t)n * 16);
        CHECK(read_layout(o, layouts[k / 2 % 5][0], layouts[k / 2 % 5][1], steps, &got));
        CHECK(!memcmp(got.all, want.all, (size_t)n * 16));
    }
    free(want.all);
    free(got.all);
}

static mt_imbalance read_one(mt_loader *l, int64_t rank, int64_t step, arrays *to)
{
    mt_batch_info info;
    mt_err e = {0};
    CHECK_INT(mt_loader_prefetch(l, rank, step, &to->at, &e), MT_OK);
    CHECK_INT(mt_loader_wait(l, rank, step, &info, &e), MT_OK);
    return info.imbalance;
}

TEST(balanced_alike_by_every_process)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *all, *one;
    mt_err e = {0};
    mt_imbalance mean, sum = {0};
    arrays a = arrays_open(160), b = arrays_open(160);
    o.seq_len = 40;
    o.micro_batch = 1;
    o.n_ranks = o.local_ranks = 4;
    o.price = (mt_balance_price){.token = 1, .pair = 1};
    o.balance = true;
    CHECK_INT(mt_loader_open(&all, &o, &e), MT_OK);
    o.local_ranks = 1;
    CHECK_INT(mt_loader_open(&one, &o, &e), MT_OK);
    CHECK_INT(mt_loader_imbalance(all, 3, 6, &mean, &e), MT_OK);
    for (int64_t step = 8; step >= 3; step--) {
        mt_imbalance x = read_one(all, 2, step, &a), y = read_one(one, 2, step, &b);
        CHECK(x.data == y.data && x.placed == y.placed && x.placed <= x.data && x.placed >= 1);
        CHECK(!memcmp(a.all, b.all, 160 * 16));
        sum.data += x.data / 6;
        sum.placed += x.placed / 6;
    }
    CHECK_CLOSE(mean.data, sum.data, 1e-12);
    CHECK_CLOSE(mean.placed, sum.placed, 1e-12);
    CHECK(sum.placed < sum.data - 0.1);
    mt_loader_close(one);
    mt_loader_close(all);
    o.document_mask = false; /* sequences of one cost stay where they were */
    CHECK_INT(mt_loader_open(&one, &o, &e), MT_OK);
    CHECK(read_one(one, 2, 5, &a).data == 0);
    for (int64_t m = 0; m < 4; m++) CHECK_INT(mt_loader_sample_number(one, 5, 2, m, 0), 5 * 16 + 4 * m + 2);
    mt_loader_close(one);
    free(a.all);
    free(b.all);
}

TEST(rows_of_ranks_and_micro_batches)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *l;
    mt_err e = {0};
    o.n_ranks = 4;
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    CHECK_INT(mt_loader_n_micro(l), 2);
    CHECK_INT(mt_loader_sample_number(l, 0, 1, 0, 1), 3);
    CHECK_INT(mt_loader_sample_number(l, 3, 1, 1, 1), 3 * 16 + 1 * 8 + 1 * 2 + 1);
    CHECK_INT(mt_loader_sample_number(l, INT64_C(1) << 40, 0, 0, 0), INT64_C(1) << 44);
    mt_loader_close(l);
}

/* When the last batch queued is ready, so are all before it. One destination serves all, as nobody reads it. */
TEST(batches_are_filled_in_order_of_arrival)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *l;
    mt_err e = {0};
    o.prefetch = 40;
    o.global_batch = 2000;
    arrays a = arrays_open(o.global_batch * o.seq_len);
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    for (int64_t s = 0; s < 40; s++) CHECK_INT(mt_loader_prefetch(l, 0, s, &a.at, &e), MT_OK);
    while (!mt_loader_ready(l, 0, 39)) sched_yield();
    for (int64_t s = 0; s < 40; s++) CHECK(mt_loader_ready(l, 0, s));
    mt_loader_close(l);
    free(a.all);
}

TEST(any_step_at_once)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *l;
    mt_err e = {0};
    mt_batch_info info;
    const int64_t n = 160;
    arrays all = arrays_open(12 * n), one = arrays_open(n);
    CHECK(read_layout(o, 1, 2, 12, &all));
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    CHECK_INT(mt_loader_n_micro(l), 8);
    CHECK_INT(mt_loader_n_train(l), 180);
    CHECK_INT(mt_loader_n_valid(l), 19);
    CHECK_INT(mt_loader_prefetch(l, 0, 11, &one.at, &e), MT_OK); /* as a resumed run does */
    CHECK_INT(mt_loader_wait(l, 0, 11, &info, &e), MT_OK);
    CHECK(!memcmp(one.at.tokens, all.at.tokens + 11 * n, (size_t)n * 4));
    CHECK_INT(mt_loader_wait(l, 0, 11, &info, &e), MT_INTERNAL); /* taken already */
    mt_loader_close(l);
    free(all.all);
    free(one.all);
}

TEST(the_queue_is_bounded_and_ready_does_not_block)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *l;
    mt_err e = {0};
    mt_batch_info info;
    arrays a = arrays_open(160), b = arrays_open(160), c = arrays_open(160);
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    CHECK_INT(mt_loader_prefetch(l, 0, 0, &a.at, &e), MT_OK);
    CHECK_INT(mt_loader_prefetch(l, 0, 1, &b.at, &e), MT_OK);
    CHECK_INT(mt_loader_prefetch(l, 0, 2, &c.at, &e), MT_INTERNAL);
    e = (mt_err){0};
    CHECK_INT(mt_loader_prefetch(l, 1, 2, &c.at, &e), MT_INTERNAL); /* no such rank */
    for (int i = 0; i < 10000 && !mt_loader_ready(l, 0, 1); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(mt_loader_ready(l, 0, 1) && mt_loader_ready(l, 0, 0)); /* in order of arrival */
    e = (mt_err){0};
    CHECK_INT(mt_loader_wait(l, 0, 0, &info, &e), MT_OK);
    CHECK_INT(mt_loader_prefetch(l, 0, 2, &c.at, &e), MT_OK);
    mt_loader_close(l); /* with batches nobody waited for */
    CHECK_INT(c.at.tokens[0] == 0x55555555 || c.at.tokens[0] < TOKENS, 1);
    free(a.all);
    free(b.all);
    free(c.all);
}

TEST(validation_is_the_same_each_time)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *l;
    mt_err e = {0};
    int64_t labels, rows = 0;
    arrays a = arrays_open(20);
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    for (int64_t first = 0; first < mt_loader_n_valid(l); first += 2) {
        CHECK_INT(mt_loader_valid_batch(l, first, &a.at, &labels, &e), MT_OK);
        for (int64_t row = 0; row < 2 && first + row < 19; row++, rows++)
            for (int i = 0; i < 10; i++) CHECK_INT(a.at.tokens[row * 10 + i], 1800 + rows * 10 + i);
    }
    CHECK_INT(rows, 19);
    for (int i = 10; i < 20; i++) { /* past the last sample */
        CHECK_INT(a.at.tokens[i], 0);
        CHECK_INT(a.at.labels[i], -1);
        CHECK_INT(a.at.begin[i], i);
    }
    mt_loader_close(l);
    char separate[256];
    snprintf(separate, sizeof separate, "%s", put_corpus("v"));
    o = options(put_corpus("c"));
    o.valid = separate;
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    CHECK_INT(mt_loader_n_train(l), 199);
    CHECK_INT(mt_loader_n_valid(l), 199);
    CHECK_INT(mt_loader_valid_batch(l, 3, &a.at, &labels, &e), MT_OK);
    CHECK_INT(a.at.tokens[10], 40);
    mt_loader_close(l);
    o.valid = "";
    o.valid_fraction = 0;
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    CHECK_INT(mt_loader_n_valid(l), 0);
    CHECK_INT(mt_loader_valid_batch(l, 0, &a.at, &labels, &e), MT_OK);
    CHECK_INT(labels, 0);
    mt_loader_close(l);
    free(a.all);
}

TEST(packed_samples_cover_each_token_once)
{
    mt_data_options o = options(put_corpus("p"));
    mt_index x;
    mt_loader *l;
    mt_err e = {0};
    CHECK_INT(mt_index_open(&x, o.train->path, &e), MT_OK);
    CHECK_INT(mt_bins_write(&x, in_folder("p"), 10, &e), MT_OK);
    mt_index_close(&x);
    o.mode = MT_DATA_PACKED;
    o.valid_fraction = 0;
    o.global_batch = 2;
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    int64_t bins = mt_loader_n_train(l), steps = (bins + 1) / 2;
    mt_loader_close(l);
    arrays a = arrays_open(steps * 20);
    CHECK(read_layout(o, 1, 2, steps, &a));
    char seen[TOKENS] = {0};
    for (int64_t i = 0; i < bins * 10; i++) {
        bool padding = a.at.tokens[i] == 0 && a.at.begin[i] > 0 && a.at.labels[i] == -1;
        if (!padding) seen[a.at.tokens[i]]++;
    }
    for (int t = 0; t < TOKENS; t++) CHECK_INT(seen[t], 1);
    free(a.all);
    o.seq_len = 20;
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_DATA);
    CHECK(strstr(e.msg, "p.pack: packed for samples of 10 tokens"));
}

TEST(a_bad_token_is_named_by_the_wait)
{
    mt_data_options o = options(put_corpus("c"));
    mt_loader *l;
    mt_err e = {0};
    mt_batch_info info;
    arrays a = arrays_open(160);
    o.vocab = 1; /* wherever it reads */
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    CHECK_INT(mt_loader_prefetch(l, 0, 6, &a.at, &e), MT_OK);
    CHECK_INT(mt_loader_wait(l, 0, 6, &info, &e), MT_DATA);
    CHECK(strstr(e.msg, "batch of step 7") && strstr(e.msg, "c.bin: token id") && strstr(e.msg, "document"));
    mt_loader_close(l);
    free(a.all);
}

/* Cuts one of the files behind an open loader. */
static void cut_file(mt_data_mode mode, const char *suffix, const char *message)
{
    mt_data_options o = options(put_corpus("cut"));
    mt_index x;
    mt_loader *l;
    mt_err e = {0};
    mt_batch_info info;
    int64_t labels;
    char path[300];
    arrays a = arrays_open(160);
    CHECK_INT(mt_index_open(&x, o.train->path, &e), MT_OK);
    CHECK_INT(mt_bins_write(&x, o.train->path, 10, &e), MT_OK);
    mt_index_close(&x);
    o.mode = mode;
    CHECK_INT(mt_loader_open(&l, &o, &e), MT_OK);
    snprintf(path, sizeof path, "%s%s", o.train->path, suffix);
    CHECK_INT(truncate(path, 10), 0);
    CHECK_INT(mt_loader_prefetch(l, 0, 0, &a.at, &e), MT_OK);
    CHECK_INT(mt_loader_wait(l, 0, 0, &info, &e), MT_DATA);
    CHECK(strstr(e.msg, message));
    e = (mt_err){0};
    CHECK_INT(mt_loader_valid_batch(l, 0, &a.at, &labels, &e), MT_DATA);
    mt_loader_close(l);
    free(a.all);
}

TEST(a_file_cut_short_is_an_error)
{
    cut_file(MT_DATA_WINDOWS, ".bin", "cut.bin: has shrunk from 4000 to 10 bytes");
    cut_file(MT_DATA_WINDOWS, ".idx", "cut.idx: has shrunk from");
    cut_file(MT_DATA_PACKED, ".pack", "cut.pack: has shrunk from");
}

static void refuse(mt_data_options o, mt_status code, const char *part)
{
    mt_loader *l;
    mt_err e = {0};
    CHECK_INT(mt_loader_open(&l, &o, &e), code);
    CHECK(!l);
    if (!CHECK(strstr(e.msg, part))) printf("  wanted \"%s\" in: %s\n", part, e.msg);
}

TEST(options_that_do_not_fit)
{
    const mt_data_options sound = options(put_corpus("c"));
    mt_data_options o = sound;
    o.train = &(mt_corpus_part){"", 0};
    refuse(o, MT_CONFIG, "data.train is not set");
    o = sound;
    o.train = &(mt_corpus_part){in_folder("nothing"), 0};
    refuse(o, MT_DATA, "nothing.idx: cannot open");
    o = sound;
    o.valid = in_folder("nothing");
    refuse(o, MT_DATA, "nothing.idx: cannot open");
    o = sound;
    o.mode = MT_DATA_PACKED;
    refuse(o, MT_DATA, "c.pack: cannot open");
    o = sound;
    o.n_ranks = 3;
    refuse(o, MT_CONFIG, "train.global_batch: 16, expected a multiple of train.micro_batch 2 x 3 ranks");
    o.n_ranks = 16;
    refuse(o, MT_CONFIG, "train.global_batch");
    o.n_ranks = INT64_MAX;
    refuse(o, MT_CONFIG, "train.global_batch");
    o = sound;
    o.seq_len = INT64_C(1) << 40;
    refuse(o, MT_CONFIG, "train.seq_len");
    o = sound;
    o.seq_len = TOKENS;
    refuse(o, MT_DATA, "fewer than train.seq_len + 1");
    o = sound;
    o.vocab = 0;
    refuse(o, MT_CONFIG, "model.vocab");
    o = sound;
    o.prefetch = 0;
    refuse(o, MT_CONFIG, "data.prefetch 0");
    o = sound;
    o.valid_fraction = 1;
    refuse(o, MT_CONFIG, "data.valid_fraction");
}

int main(void)
{
    RUN(batches_do_not_depend_on_the_layout);
    RUN(balanced_batches_are_the_same_sequences);
    RUN(balanced_alike_by_every_process);
    RUN(rows_of_ranks_and_micro_batches);
    RUN(batches_are_filled_in_order_of_arrival);
    RUN(any_step_at_once);
    RUN(the_queue_is_bounded_and_ready_does_not_block);
    RUN(validation_is_the_same_each_time);
    RUN(packed_samples_cover_each_token_once);
    RUN(a_bad_token_is_named_by_the_wait);
    RUN(a_file_cut_short_is_an_error);
    RUN(options_that_do_not_fit);
    remove_temporary_folder();
    return DONE();
}
