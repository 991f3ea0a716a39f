/* Best-fit decreasing: pieces are sorted by counting, and bins found through a set of the room left in
 * them. */
#include "data/bins.h"

#include "data/outfile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A set of integers below a limit: words of 64 members; each level marks the non-empty words of the one
 * below. */
enum { SET_LEVELS = 5 };
typedef struct room_set {
    int levels;
    int64_t words[SET_LEVELS];
    uint64_t *word[SET_LEVELS]; /* level 0 holds the members, the last level is one word */
} room_set;

static bool set_init(room_set *s, int64_t limit)
{
    int64_t n = limit;
    do {
        n = (n + 63) / 64;
        s->words[s->levels] = n;
        s->word[s->levels] = calloc((size_t)n, 8);
        if (!s->word[s->levels++]) return false;
    } while (n > 1);
    return true;
}

static void set_add(room_set *s, int64_t v)
{
    for (int l = 0; l < s->levels; l++, v >>= 6) s->word[l][v >> 6] |= UINT64_C(1) << (v & 63);
}

static void set_remove(room_set *s, int64_t v)
{
    for (int l = 0; l < s->levels; l++, v >>= 6)
        if (s->word[l][v >> 6] &= ~(UINT64_C(1) << (v & 63))) return;
}

/* The least member >= v, or -1. */
static int64_t set_next(const room_set *s, int64_t v)
{
    for (int l = 0; l < s->levels; l++) {
        int64_t at = v >> 6;
        if (at >= s->words[l]) return -1;
        uint64_t w = s->word[l][at] >> (v & 63);
        if (w) {
            v += __builtin_ctzll(w);
            while (l-- > 0) v = v << 6 | __builtin_ctzll(s->word[l][v]);
            return v;
        }
        v = at + 1;
    }
    return -1;
}

typedef struct packing {
    int64_t seq_len, n_pieces, n_bins;
    int64_t *start, *next; /* [n_pieces] longest first: token position, next piece of the same bin or -1 */
    int32_t *length;       /* [n_pieces] */
    int64_t *head, *tail;  /* [n_bins] first and last piece */
    int64_t *below;        /* [n_bins] next bin with the same room, or -1 */
    int64_t *at_room;      /* [seq_len + 1] last bin with that room, or -1; while sorting, places by length */
    room_set rooms;        /* the rooms for which at_room has a bin */
} packing;

static void packing_release(packing *k)
{
    free(k->start);
    free(k->next);
    free(k->length);
    free(k->head);
    free(k->tail);
    free(k->below);
    free(k->at_room);
    for (int l = 0; l < k->rooms.levels; l++) free(k->rooms.word[l]);
}

/* Calls for each piece of each document, in corpus order: counts by length, or puts into place. */
static void each_piece(packing *k, const mt_index *x, bool place)
{
    for (int64_t d = 0; d < x->n_documents; d++) {
        int64_t end = mt_index_document_start(x, d + 1);
        for (int64_t p = mt_index_document_start(x, d); p < end; p += k->seq_len) {
            int64_t n = end - p < k->seq_len ? end - p : k->seq_len;
            int64_t at = k->at_room[n]++;
            if (!place) continue;
            k->start[at] = p;
            k->length[at] = (int32_t)n;
        }
    }
}

static bool sort_pieces(packing *k, const mt_index *x)
{
    k->at_room = calloc((size_t)k->seq_len + 1, 8);
    if (!k->at_room) return false;
    each_piece(k, x, false);
    for (int64_t n = k->seq_len; n > 0; n--) { /* counts become places, the longest first */
        int64_t count = k->at_room[n];
        k->at_room[n] = k->n_pieces;
        k->n_pieces += count;
    }
    k->start = calloc((size_t)k->n_pieces, 8);
    k->length = calloc((size_t)k->n_pieces, 4);
    if (!k->start || !k->length) return false;
    each_piece(k, x, true);
    return true;
}

static void put_room(packing *k, int64_t bin, int64_t room)
{
    if (k->at_room[room] < 0) set_add(&k->rooms, room);
    k->below[bin] = k->at_room[room];
    k->at_room[room] = bin;
}

static int64_t take_room(packing *k, int64_t room)
{
    int64_t bin = k->at_room[room];
    k->at_room[room] = k->below[bin];
    if (k->at_room[room] < 0) set_remove(&k->rooms, room);
    return bin;
}

static bool fill_bins(packing *k)
{
    size_t n = (size_t)k->n_pieces; /* at most one bin a piece */
    k->next = malloc(8 * n);
    k->head = malloc(8 * n);
    k->tail = malloc(8 * n);
    k->below = malloc(8 * n);
    if (!k->next || !k->head || !k->tail || !k->below || !set_init(&k->rooms, k->seq_len + 1)) return false;
    for (int64_t room = 0; room <= k->seq_len; room++) k->at_room[room] = -1;
    for (int64_t p = 0; p < k->n_pieces; p++) {
        int64_t room = set_next(&k->rooms, k->length[p]), bin;
        k->next[p] = -1;
        if (room < 0) {
            room = k->seq_len;
            bin = k->n_bins++;
            k->head[bin] = p;
        } else {
            bin = take_room(k, room);
            k->next[k->tail[bin]] = p;
        }
        k->tail[bin] = p;
        put_room(k, bin, room - k->length[p]);
    }
    return true;
}

static mt_status write_bins(const packing *k, const mt_index *x, mt_outfile *f, mt_err *e)
{
    int64_t h[MT_BINS_HEADER_BYTES / 8] = {0,           1,           k->seq_len,    k->n_bins,
                                           k->n_pieces, x->n_tokens, x->n_documents};
    int64_t first = 0;
    memcpy(h, MT_BINS_MAGIC, 8);
    MT_TRY(mt_outfile_write(f, h, sizeof h, e));
    for (int64_t i = 0; i < k->n_bins; i++) {
        MT_TRY(mt_outfile_write(f, &first, 8, e));
        for (int64_t p = k->head[i]; p >= 0; p = k->next[p]) first++;
    }
    MT_TRY(mt_outfile_write(f, &first, 8, e));
    for (int64_t i = 0; i < k->n_bins; i++)
        for (int64_t p = k->head[i]; p >= 0; p = k->next[p]) MT_TRY(mt_outfile_write(f, &k->start[p], 8, e));
    for (int64_t i = 0; i < k->n_bins; i++)
        for (int64_t p = k->head[i]; p >= 0; p = k->next[p]) MT_TRY(mt_outfile_write(f, &k->length[p], 4, e));
    MT_TRY(mt_outfile_finish(f, e));
    return mt_outfile_place(f, e);
}

mt_status mt_bins_write(const mt_index *x, const char *prefix, int64_t seq_len, mt_err *e)
{
    MT_REQUIRE(seq_len >= 1 && seq_len <= MT_BINS_MAX_LENGTH, e, MT_CONFIG,
               "packing %s: a length of %" PRId64 ", allowed are 1 to %d", prefix, seq_len,
               MT_BINS_MAX_LENGTH);
    packing k = {.seq_len = seq_len};
    mt_outfile f = {0};
    mt_status s = MT_OK;
    if (!sort_pieces(&k, x) || !fill_bins(&k)) s = mt_err_set(e, MT_IO, "packing %s: out of memory", prefix);
    if (s == MT_OK) s = mt_outfile_open(&f, prefix, ".pack", e);
    if (s == MT_OK) s = write_bins(&k, x, &f, e);
    mt_outfile_release(&f);
    packing_release(&k);
    return s;
}
