#include "model/rounds.h"

#include <string.h>

/* Every member at the first of its experts. */
static void start(struct mt_round *n, const struct mt_routing *r)
{
    int64_t own = r->experts / r->ep;
    for (int s = 0; s < r->ep; s++) {
        int64_t sent = 0;
        for (int q = 0; q < r->ep; q++) {
            const int32_t *c = r->counts + s * r->experts + q * own;
            int64_t rows = 0;
            for (int64_t e = 0; e < own; e++) rows += c[e];
            n->sent[q][s] = sent;
            n->left[q] += rows;
            sent += rows;
        }
    }
    for (int q = 0; q < r->ep; q++) n->expert[q] = q * own;
}

/* Rows that the expert which member q is at has, by source and in all. */
static int64_t rows_of(const struct mt_round *n, const struct mt_routing *r, int q, int64_t *rows)
{
    int64_t all = 0;
    for (int s = 0; s < r->ep; s++) all += rows[s] = r->counts[s * r->experts + n->expert[q]];
    return all;
}

/* Adds those of them that are in [first, last) of the member's order. */
static void add_part(struct mt_round *n, const struct mt_routing *r, int q, const int64_t *rows,
                     int64_t first, int64_t last)
{
    int64_t at = n->before[q];
    for (int s = 0; s < r->ep; at += rows[s++]) {
        int64_t b = at > first ? at : first, z = at + rows[s] < last ? at + rows[s] : last;
        if (z <= b) continue;
        if (!n->part[q][s]) n->begin[q][s] = n->sent[q][s] + b - at;
        n->part[q][s] += z - b;
    }
}
/* Member q is behind the expert that it was at. */
static void pass(struct mt_round *n, const struct mt_routing *r, int q, const int64_t *rows, int64_t all)
{
    for (int s = 0; s < r->ep; s++) n->sent[q][s] += rows[s];
    n->before[q] += all;
    n->expert[q]++;
}
/* Adds experts that fit whole. */
static void add_whole(struct mt_round *n, const struct mt_routing *r, int q, int64_t want)
{
    int64_t end = (q + 1) * (r->experts / r->ep), sum[MT_MAX_EP] = {0}, rows[MT_MAX_EP];
    for (; n->expert[q] < end; n->expert[q]++) {
        int64_t all = rows_of(n, r, q, rows);
        if (n->before[q] + all > want) break;
        n->before[q] += all;
        for (int s = 0; s < r->ep; s++) sum[s] += rows[s];
    }
    for (int s = 0; s < r->ep; s++) {
        if (!n->part[q][s] && sum[s]) n->begin[q][s] = n->sent[q][s];
        n->part[q][s] += sum[s];
        n->sent[q][s] += sum[s];
    }
}

/* Member q's rows of the next round: what is left of the expert where the last one ended, whole ones, and of the one that does
 * not fit, what may be cut off. */
static void fill(struct mt_round *n, const struct mt_routing *r, int q)
{
    int64_t first = n->at[q], want = first + r->cap, end = (q + 1) * (r->experts / r->ep), rows[MT_MAX_EP];
    if (n->before[q] < first) {
        int64_t all = rows_of(n, r, q, rows);
        if (n->before[q] + all <= want) {
            add_part(n, r, q, rows, first, n->before[q] + all);
            pass(n, r, q, rows, all);
        }
    }
    if (n->before[q] >= first) add_whole(n, r, q, want);
    n->at[q] = n->before[q];
    if (n->expert[q] < end) {
        rows_of(n, r, q, rows);
        n->at[q] += (want - n->before[q]) / MT_ROUND_ROWS * MT_ROUND_ROWS;
        add_part(n, r, q, rows, first, n->at[q]);
    }
    n->n[q] = n->at[q] - first;
    n->left[q] -= n->n[q];
}

bool mt_round_next(struct mt_round *n, const struct mt_routing *r)
{
    bool any = !n->index;
    if (!n->index) start(n, r);
    for (int q = 0; q < r->ep; q++) any = any || n->left[q] > 0;
    if (!any) return false;
    n->index++;
    n->first = n->at[r->me];
    memset(n->part, 0, sizeof n->part);
    memset(n->begin, 0, sizeof n->begin);
    for (int q = 0; q < r->ep; q++) fill(n, r, q);
    n->rows = n->n[r->me];
    return true;
}

bool mt_round_forced(struct mt_round *n, const struct mt_routing *r, int rounds)
{
    int64_t first = n->first + n->rows, left = r->sent - first;
    if (n->index == rounds) return false;
    *n = (struct mt_round){.index = n->index + 1, .first = first, .rows = left < r->cap ? left : r->cap};
    return true;
}

void mt_round_peers(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    int64_t at = 0;
    for (int p = 0; p < r->ep; p++) {
        int64_t received = n->part[r->me][p];
        peer[p] = (struct mt_exchange_peer){(int32_t)n->begin[p][r->me], (int32_t)n->part[p][r->me],
                                            (int32_t)at, (int32_t)received, (int32_t)n->begin[r->me][p]};
        at += received;
    }
}

void mt_round_home(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    struct mt_exchange_peer out[MT_MAX_EP];
    mt_round_peers(n, r, out);
    for (int p = 0; p < r->ep; p++) {
        int64_t at = 0; /* where member p keeps this rank's rows among what it received */
        for (int s = 0; s < r->me; s++) at += n->part[p][s];
        peer[p] = (struct mt_exchange_peer){out[p].recv_first, out[p].recv_n, out[p].send_first,
                                            out[p].send_n, (int32_t)at};
    }
}
