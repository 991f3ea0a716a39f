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

static struct mt_routing alone(const int32_t *counts, int64_t experts, int64_t cap, int64_t total)
{
    return (struct mt_routing){counts, experts, 1, 0, cap, total};
}

static int64_t check_rounds(const int32_t *counts, int64_t experts, int64_t cap)
{
    int64_t total = 0, next = 0, n = 0;
    for (int64_t e = 0; e < experts; e++) total += counts[e];
    struct mt_routing w = alone(counts, experts, cap, total);
    for (struct mt_round r = {0}; mt_round_next(&r, &w) && n <= total + 1; n++) {
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
    struct mt_routing w = alone(counts, 2, 64, 110);
    CHECK(mt_round_next(&r, &w));
    CHECK_INT(r.rows, 42);
    CHECK(mt_round_next(&r, &w));
    CHECK_INT(r.first, 42);
    CHECK_INT(r.rows, 64);
    CHECK(mt_round_next(&r, &w));
    CHECK_INT(r.rows, 4);
    CHECK(!mt_round_next(&r, &w));
}
TEST(forced)
{
    int64_t rows = 0;
    int n = 0;
    struct mt_routing w = alone(NULL, 0, 64, 100);
    for (struct mt_round r = {0}; mt_round_forced(&r, &w, 3); n++) {
        CHECK(r.rows >= 0 && r.rows <= 64);
        rows += r.rows;
    }
    CHECK_INT(n, 3);
    CHECK_INT(rows, 100);
}

/* A group of ranks: play every member's rounds on labelled rows; each row arrives once, at its expert's rank, sorted
 * by expert, source and token, and comes home to where it was sent from. */
enum { PEERS = 4, EXPERTS = 12, MOST = 400 };
struct member {
    int sent[MOST], got[MOST], home[MOST], n_sent, n_got;
};
static void check_exchange(const int32_t *counts, int ep, int64_t cap)
{
    static struct member m[PEERS];
    struct mt_round round[PEERS] = {{0}};
    memset(m, 0, sizeof m);
    for (int s = 0; s < ep; s++)
        for (int e = 0; e < EXPERTS; e++)
            for (int i = 0; i < counts[s * EXPERTS + e]; i++)
                m[s].sent[m[s].n_sent++] = e * 10000 + s * 1000 + i;
    for (int rounds = 0; rounds < MOST; rounds++) {
        struct mt_exchange_peer out[PEERS][PEERS], back[PEERS][PEERS];
        int more = 0, recv[PEERS][MOST];
        for (int q = 0; q < ep; q++) {
            struct mt_routing w = {counts, EXPERTS, ep, q, cap, 0};
            if (!mt_round_next(&round[q], &w)) continue;
            more++;
            CHECK(round[q].rows <= cap);
            mt_round_peers(&round[q], &w, out[q]);
            mt_round_home(&round[q], &w, back[q]);
        }
        if (!more) break;
        if (!CHECK_INT(more, ep)) return; /* all members take the same number of rounds */
        for (int q = 0; q < ep; q++) {
            int n = 0;
            for (int p = 0; p < ep; p++) {
                const struct mt_exchange_peer *x = &out[q][p];
                CHECK(x->recv_first == n && x->recv_n == out[p][q].send_n &&
                      x->from_first == out[p][q].send_first);
                for (int i = 0; i < x->recv_n; i++) recv[q][n++] = m[p].sent[x->from_first + i];
            }
            CHECK_INT(n, round[q].rows);
        }
        for (int q = 0; q < ep; q++) {
            for (int p = 0; p < ep; p++) /* the results are the rows themselves */
                for (int i = 0; i < back[q][p].recv_n; i++)
                    m[q].home[back[q][p].recv_first + i] = recv[p][back[q][p].from_first + i];
            for (int64_t i = 0; i < round[q].rows; i++) m[q].got[m[q].n_got++] = recv[q][i];
        }
    }
    for (int q = 0; q < ep; q++) {
        CHECK(!memcmp(m[q].home, m[q].sent, sizeof m[q].sent));
        int n = 0;
        for (int e = q * EXPERTS / ep; e < (q + 1) * EXPERTS / ep; e++)
            for (int s = 0; s < ep; s++) n += counts[s * EXPERTS + e];
        CHECK_INT(m[q].n_got, n);
        for (int i = 0; i < n; i++) CHECK(m[q].got[i] / 10000 / (EXPERTS / ep) == q);
    }
}
TEST(exchanges)
{
    static const int eps[] = {1, 2, 4};
    for (int i = 0; i < 300; i++) {
        int32_t counts[PEERS * EXPERTS];
        int64_t kind = below(4);
        for (int k = 0; k < PEERS * EXPERTS; k++)
            counts[k] = kind == 0 ? 0 : kind == 1 && k % EXPERTS != 5 ? 0 : below(3) ? (int32_t)below(25) : 0;
        check_exchange(counts, eps[i % 3], MT_ROUND_ROWS * (1 + below(4)));
    }
}

int main(void)
{
    RUN(exchanges);
    RUN(random_counts);
    RUN(one_expert_has_everything);
    RUN(no_rows);
    RUN(a_buffer_for_all_takes_one_round);
    RUN(cuts_count_from_the_expert);
    RUN(forced);
    return DONE();
}
