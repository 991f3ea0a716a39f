#include "shard/owners.h"

#include <stdlib.h>

#include "base/status.h"

struct entry {
    struct mt_load load;
    int index;
};

/* Ranks, the least on top: by flops, or only by bytes. */
struct heap {
    struct entry *rank;
    int n;
    bool bytes;
};

static int order(const struct mt_load *a, const struct mt_load *b)
{
    if (a->flops != b->flops) return a->flops < b->flops ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}
static bool less(const struct heap *h, int i, int k)
{
    const struct entry *a = &h->rank[i], *b = &h->rank[k];
    int o = h->bytes ? (a->load.bytes > b->load.bytes) - (a->load.bytes < b->load.bytes)
                     : order(&a->load, &b->load);
    return o ? o < 0 : a->index < b->index;
}
static int longest_first(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    int o = order(&b->load, &a->load);
    return o ? o : a->index - b->index;
}

/* Restores the heap below entry i. */
static void sink(struct heap *h, int i)
{
    for (int child; (child = 2 * i + 1) < h->n;) {
        if (child + 1 < h->n && less(h, child + 1, child)) child++;
        if (!less(h, child, i)) return;
        struct entry t = h->rank[i];
        h->rank[i] = h->rank[child];
        h->rank[child] = t;
        i = child;
    }
}
static void heapify(struct heap *h, bool bytes)
{
    h->bytes = bytes;
    for (int r = h->n / 2 - 1; r >= 0; r--) sink(h, r);
}

void mt_owners_assign(int *owner, struct mt_load *load, int ranks, const struct mt_load *item, int n)
{
    struct heap h = {.rank = malloc((size_t)ranks * sizeof *h.rank), .n = ranks};
    struct entry *list = malloc((size_t)(n + 1) * sizeof *list);
    MT_ASSERT(ranks > 0 && h.rank && list);
    for (int i = 0; i < n; i++) list[i] = (struct entry){item[i], i};
    qsort(list, (size_t)n, sizeof *list, longest_first);
    for (int r = 0; r < ranks; r++) h.rank[r] = (struct entry){load[r], r};
    heapify(&h, false);
    for (int i = 0; i < n; i++) {
        if (list[i].load.flops <= 0 && !h.bytes) heapify(&h, true);
        struct entry *least = &h.rank[0];
        owner[list[i].index] = least->index;
        least->load.flops += list[i].load.flops;
        least->load.bytes += list[i].load.bytes;
        sink(&h, 0);
    }
    for (int r = 0; r < ranks; r++) load[h.rank[r].index] = h.rank[r].load;
    free(h.rank);
    free(list);
}

int64_t mt_owners_turn(int64_t n, int ranks, int64_t turn, int64_t k)
{
    return (turn + k) * n / ranks - turn * n / ranks;
}

double mt_owners_imbalance(const struct mt_load *load, int ranks)
{
    double most = 0, sum = 0;
    for (int r = 0; r < ranks; r++) {
        sum += load[r].flops;
        if (load[r].flops > most) most = load[r].flops;
    }
    return sum > 0 ? most * ranks / sum : 1;
}
