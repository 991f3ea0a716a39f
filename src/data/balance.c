#include "data/balance.h"

#include <inttypes.h>
#include <stdlib.h>

mt_balance_price mt_balance_price_of(const mt_balance_model *m)
{
    double of_layer = 6 * (double)m->heads * (double)(m->key + m->value);
    return (mt_balance_price){.token = 6 * m->parameters,
                              .pair = (double)m->full * of_layer,
                              .near = (double)m->near * of_layer,
                              .window = m->window};
}

mt_status mt_balance_open(mt_balance *b, const mt_balance_layout *at, mt_err *e)
{
    size_t R = (size_t)at->n_ranks, rows = R * (size_t)at->micro_batch, n = rows * (size_t)at->n_micro;
    *b = (mt_balance){.at = *at,
                      .n = (int64_t)n,
                      .cost = calloc(n, sizeof *b->cost),
                      .place = calloc(n, sizeof *b->place),
                      .sorted = calloc(n, sizeof *b->sorted),
                      .part = calloc(R, sizeof *b->part),
                      .rank = calloc(R, sizeof *b->rank),
                      .rows = calloc(rows, sizeof *b->rows)};
    if (!b->cost || !b->place || !b->sorted || !b->part || !b->rank || !b->rows) {
        mt_balance_close(b);
        MT_FAIL(e, MT_IO, "data: no memory to place the %zu sequences of a step on %zu ranks", n, R);
    }
    mt_balance_keep(b);
    return MT_OK;
}

void mt_balance_close(mt_balance *b)
{
    free(b->cost);
    free(b->place);
    free(b->sorted);
    free(b->part);
    free(b->rank);
    free(b->rows);
    *b = (mt_balance){0};
}

void mt_balance_read(mt_balance *b, mt_corpus *corpus, mt_balance_price price, int64_t step)
{
    for (int64_t i = 0; i < b->n; i++) {
        int64_t unit;
        const mt_split *split = mt_corpus_train(corpus, step * b->n + i, &unit);
        double pairs = (double)mt_sample_pairs(split, &corpus->rules, unit, 0);
        double near = price.near > 0 ? (double)mt_sample_pairs(split, &corpus->rules, unit, price.window) : 0;
        b->cost[i] = mt_balance_cost(&price, corpus->rules.seq_len, pairs, near);
    }
}

/* ---- sorting ---- */
static bool is_before(const mt_balance_item *a, const mt_balance_item *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static void sift_down(mt_balance_item *x, int64_t at, int64_t n)
{
    mt_balance_item moved = x[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(&x[child], &x[child + 1])) child++;
        if (!is_before(&moved, &x[child])) break;
        x[at] = x[child];
    }
    x[at] = moved;
}

/* Largest key first, equal ones by id. A heapsort: unlike qsort it never allocates, on the loader's thread. */
static void sort(mt_balance_item *x, int64_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(x, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        mt_balance_item last = x[0];
        x[0] = x[end];
        x[end] = last;
        sift_down(x, 0, end);
    }
}

/* ---- what a placement costs ---- */
static double part_cost(const mt_balance *b, int64_t micro, int64_t rank)
{
    double sum = 0;
    const int64_t *row = b->place + (micro * b->at.n_ranks + rank) * b->at.micro_batch;
    for (int64_t i = 0; i < b->at.micro_batch; i++) sum += b->cost[row[i]];
    return sum;
}

void mt_balance_costs(const mt_balance *b, double *cost)
{
    for (int64_t m = 0; m < b->at.n_micro; m++)
        for (int64_t r = 0; r < b->at.n_ranks; r++) cost[m * b->at.n_ranks + r] = part_cost(b, m, r);
}

static double costliest_in_micro(const mt_balance *b, int64_t micro)
{
    double most = 0;
    for (int64_t r = 0; r < b->at.n_ranks; r++) {
        double cost = part_cost(b, micro, r);
        if (cost > most) most = cost;
    }
    return most;
}

static double costliest_in_step(const mt_balance *b)
{
    double most = 0;
    for (int64_t r = 0; r < b->at.n_ranks; r++) {
        double cost = 0;
        for (int64_t m = 0; m < b->at.n_micro; m++) cost += part_cost(b, m, r);
        if (cost > most) most = cost;
    }
    return most;
}

/* Cost of the step as placed, over what it would be with equal ranks. */
static double imbalance(const mt_balance *b)
{
    double waited = 0, all = 0;
    for (int64_t i = 0; i < b->n; i++) all += b->cost[i];
    if (b->at.together)
        waited = costliest_in_step(b);
    else
        for (int64_t m = 0; m < b->at.n_micro; m++) waited += costliest_in_micro(b, m);
    return all > 0 ? waited * (double)b->at.n_ranks / all : 1;
}

/* ---- placing ---- */
mt_imbalance mt_balance_keep(mt_balance *b)
{
    for (int64_t i = 0; i < b->n; i++) b->place[i] = i;
    double x = imbalance(b);
    return (mt_imbalance){x, x};
}

/* Deals the next R B of the sorted sequences into R parts of B rows: b->rows, and b->part with the costliest
 * first. */
static void deal(mt_balance *b, const mt_balance_item *next)
{
    int64_t R = b->at.n_ranks, B = b->at.micro_batch;
    for (int64_t r = 0; r < R; r++) b->part[r] = (mt_balance_item){0, r};
    for (int64_t row = 0; row < B; row++, next += R) {
        sort(b->part, R); /* keys are negative costs here: the least so far comes first */
        for (int64_t k = 0; k < R; k++) {
            b->rows[b->part[k].id * B + row] = next[k].id;
            b->part[k].key -= next[k].key;
        }
    }
    for (int64_t r = 0; r < R; r++) b->part[r].key = -b->part[r].key;
    sort(b->part, R);
}

/* The parts of a micro-batch to the ranks: the costliest to the one with the least so far. */
static void hand_out(mt_balance *b, int64_t micro)
{
    int64_t R = b->at.n_ranks, B = b->at.micro_batch;
    sort(b->rank, R); /* negative costs again */
    for (int64_t k = 0; k < R; k++) {
        int64_t *to = b->place + (micro * R + b->rank[k].id) * B, *from = b->rows + b->part[k].id * B;
        for (int64_t row = 0; row < B; row++) to[row] = from[row];
        b->rank[k].key -= b->part[k].key;
    }
}

mt_imbalance mt_balance_place(mt_balance *b)
{
    int64_t R = b->at.n_ranks, rows = R * b->at.micro_batch;
    mt_imbalance x = mt_balance_keep(b);
    if (R == 1) return x;
    for (int64_t i = 0; i < b->n; i++) b->sorted[i] = (mt_balance_item){b->cost[i], i};
    sort(b->sorted, b->n);
    for (int64_t r = 0; r < R; r++) b->rank[r] = (mt_balance_item){0, r};
    for (int64_t m = 0; m < b->at.n_micro; m++) {
        deal(b, b->sorted + m * rows);
        hand_out(b, m);
    }
    x.placed = imbalance(b);
    return x.placed < x.data ? x : mt_balance_keep(b);
}
