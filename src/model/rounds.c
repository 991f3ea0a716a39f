#include "model/rounds.h"

#include "device/op.h"

/* The last place at or before `end` where a round may stop. */
static int64_t cut(const int32_t *counts, int64_t experts, int64_t end)
{
    int64_t at = 0;
    for (int64_t e = 0; e < experts; e++) {
        if (end < at + counts[e]) return at + (end - at) / MT_ROUND_ROWS * MT_ROUND_ROWS;
        at += counts[e];
    }
    return end;
}

bool mt_round_next(struct mt_round *n, const int32_t *counts, int64_t experts, int64_t cap, int64_t total)
{
    int64_t first = n->first + n->rows, end = first + cap;
    if (n->index && first >= total) return false;
    end = end >= total ? total : cut(counts, experts, end);
    *n = (struct mt_round){first, end - first, n->index + 1};
    return true;
}

bool mt_round_forced(struct mt_round *n, int64_t cap, int64_t total, int rounds)
{
    int64_t first = n->first + n->rows, left = total - first;
    if (n->index == rounds) return false;
    *n = (struct mt_round){first, left < cap ? left : cap, n->index + 1};
    return true;
}
