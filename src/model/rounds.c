#include "model/rounds.h"

#include "base/status.h"

/* Rows for expert e (of all) from all sources. */
static int64_t rows_of(const struct mt_routing *r, int64_t e)
{
    int64_t n = 0;
    for (int s = 0; s < r->ep; s++) n += r->counts[s * r->experts + e];
    return n;
}

static int64_t rows_of_member(const struct mt_routing *r, int q)
{
    int64_t own = r->experts / r->ep, n = 0;
    for (int64_t e = q * own; e < (q + 1) * own; e++) n += rows_of(r, e);
    return n;
}

/* Where member q's round that begins at `first` ends. */
static int64_t round_end(const struct mt_routing *r, int q, int64_t first)
{
    int64_t own = r->experts / r->ep, at = 0, want = first + r->cap, cut = -1;
    for (int64_t e = q * own; e < (q + 1) * own; e++) {
        int64_t n = rows_of(r, e);
        if (cut < 0 && want < at + n) cut = at + (want - at) / MT_ROUND_ROWS * MT_ROUND_ROWS;
        at += n;
    }
    return cut < 0 ? at : cut;
}

bool mt_round_next(struct mt_round *n, const struct mt_routing *r)
{
    struct mt_round next = {.index = n->index + 1};
    bool any = !n->index;
    for (int q = 0; q < r->ep; q++) {
        next.at[q] = n->at[q] + n->n[q];
        next.n[q] = round_end(r, q, next.at[q]) - next.at[q];
        any = any || next.n[q] > 0;
    }
    for (int q = 0; q < r->ep && !any; q++)
        MT_ASSERT(next.at[q] == rows_of_member(r, q)); /* no row is left behind */
    if (!any) return false;
    next.first = next.at[r->me];
    next.rows = next.n[r->me];
    *n = next;
    return true;
}

bool mt_round_forced(struct mt_round *n, const struct mt_routing *r, int rounds)
{
    int64_t first = n->first + n->rows, left = r->sent - first;
    if (n->index == rounds) return false;
    *n = (struct mt_round){.index = n->index + 1, .first = first, .rows = left < r->cap ? left : r->cap};
    return true;
}

/* Rows of source s in member q's round, and where they begin in what s sends. */
static void segment(const struct mt_round *n, const struct mt_routing *r, int q, int s, int64_t *begin,
                    int64_t *rows)
{
    int64_t own = r->experts / r->ep, at = 0, sent = 0;
    *begin = *rows = 0;
    for (int64_t e = 0; e < q * own; e++) sent += r->counts[s * r->experts + e];
    for (int64_t e = q * own; e < (q + 1) * own; e++)
        for (int k = 0; k < r->ep; k++) {
            int64_t c = r->counts[k * r->experts + e], b = at > n->at[q] ? at : n->at[q],
                    z = at + c < n->at[q] + n->n[q] ? at + c : n->at[q] + n->n[q];
            if (k == s && z > b) {
                if (!*rows) *begin = sent + b - at;
                *rows += z - b;
            }
            if (k == s) sent += c;
            at += c;
        }
}

void mt_round_peers(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    int64_t at = 0;
    for (int p = 0; p < r->ep; p++) {
        int64_t send, send_n, from, recv_n;
        segment(n, r, p, r->me, &send, &send_n);
        segment(n, r, r->me, p, &from, &recv_n);
        peer[p] = (struct mt_exchange_peer){(int32_t)send, (int32_t)send_n, (int32_t)at, (int32_t)recv_n,
                                            (int32_t)from};
        at += recv_n;
    }
}

/* Where member q keeps the rows of source s among what it received in the round. */
static int64_t received_at(const struct mt_round *n, const struct mt_routing *r, int q, int s)
{
    int64_t at = 0, begin, rows;
    for (int k = 0; k < s; k++) {
        segment(n, r, q, k, &begin, &rows);
        at += rows;
    }
    return at;
}

void mt_round_home(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    struct mt_exchange_peer out[MT_MAX_EP];
    mt_round_peers(n, r, out);
    for (int p = 0; p < r->ep; p++)
        peer[p] = (struct mt_exchange_peer){out[p].recv_first, out[p].recv_n, out[p].send_first,
                                            out[p].send_n, (int32_t)received_at(n, r, p, r->me)};
}
