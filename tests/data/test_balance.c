/* Which rank gets which sequence: by hand, against all permutations of small steps, and properties of random ones. */
#include "data/balance.h"
#include "data/permute.h"
#include "files.h"

static uint64_t state = 1;
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 33) + 1) / ((double)(1u << 31) + 1);
}
/* Mostly small, some 100 times the median. */
static double long_tailed(void)
{
    return exp(1.5 * sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
}

static mt_balance open_balance(int64_t R, int64_t M, int64_t B, bool together)
{
    mt_balance b;
    mt_err e = {0};
    mt_balance_layout at = {.n_ranks = R, .n_micro = M, .micro_batch = B, .together = together};
    if (mt_balance_open(&b, &at, &e) != MT_OK) abort();
    return b;
}

static void check_by_hand(int64_t R, int64_t M, int64_t B, bool together, const double *cost,
                          const int64_t *place, double data, double placed)
{
    mt_balance b = open_balance(R, M, B, together);
    for (int64_t i = 0; i < b.n; i++) b.cost[i] = cost[i];
    mt_imbalance x = mt_balance_place(&b);
    CHECK_CLOSE(x.data, data, 1e-12);
    CHECK_CLOSE(x.placed, placed, 1e-12);
    for (int64_t i = 0; i < b.n; i++) CHECK_INT(b.place[i], place[i]);
    mt_balance_close(&b);
}

TEST(placed_by_hand)
{
    /* 9 and 8 wait for each other, then the rank with 8 gets the 2: 9 + 2 of a mean of 10, and equal totals */
    check_by_hand(2, 2, 1, false, (double[]){9, 1, 8, 2}, (int64_t[]){0, 2, 1, 3}, 1.7, 1.1);
    check_by_hand(2, 2, 1, true, (double[]){9, 1, 8, 2}, (int64_t[]){0, 2, 1, 3}, 1.7, 1);
    /* rows of one micro-batch: 7 with 1, 5 with 3 */
    check_by_hand(2, 1, 2, false, (double[]){7, 5, 3, 1}, (int64_t[]){0, 3, 1, 2}, 1.5, 1);
    /* three ranks, and one long sequence that takes the shortest along */
    check_by_hand(3, 1, 2, false, (double[]){2, 12, 1, 3, 4, 2}, (int64_t[]){1, 2, 4, 5, 3, 0}, 14. / 8,
                  13. / 8);
}

TEST(what_cannot_be_better_stays)
{
    const double equal[6] = {4, 4, 4, 4, 4, 4}, zero[6] = {0}, fair[4] = {4, 5, 2, 1};
    const int64_t order[6] = {0, 1, 2, 3, 4, 5};
    check_by_hand(2, 3, 1, false, equal, order, 1, 1);
    check_by_hand(3, 1, 2, true, equal, order, 1, 1);
    check_by_hand(2, 3, 1, false, zero, order, 1, 1);
    check_by_hand(2, 2, 1, true, fair, order, 1, 1);
    check_by_hand(1, 4, 1, false, fair, order, 1, 1); /* one rank */
    check_by_hand(1, 2, 2, true, fair, order, 1, 1);
    check_by_hand(4, 1, 1, false, fair, order, 5. / 3, 5. / 3); /* one sequence each */
}

/* What the step waits for, from the costs of its parts. */
static double waits(const mt_balance *b)
{
    double part[400], sum = 0, all = 0, most;
    int64_t R = b->at.n_ranks, M = b->at.n_micro;
    mt_balance_costs(b, part);
    for (int64_t i = 0; i < M * R; i++) {
        double rows = 0;
        for (int64_t k = 0; k < b->at.micro_batch; k++) rows += b->cost[b->place[i * b->at.micro_batch + k]];
        CHECK(part[i] == rows);
        all += rows;
    }
    for (int64_t m = 0; m < M; m++) {
        most = 0;
        for (int64_t r = 0; r < R; r++) most = fmax(most, part[m * R + r]);
        sum += most;
    }
    if (!b->at.together) return sum * (double)R / all;
    most = 0;
    for (int64_t r = 0; r < R; r++) {
        double total = 0;
        for (int64_t m = 0; m < M; m++) total += part[m * R + r];
        most = fmax(most, total);
    }
    return most * (double)R / all;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* Difference of two ranks' totals, and of two of R neighbours among the sorted sequences. */
static double spread_of_totals(const mt_balance *b)
{
    double part[400], least = INFINITY, most = 0;
    mt_balance_costs(b, part);
    for (int64_t r = 0; r < b->at.n_ranks; r++) {
        double total = 0;
        for (int64_t m = 0; m < b->at.n_micro; m++) total += part[m * b->at.n_ranks + r];
        least = fmin(least, total);
        most = fmax(most, total);
    }
    return most - least;
}
static double spread_of_neighbours(const mt_balance *b)
{
    double sorted[400], most = 0;
    memcpy(sorted, b->cost, (size_t)b->n * sizeof *sorted);
    qsort(sorted, (size_t)b->n, sizeof *sorted, descending);
    for (int64_t i = 0; i < b->n; i += b->at.n_ranks)
        most = fmax(most, sorted[i] - sorted[i + b->at.n_ranks - 1]);
    return most;
}

static bool is_order(const mt_balance *b)
{
    for (int64_t i = 0; i < b->n; i++)
        if (b->place[i] != i) return false;
    return true;
}

TEST(random_steps)
{
    int better = 0;
    for (int k = 0; k < 2000; k++) {
        int64_t R = 1 + (int64_t)(9 * uniform()) % 9, M = 1 + (int64_t)(6 * uniform()) % 6,
                B = 1 + (int64_t)(4 * uniform()) % 4;
        mt_balance b = open_balance(R, M, B, k % 2), again = open_balance(R, M, B, k % 2);
        bool whole = uniform() < 0.3; /* with many equal costs */
        for (int64_t i = 0; i < b.n; i++) {
            again.cost[i] = long_tailed();
            b.cost[i] = whole ? floor(4 * uniform()) + 1 : long_tailed();
        }
        double data = waits(&b);
        mt_imbalance x = mt_balance_place(&b);
        CHECK_CLOSE(x.data, data, 1e-12 * data);
        CHECK_CLOSE(x.placed, waits(&b), 1e-12 * data);
        CHECK(x.placed <= x.data && x.placed >= 1 - 1e-12);
        char seen[400] = {0};
        for (int64_t i = 0; i < b.n; i++) seen[b.place[i]]++;
        for (int64_t i = 0; i < b.n; i++) CHECK_INT(seen[i], 1);
        if (!is_order(&b)) CHECK(spread_of_totals(&b) <= spread_of_neighbours(&b) * (1 + 1e-9));
        better += x.placed < x.data;
        (void)mt_balance_place(&again); /* what was placed before doesn't matter */
        memcpy(again.cost, b.cost, (size_t)b.n * sizeof *b.cost);
        CHECK(mt_balance_place(&again).placed == x.placed);
        CHECK(!memcmp(again.place, b.place, (size_t)b.n * sizeof *b.place));
        mt_balance_close(&b);
        mt_balance_close(&again);
    }
    CHECK(better > 1200);
}

/* The least that any order of b->place[from, n) leads to. */
static double least_wait(mt_balance *b, int64_t from)
{
    if (from == b->n) return waits(b);
    double least = INFINITY;
    for (int64_t i = from; i < b->n; i++) {
        int64_t keep = b->place[from];
        b->place[from] = b->place[i];
        b->place[i] = keep;
        least = fmin(least, least_wait(b, from + 1));
        b->place[i] = b->place[from];
        b->place[from] = keep;
    }
    return least;
}

TEST(micro_batches_of_one_row_wait_as_little_as_they_can)
{
    const int64_t layout[][2] = {{2, 2}, {2, 3}, {3, 2}, {6, 1}};
    for (int k = 0; k < 40; k++) {
        mt_balance b = open_balance(layout[k % 4][0], layout[k % 4][1], 1, false);
        for (int64_t i = 0; i < b.n; i++) b.cost[i] = long_tailed();
        double placed = mt_balance_place(&b).placed;
        CHECK_CLOSE(placed, least_wait(&b, 0), 1e-12 * placed);
        mt_balance_close(&b);
    }
}

TEST(a_long_tail_is_nearly_balanced)
{
    for (int k = 0; k < 4; k++) {
        mt_balance b = open_balance(16, 16, 1, k % 2);
        for (int64_t i = 0; i < b.n; i++) b.cost[i] = 1 + fmin(long_tailed(), 20);
        mt_imbalance x = mt_balance_place(&b);
        CHECK(x.data > (k % 2 ? 1.3 : 2) && x.placed < (k % 2 ? 1.1 : 1.25));
        mt_balance_close(&b);
    }
}

/* ---- costs of real samples ---- */
enum { DOCUMENTS = 40, TOKENS = 2000, T = 64 };

static const char *put_corpus(int32_t lengths[DOCUMENTS])
{
    uint16_t ids[TOKENS];
    int32_t left = TOKENS;
    for (int i = 0; i < TOKENS; i++) ids[i] = (uint16_t)i;
    for (int d = 0; d < DOCUMENTS - 1; d++) left -= lengths[d] = d % 5 == 1 ? 0 : 1 + d * 37 % 95;
    lengths[DOCUMENTS - 1] = left;
    return put_u16("balance", ids, lengths, DOCUMENTS);
}

/* By what the attention kernel is told. */
static int64_t pairs_of_filled(const mt_split *split, const mt_sample_rules *rules, int64_t unit,
                               int64_t window)
{
    int32_t tokens[T], labels[T], begin[T], pos[T];
    mt_sample out = {tokens, labels, begin, pos};
    int64_t n_labels = 0, pairs = 0;
    mt_err e = {0};
    CHECK_INT(mt_sample_fill(split, rules, &out, &n_labels, unit, 1000, &e), MT_OK);
    for (int i = 0; i < T; i++) {
        int64_t seen = 1000 + i - begin[i] + 1;
        pairs += seen < window ? seen : window;
    }
    return pairs;
}

TEST(pairs_are_those_that_attention_sees)
{
    int32_t lengths[DOCUMENTS];
    mt_index x;
    mt_bins bins;
    mt_err e = {0};
    const char *prefix = put_corpus(lengths);
    CHECK_INT(mt_index_open(&x, prefix, &e), MT_OK);
    CHECK_INT(mt_bins_write(&x, prefix, T, &e), MT_OK);
    CHECK_INT(mt_bins_open(&bins, &x, prefix, T, &e), MT_OK);
    for (int k = 0; k < 8; k++) {
        mt_sample_rules rules = {.seq_len = T, .vocab = TOKENS, .eod = -1, .document_mask = k & 1};
        mt_split split[2];
        CHECK_INT(mt_split_cut(&split[0], &split[1], &x, k & 2 ? &bins : NULL, &rules, k & 4 ? 0.3 : 0, &e),
                  MT_OK);
        int64_t least = INT64_MAX, most = 0;
        for (int s = 0; s < 2; s++)
            for (int64_t u = 0; u < split[s].count; u++) {
                int64_t pairs = mt_sample_pairs(&split[s], &rules, u, 0);
                CHECK_INT(pairs, pairs_of_filled(&split[s], &rules, u, T));
                for (int64_t w = 1; w <= T; w++)
                    CHECK_INT(mt_sample_pairs(&split[s], &rules, u, w),
                              pairs_of_filled(&split[s], &rules, u, w));
                least = pairs < least ? pairs : least;
                most = pairs > most ? pairs : most;
            }
        CHECK(k & 1 ? least < most : least == T * (T + 1) / 2 && least == most);
    }
    mt_bins_close(&bins);
    mt_index_close(&x);
}

TEST(costs_are_read_in_the_order_of_the_step)
{
    int32_t lengths[DOCUMENTS];
    mt_corpus c;
    mt_err e = {0};
    mt_corpus_part part = {put_corpus(lengths), 0};
    mt_corpus_options o = {.part = &part,
                           .n = 1,
                           .seed = 9,
                           .rules = {.seq_len = T, .vocab = TOKENS, .eod = -1, .document_mask = true}};
    mt_balance_price price = mt_balance_price_of(&(mt_balance_model){
        .parameters = 1e6, .full = 3, .near = 2, .window = 3, .heads = 4, .key = 16, .value = 8});
    CHECK_CLOSE(price.token, 6e6, 0);
    CHECK_CLOSE(price.pair, 6 * 3 * 4 * 24, 0);
    CHECK_CLOSE(price.near, 6 * 2 * 4 * 24, 0);
    CHECK_INT(mt_corpus_open(&c, &o, &e), MT_OK);
    mt_balance b = open_balance(3, 2, 2, false);
    mt_balance_read(&b, &c, price, 5);
    const mt_split *train = &c.source[0].train;
    for (int64_t i = 0; i < 12; i++) {
        int64_t number = 5 * 12 + i, n = train->count,
                unit = mt_permute(9, (uint64_t)(number / n), number % n, n);
        CHECK_CLOSE(b.cost[i],
                    6e6 * T + 1728. * (double)pairs_of_filled(train, &o.rules, unit, T) +
                        1152. * (double)pairs_of_filled(train, &o.rules, unit, 3),
                    0);
    }
    mt_balance_close(&b);
    mt_corpus_close(&c);
}

int main(void)
{
    RUN(placed_by_hand);
    RUN(what_cannot_be_better_stays);
    RUN(random_steps);
    RUN(micro_batches_of_one_row_wait_as_little_as_they_can);
    RUN(a_long_tail_is_nearly_balanced);
    RUN(pairs_are_those_that_attention_sees);
    RUN(costs_are_read_in_the_order_of_the_step);
    remove_temporary_folder();
    return DONE();
}
