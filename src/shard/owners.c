#include "shard/owners.h"

#include <stdlib.h>

#include "base/status.h"

struct entry {
    struct mt_load load;
    int index;
};

static int order(const struct mt_load *a, const struct mt_load *b)
{
    if (a->flops != b->flops) return a->flops < b->flops ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}
static bool less(const struct entry *a, const struct entry *b)
{
    int o = order(&a->load, &b->load);
    return o ? o < 0 : a->index < b->index;
}
static int longest_first(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    int o = order(&b->load, &a->load);
    return o ? o : a->index - b->index;
}

/* Restores the heap h[n], least on top, below entry i. */
static void sink(struct entry *h, int n, int i)
{
    for (int child; (child = 2 * i + 1) < n;) {
        if (child + 1 < n && less(&h[child + 1], &h[child])) child++;
        if (!less(&h[child], &h[i])) return;
        struct entry t = h[i];
        h[i] = h[child];
        h[child] = t;
        i = child;
    }
}

void mt_owners_assign(int *owner, struct mt_load *load, int ranks, const struct mt_load *item, int n)
{
    struct entry *heap = malloc((size_t)ranks * sizeof *heap), *list = malloc((size_t)(n + 1) * sizeof *list);
    MT_ASSERT(ranks > 0 && heap && list);
    for (int i = 0; i < n; i++) list[i] = (struct entry){item[i], i};
    qsort(list, (size_t)n, sizeof *list, longest_first);
    for (int r = 0; r < ranks; r++) heap[r] = (struct entry){load[r], r};
    for (int r = ranks / 2 - 1; r >= 0; r--) sink(heap, ranks, r);
    for (int i = 0; i < n; i++) {
        owner[list[i].index] = heap[0].index;
        heap[0].load.flops += list[i].load.flops;
        heap[0].load.bytes += list[i].load.bytes;
        sink(heap, ranks, 0);
    }
    for (int r = 0; r < ranks; r++) load[heap[r].index] = heap[r].load;
    free(heap);
    free(list);
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
