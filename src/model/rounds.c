#include "model/rounds.h"

#include <string.h>

#include "base/status.h"

/* Rows for expert e (of all) from all sources. */
static int64_t rows_of(const struct mt_routing *r, int64_t e)
{
    int64_t n = 0;
    for (int s = 0; s < r->ep; s++) n += r->counts[s * r->experts + e];
    return n;
}

/* Rows of source s for all experts of member q. */
static int64_t rows_between(const struct mt_routing *r, int q, int s)
{
    const int32_t *c = r->counts + s * r->experts + q * (r->experts / r->ep);
    int64_t n = 0;
    for (int64_t e = 0; e < r->experts / r->ep; e++) n += c[e];
    return n;
}
static int64_t rows_of_member(const struct mt_routing *r, int q)
{
    int64_t n = 0;
    for (int s = 0; s < r->ep; s++) n += rows_between(r, q, s);
    return n;
}

/* Where member q's round that begins at `first` ends. */
static int64_t round_end(const struct mt_routing *r, int q, int64_t first)
{
    int64_t own = r->experts / r->ep, at = 0, want = first + r->cap, cut = -1, all = rows_of_member(r, q);
    if (want >= all) return all; /* most often */
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

/* Of every member's round and every source: its rows, and where they begin in what the source sends. */
struct segments {
    int64_t begin[MT_MAX_EP][MT_MAX_EP], rows[MT_MAX_EP][MT_MAX_EP]; /* [member][source] */
};
static void cut_segments(struct segments *x, const struct mt_round *n, const struct mt_routing *r)
{
    int64_t own = r->experts / r->ep, sent[MT_MAX_EP] = {0};
    for (int q = 0; q < r->ep; q++) {
        int64_t at = 0, first = n->at[q], last = first + n->n[q], all = 0;
        for (int s = 0; s < r->ep; s++) {
            all += x->rows[q][s] = rows_between(r, q, s);
            x->begin[q][s] = x->rows[q][s] ? sent[s] : 0;
        }
        if (!first && last == all) { /* most often: all in one round */
            for (int s = 0; s < r->ep; s++) sent[s] += x->rows[q][s];
            continue;
        }
        memset(x->rows[q], 0, sizeof x->rows[q]);
        memset(x->begin[q], 0, sizeof x->begin[q]);
        for (int64_t e = q * own; e < (q + 1) * own; e++)
            for (int s = 0; s < r->ep; s++) {
                int64_t c = r->counts[s * r->experts + e], b = at > first ? at : first,
                        z = at + c < last ? at + c : last;
                if (z > b) {
                    if (!x->rows[q][s]) x->begin[q][s] = sent[s] + b - at;
                    x->rows[q][s] += z - b;
                }
                sent[s] += c;
                at += c;
            }
    }
}

static void peers_of(const struct segments *x, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    int64_t at = 0;
    for (int p = 0; p < r->ep; p++) {
        int64_t received = x->rows[r->me][p];
        peer[p] = (struct mt_exchange_peer){(int32_t)x->begin[p][r->me], (int32_t)x->rows[p][r->me],
                                            (int32_t)at, (int32_t)received, (int32_t)x->begin[r->me][p]};
        at += received;
    }
}

void mt_round_peers(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    struct segments x;
    cut_segments(&x, n, r);
    peers_of(&x, r, peer);
}

void mt_round_home(const struct mt_round *n, const struct mt_routing *r, struct mt_exchange_peer *peer)
{
    struct segments x;
    struct mt_exchange_peer out[MT_MAX_EP];
    cut_segments(&x, n, r);
    peers_of(&x, r, out);
    for (int p = 0; p < r->ep; p++) {
        int64_t at = 0; /* where member p keeps this rank's rows among what it received */
        for (int s = 0; s < r->me; s++) at += x.rows[p][s];
        peer[p] = (struct mt_exchange_peer){out[p].recv_first, out[p].recv_n, out[p].send_first,
                                            out[p].send_n, (int32_t)at};
    }
}
