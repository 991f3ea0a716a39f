#include "device/group.h"

#include <stdlib.h>
#include <string.h>

mt_status mt_group_open(struct mt_group **group, const int *ranks, int n, mt_err *e)
{
    MT_ASSERT(n > 0);
    for (int i = 1; i < n; i++) MT_ASSERT(ranks[i] > ranks[i - 1]);
    struct mt_group *g = calloc(1, sizeof *g);
    bool ok = g && (g->rank = calloc((size_t)n, sizeof *g->rank));
    for (int s = 0; ok && s < MT_N_STREAMS; s++) {
        g->meet[s].at = calloc((size_t)n, sizeof *g->meet[s].at);
        g->meet[s].src = calloc((size_t)n, sizeof *g->meet[s].src);
        ok = g->meet[s].at && g->meet[s].src;
    }
    if (!ok) {
        mt_group_close(g);
        MT_FAIL(e, MT_IO, "opening a group of %d ranks: out of memory", n);
    }
    g->n = n;
    memcpy(g->rank, ranks, (size_t)n * sizeof *ranks);
    *group = g;
    return MT_OK;
}

mt_status mt_group_carry(struct mt_group *g, struct mt_wire *wire, mt_err *e)
{
    g->wire = wire;
    g->move = calloc((size_t)g->n * MT_N_STREAMS, sizeof *g->move);
    g->greeting = calloc((size_t)g->n * MT_N_STREAMS * 2, sizeof *g->greeting);
    MT_REQUIRE(g->move && g->greeting, e, MT_IO, "opening a group of %d ranks: out of memory", g->n);
    return MT_OK;
}

void mt_group_close(struct mt_group *g)
{
    if (!g) return;
    if (g->wire) g->wire->close(g->wire);
    free(g->move);
    free(g->greeting);
    for (int s = 0; s < MT_N_STREAMS; s++) {
        free(g->meet[s].at);
        free(g->meet[s].src);
    }
    free(g->rank);
    free(g);
}

int mt_group_in(const int *ranks, int n, int rank)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (ranks[mid] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && ranks[lo] == rank ? lo : -1;
}

int mt_group_member(const struct mt_group *g, int rank)
{
    return mt_group_in(g->rank, g->n, rank);
}
