/* Rounds over routed rows: every row once, cuts where they do no harm, never more rows than the buffer has. */
#include "check.h"
#include "device/op.h"
#include "model/rounds.h"

static uint64_t state = 42;
static int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(state >> 33) % n;
}

/* A row where a round may end: an expert's end, or a multiple of MT_ROUND_ROWS of its rows. */
static bool may_end(const int32_t *counts, int64_t experts, int64_t row)
{
    int64_t at = 0;
    for (int64_t e = 0; e < experts; e++) {
        if (row <= at + counts[e]) return (row - at) % MT_ROUND_ROWS == 0 || row == at + counts[e];
        at += counts[e];
    }
    return row == at;
}

static int64_t check_rounds(const int32_t *counts, int64_t experts, int64_t cap)
{
    int64_t total = 0, next = 0, n = 0;
    for (int64_t e = 0; e < experts; e++) total += counts[e];
    for (struct mt_round r = {0}; mt_round_next(&r, counts, experts, cap, total) && n <= total + 1; n++) {
        CHECK_INT(r.index, n + 1);
        CHECK_INT(r.first, next);
        CHECK(r.rows <= cap && r.rows >= 0 && (r.rows > 0 || total == 0));
        CHECK(may_end(counts, experts, r.first + r.rows));
        /* As full as a cut allows. */
        CHECK(r.first + r.rows == total || r.rows > cap - MT_ROUND_ROWS);
        next += r.rows;
    }
    CHECK_INT(next, total);
    CHECK(n >= 1);
    return n;
}

TEST(random_counts)
{
    for (int i = 0; i < 2000; i++) {
        int32_t counts[64];
        int64_t experts = 1 + below(64), most = 1 + below(200);
        for (int64_t e = 0; e < experts; e++) counts[e] = below(3) ? (int32_t)below(most) : 0;
        check_rounds(counts, experts, MT_ROUND_ROWS * (1 + below(20)));
    }
}
TEST(one_expert_has_everything)
{
    for (int at = 0; at < 8; at++) {
        int32_t counts[8] = {0};
        counts[at] = 1000;
        CHECK_INT(check_rounds(counts, 8, 64), 16);
        CHECK_INT(check_rounds(counts, 8, 1024), 1);
        CHECK_INT(check_rounds(counts, 8, 32), 32);
    }
}
TEST(no_rows)
{
    int32_t counts[4] = {0};
    CHECK_INT(check_rounds(counts, 4, 32), 1);
}
TEST(a_buffer_for_all_takes_one_round)
{
    int32_t counts[3] = {17, 0, 40};
    CHECK_INT(check_rounds(counts, 3, 57), 1);
    CHECK_INT(check_rounds(counts, 3, 64), 1);
    CHECK_INT(check_rounds(counts, 3, 32), 3); /* 17, 32 and 8 rows */
}
/* Experts end inside of a buffer: the cut lies at a multiple of the expert's own rows, not of the buffer's. */
TEST(cuts_count_from_the_expert)
{
    int32_t counts[2] = {10, 100};
    struct mt_round r = {0};
    CHECK(mt_round_next(&r, counts, 2, 64, 110));
    CHECK_INT(r.rows, 42);
    CHECK(mt_round_next(&r, counts, 2, 64, 110));
    CHECK_INT(r.first, 42);
    CHECK_INT(r.rows, 64);
    CHECK(mt_round_next(&r, counts, 2, 64, 110));
    CHECK_INT(r.rows, 4);
    CHECK(!mt_round_next(&r, counts, 2, 64, 110));
}
TEST(forced)
{
    int64_t rows = 0;
    int n = 0;
    for (struct mt_round r = {0}; mt_round_forced(&r, 64, 100, 3); n++) {
        CHECK(r.rows >= 0 && r.rows <= 64);
        rows += r.rows;
    }
    CHECK_INT(n, 3);
    CHECK_INT(rows, 100);
}

int main(void)
{
    RUN(random_counts);
    RUN(one_expert_has_everything);
    RUN(no_rows);
    RUN(a_buffer_for_all_takes_one_round);
    RUN(cuts_count_from_the_expert);
    RUN(forced);
    return DONE();
}
