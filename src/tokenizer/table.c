#include "tokenizer/table.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static int64_t power_of_two(int64_t least)
{
    int64_t n = 16;
    while (n < least) n *= 2;
    return n;
}

/* ---- tokens by their bytes ---- */
mt_status mt_words_open(struct mt_words *w, int64_t most, int64_t bytes, mt_err *e)
{
    *w = (struct mt_words){.slots = power_of_two(2 * most)};
    w->slot = malloc((size_t)w->slots * sizeof *w->slot);
    w->text = malloc((size_t)bytes + 1);
    MT_REQUIRE(w->slot && w->text, e, MT_IO, "no memory for a vocabulary of %lld tokens", (long long)most);
    for (int64_t i = 0; i < w->slots; i++) w->slot[i].id = -1;
    return MT_OK;
}
void mt_words_close(struct mt_words *w)
{
    free(w->slot);
    free(w->text);
    *w = (struct mt_words){0};
}

/* The slot with these bytes, or the free one where they would be. */
static struct mt_word *word_slot(const struct mt_words *w, const char *bytes, int64_t n)
{
    int64_t i = (int64_t)XXH3_64bits(bytes, (size_t)n) & (w->slots - 1);
    for (;; i = (i + 1) & (w->slots - 1)) {
        struct mt_word *s = &w->slot[i];
        if (s->id < 0 || (s->bytes == n && !memcmp(w->text + s->at, bytes, (size_t)n))) return s;
    }
}
bool mt_words_add(struct mt_words *w, const char *bytes, int64_t n, int32_t id)
{
    struct mt_word *s = word_slot(w, bytes, n);
    if (s->id >= 0) return false;
    *s = (struct mt_word){w->text_bytes, (int32_t)n, id};
    memcpy(w->text + w->text_bytes, bytes, (size_t)n);
    w->text_bytes += n;
    w->n++;
    return true;
}
int32_t mt_words_find(const struct mt_words *w, const char *bytes, int64_t n)
{
    return w->slots ? word_slot(w, bytes, n)->id : -1;
}

/* ---- merges ---- */
mt_status mt_merges_open(struct mt_merges *m, int64_t most, mt_err *e)
{
    *m = (struct mt_merges){.slots = power_of_two(2 * most)};
    m->slot = malloc((size_t)m->slots * sizeof *m->slot);
    MT_REQUIRE(m->slot, e, MT_IO, "no memory for %lld merges", (long long)most);
    for (int64_t i = 0; i < m->slots; i++) m->slot[i].pair = UINT64_MAX;
    return MT_OK;
}
bool mt_merges_add(struct mt_merges *m, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, h = pair * UINT64_C(0x9E3779B97F4A7C15);
    int64_t i = (int64_t)(h >> 20) & (m->slots - 1);
    for (; m->slot[i].pair != UINT64_MAX; i = (i + 1) & (m->slots - 1))
        if (m->slot[i].pair == pair) return false;
    m->slot[i] = (struct mt_merge){pair, rank, id};
    m->n++;
    return true;
}

/* ---- added tokens ---- */
static int32_t child_of(const struct mt_trie *t, int32_t node, unsigned char byte)
{
    int32_t c = t->node[node].child;
    while (c && t->node[c].byte != byte) c = t->node[c].sibling;
    return c;
}
static void trie_add(struct mt_trie *t, const struct mt_added *a, int32_t token)
{
    int32_t at = 0;
    t->begins[(unsigned char)a->text[0]] = true;
    for (int32_t i = 0; i < a->bytes; i++) {
        unsigned char byte = (unsigned char)a->text[i];
        int32_t next = child_of(t, at, byte);
        if (!next) {
            next = (int32_t)t->n++;
            t->node[next] = (struct mt_trie_node){.sibling = t->node[at].child, .token = -1, .byte = byte};
            t->node[at].child = next;
        }
        at = next;
    }
    t->node[at].token = token;
}
mt_status mt_trie_make(struct mt_trie *t, const struct mt_tokenizer *k, bool normalized, bool specials,
                       mt_err *e)
{
    int64_t most = 1;
    for (int64_t i = 0; i < k->n_added; i++) most += k->added[i].bytes;
    t->node = malloc((size_t)most * sizeof *t->node);
    MT_REQUIRE(t->node, e, MT_IO, "no memory for %lld added tokens", (long long)k->n_added);
    t->node[0] = (struct mt_trie_node){.token = -1};
    t->n = 1;
    for (int64_t i = 0; i < k->n_added; i++)
        if (k->added[i].normalized == normalized && (specials || !k->added[i].special))
            trie_add(t, &k->added[i], (int32_t)i);
    return MT_OK;
}
int32_t mt_trie_longest(const struct mt_trie *t, const char *text, int64_t bytes)
{
    int32_t at = 0, found = -1;
    for (int64_t i = 0; i < bytes; i++) {
        at = child_of(t, at, (unsigned char)text[i]);
        if (!at) break;
        if (t->node[at].token >= 0) found = t->node[at].token;
    }
    return found;
}
