/* simclock_program.c: programs and what they are made of, each kept once however many ranks have it. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "device/simclock_core.h"

void *mt_simclock_grown(void *p, int64_t n, int32_t *cap, size_t size)
{
    if (n < *cap) return p;
    *cap = *cap ? 2 * *cap : 64;
    p = realloc(p, (size_t)*cap * size);
    MT_ASSERT(p);
    return p;
}

/* ---- tables of equal things ---- */
static uint64_t hash_bytes(const void *p, size_t bytes)
{
    return XXH3_64bits(p, bytes);
}

/* A table of twice as many slots, empty. */
static int32_t *rehashed(int32_t *hash, int32_t *slots)
{
    *slots = *slots ? 2 * *slots : 1024;
    free(hash);
    hash = calloc((size_t)*slots, sizeof *hash);
    MT_ASSERT(hash);
    return hash;
}
/* Item i, which is in no slot yet, gets one. */
static void place(int32_t *hash, int32_t slots, uint64_t at, int32_t i)
{
    while (hash[at & (uint64_t)(slots - 1)]) at++;
    hash[at & (uint64_t)(slots - 1)] = i + 1;
}

int32_t mt_intern_add(struct mt_intern *t, const void *item)
{
    if (2 * t->n >= t->slots) {
        t->hash = rehashed(t->hash, &t->slots);
        for (int32_t i = 0; i < t->n; i++)
            place(t->hash, t->slots, hash_bytes(mt_intern_at(t, i), t->size), i);
    }
    uint64_t h = hash_bytes(item, t->size);
    for (uint64_t at = h;; at++) {
        int32_t i = t->hash[at & (uint64_t)(t->slots - 1)];
        if (!i) break;
        if (!memcmp(mt_intern_at(t, i - 1), item, t->size)) return i - 1;
    }
    t->item = mt_simclock_grown(t->item, t->n, &t->cap, t->size);
    memcpy(t->item + (size_t)t->n * t->size, item, t->size);
    place(t->hash, t->slots, h, t->n);
    return t->n++;
}
void mt_intern_release(struct mt_intern *t)
{
    free(t->item);
    free(t->hash);
}

/* The array that is equal to this one. */
static const void *blob(struct mt_blobs *b, const void *at, size_t bytes)
{
    if (2 * b->n >= b->slots) {
        b->hash = rehashed(b->hash, &b->slots);
        for (int32_t i = 0; i < b->n; i++) place(b->hash, b->slots, b->item[i].hash, i);
    }
    uint64_t h = hash_bytes(at, bytes);
    for (uint64_t s = h;; s++) {
        int32_t i = b->hash[s & (uint64_t)(b->slots - 1)];
        if (!i) break;
        const struct mt_blob *have = &b->item[i - 1];
        if (have->hash == h && have->bytes == bytes && !memcmp(have->at, at, bytes)) return have->at;
    }
    b->item = mt_simclock_grown(b->item, b->n, &b->cap, sizeof *b->item);
    struct mt_blob *new = &b->item[b->n];
    *new = (struct mt_blob){.at = malloc(bytes + 1), .bytes = bytes, .hash = h};
    MT_ASSERT(new->at);
    if (bytes) memcpy(new->at, at, bytes);
    place(b->hash, b->slots, h, b->n++);
    return new->at;
}
void mt_blobs_release(struct mt_blobs *b)
{
    for (int32_t i = 0; i < b->n; i++) free(b->item[i].at);
    free(b->item);
    free(b->hash);
}

void mt_tape_release(struct mt_tape *t)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        free(t->op[s]);
        free(t->what[s]);
    }
    free(t->first);
}

/* ---- programs ---- */
int32_t mt_simclock_keep(struct mt_simclock *k, const struct mt_tape *t)
{
    static const int32_t none = 0; /* of a stream without operations */
    struct mt_program p = {.n_segments = t->n_segments, .n_slots = t->n_slots, .total = t->total};
    for (int s = 0; s < MT_N_STREAMS; s++) {
        size_t n = (size_t)t->n[s];
        p.n[s] = t->n[s];
        p.op[s] = blob(&k->blobs, n ? (const void *)t->op[s] : &none, n * sizeof *p.op[s]);
        p.what[s] = blob(&k->blobs, n ? t->what[s] : &none, n * sizeof *p.what[s]);
    }
    p.first = blob(&k->blobs, t->first, (size_t)t->n_segments * sizeof *p.first);
    return mt_intern_add(&k->programs, &p);
}

/* Where the items of another clock's table are in this one's. */
static int32_t *names(struct mt_intern *t, const struct mt_intern *from)
{
    int32_t *to = calloc((size_t)from->n + 1, sizeof *to);
    MT_ASSERT(to);
    for (int32_t i = 0; i < from->n; i++) to[i] = mt_intern_add(t, mt_intern_at(from, i));
    return to;
}

/* A program of another clock, with this one's names on the tape of this one. */
static void rename_all(struct mt_tape *t, const struct mt_program *p, const int32_t *works,
                       const int32_t *transfers)
{
    for (int s = 0; s < MT_N_STREAMS; s++) {
        t->n[s] = 0;
        while (t->cap[s] < p->n[s]) {
            int32_t cap = t->cap[s];
            t->op[s] = mt_simclock_grown(t->op[s], cap, &t->cap[s], sizeof *t->op[s]);
            t->what[s] = mt_simclock_grown(t->what[s], cap, &cap, sizeof *t->what[s]);
        }
        t->n[s] = p->n[s];
        for (int i = 0; i < p->n[s]; i++) {
            enum mt_simclock_kind kind = (enum mt_simclock_kind)p->op[s][i].kind;
            bool named = kind != MT_SIM_NOTHING && kind != MT_SIM_WAIT;
            const int32_t *to = kind == MT_SIM_MOVE ? transfers : works;
            t->op[s][i] = p->op[s][i];
            t->what[s][i] = named ? to[p->what[s][i]] : 0;
        }
    }
    while (t->cap_segments < p->n_segments)
        t->first = mt_simclock_grown(t->first, t->cap_segments, &t->cap_segments, sizeof *t->first);
    memcpy(t->first, p->first, (size_t)p->n_segments * sizeof *t->first);
    t->n_segments = p->n_segments;
    t->n_slots = p->n_slots;
    t->total = p->total;
}

void mt_simclock_merge(struct mt_simclock *k, const struct mt_simclock *from)
{
    int32_t *works = names(&k->works, &from->works), *transfers = names(&k->transfers, &from->transfers),
            *to = calloc((size_t)from->programs.n + 1, sizeof *to);
    MT_ASSERT(to && from->o.world == k->o.world);
    for (int32_t i = 0; i < from->programs.n; i++) {
        rename_all(&k->now, mt_intern_at(&from->programs, i), works, transfers);
        to[i] = mt_simclock_keep(k, &k->now);
    }
    for (int r = 0; r < k->o.world; r++)
        if (from->program_of[r] >= 0) k->program_of[r] = to[from->program_of[r]];
    free(works);
    free(transfers);
    free(to);
}

void mt_simclock_same(struct mt_simclock *k, int rank, int like)
{
    k->program_of[rank] = k->program_of[like];
}
int64_t mt_simclock_bytes(const struct mt_simclock *k)
{
    int64_t bytes = k->programs.n * (int64_t)k->programs.size;
    for (int32_t i = 0; i < k->blobs.n; i++) bytes += (int64_t)k->blobs.item[i].bytes;
    return bytes;
}
int mt_simclock_programs(const struct mt_simclock *k)
{
    return k->programs.n;
}
int64_t mt_simclock_operations(const struct mt_simclock *k, int rank)
{
    return mt_simclock_program(k, rank)->total;
}
