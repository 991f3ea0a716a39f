#include "tokenizer/word.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 48 };

/* Short words: ranks of all pairs in an array, searched each time. */
static int64_t merge_short(const struct mt_tokenizer *t, const char *text, int64_t bytes, int32_t *ids)
{
    const struct mt_merge *pair[SHORT_WORD];
    int64_t n = bytes;
    for (int64_t i = 0; i < n; i++) ids[i] = t->of_byte[(unsigned char)text[i]];
    for (int64_t i = 0; i + 1 < n; i++) pair[i] = mt_merges_find(&t->merges, ids[i], ids[i + 1]);
    for (;;) {
        int64_t best = -1;
        for (int64_t i = 0; i + 1 < n; i++)
            if (pair[i] && (best < 0 || pair[i]->rank < pair[best]->rank)) best = i;
        if (best < 0) return n;
        ids[best] = pair[best]->id;
        n--;
        for (int64_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (int64_t i = best + 1; i + 1 < n; i++) pair[i] = pair[i + 1];
        if (best + 1 < n) pair[best] = mt_merges_find(&t->merges, ids[best], ids[best + 1]);
        if (best > 0) pair[best - 1] = mt_merges_find(&t->merges, ids[best - 1], ids[best]);
    }
}

/* ---- long words: a heap of what could be merged, so that a run of n bytes costs n log n ---- */
static bool sooner(const struct mt_word_join *a, const struct mt_word_join *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}
static void heap_put(struct mt_word_room *w, struct mt_word_join x)
{
    int64_t i = w->n_join++;
    for (; i > 0 && sooner(&x, &w->join[(i - 1) / 2]); i = (i - 1) / 2) w->join[i] = w->join[(i - 1) / 2];
    w->join[i] = x;
}
static struct mt_word_join heap_take(struct mt_word_room *w)
{
    struct mt_word_join first = w->join[0], x = w->join[--w->n_join];
    int64_t i = 0;
    for (int64_t c; (c = 2 * i + 1) < w->n_join; i = c) {
        if (c + 1 < w->n_join && sooner(&w->join[c + 1], &w->join[c])) c++;
        if (!sooner(&w->join[c], &x)) break;
        w->join[i] = w->join[c];
    }
    w->join[i] = x;
    return first;
}
static void offer(struct mt_word_room *w, const struct mt_tokenizer *t, int32_t at)
{
    if (at < 0 || w->part[at].after < 0) return;
    int32_t left = w->part[at].id, right = w->part[w->part[at].after].id;
    const struct mt_merge *m = mt_merges_find(&t->merges, left, right);
    if (m) heap_put(w, (struct mt_word_join){m->rank, at, left, right, m->id});
}

/* At most bytes - 1 pairs at first, and two more for each of at most bytes - 1 merges. */
static mt_status make_room(struct mt_word_room *w, int64_t bytes, mt_err *e)
{
    MT_REQUIRE(bytes < INT32_MAX / 4, e, MT_DATA, "a word of %lld bytes", (long long)bytes);
    if (bytes <= w->room) return MT_OK;
    mt_word_room_release(w);
    w->part = malloc((size_t)bytes * sizeof *w->part);
    w->join = malloc((size_t)(3 * bytes) * sizeof *w->join);
    MT_REQUIRE(w->part && w->join, e, MT_IO, "no memory to merge a word of %lld bytes", (long long)bytes);
    w->room = bytes;
    return MT_OK;
}

static void join(struct mt_word_room *w, const struct mt_tokenizer *t, const struct mt_word_join *x)
{
    struct mt_word_part *left = &w->part[x->at], *right = left->after < 0 ? NULL : &w->part[left->after];
    if (!right || left->id != x->left || right->id != x->right) return;
    left->id = x->id;
    left->after = right->after;
    right->id = -1;
    if (left->after >= 0) w->part[left->after].before = x->at;
    offer(w, t, left->before);
    offer(w, t, x->at);
}

static int64_t merge_long(struct mt_word_room *w, const struct mt_tokenizer *t, const char *text,
                          int32_t bytes, int32_t *ids)
{
    w->n_join = 0;
    for (int32_t i = 0; i < bytes; i++)
        w->part[i] =
            (struct mt_word_part){t->of_byte[(unsigned char)text[i]], i - 1, i + 1 < bytes ? i + 1 : -1};
    for (int32_t i = 0; i < bytes; i++) offer(w, t, i);
    while (w->n_join) {
        struct mt_word_join x = heap_take(w);
        join(w, t, &x);
    }
    int64_t n = 0;
    for (int32_t i = 0; i >= 0; i = w->part[i].after) ids[n++] = w->part[i].id;
    return n;
}

mt_status mt_word_merge(struct mt_word_room *w, const struct mt_tokenizer *t, const char *text, int64_t bytes,
                        int32_t *ids, int64_t *n, mt_err *e)
{
    if (bytes <= SHORT_WORD) {
        *n = merge_short(t, text, bytes, ids);
        return MT_OK;
    }
    MT_TRY(make_room(w, bytes, e));
    *n = merge_long(w, t, text, (int32_t)bytes, ids);
    return MT_OK;
}
void mt_word_room_release(struct mt_word_room *w)
{
    free(w->part);
    free(w->join);
    *w = (struct mt_word_room){0};
}
