/* helper.h: a small model's tensors, and files to damage, for the checkpoint tests. */
#ifndef MT_TESTS_CKPT_HELPER_H
#define MT_TESTS_CKPT_HELPER_H
#include "ckpt/ckpt.h"
#include "ckpt/file.h"

#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 7, MOST = 96 };

struct world {
    struct mt_ckpt_item item[TENSORS];
    struct mt_ckpt_piece piece[TENSORS];
    struct mt_ckpt_items items;
    float data[TENSORS][MOST];
};

/* Values of every kind of bits: numbers, and some NaNs, infinities, negative zeros and denormals. */
static inline void fill_world(struct world *w, uint32_t seed)
{
    static const uint32_t odd[] = {0x7fc12345, 0xff800000, 0x80000000, 0x00000001};
    uint32_t x = seed * 2654435761u + 1;
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < MOST; i++) {
            x = x * 1664525u + 1013904223u;
            uint32_t bits = x >> 28 ? (x >> 9 | 0x3f000000) : odd[x >> 9 & 3];
            memcpy(&w->data[t][i], &bits, sizeof bits);
        }
}

static inline void make_world(struct world *w, uint32_t seed)
{
    static const struct mt_ckpt_item items[TENSORS] = {
        {.name = "embed.weight", .rows = 8, .cols = 12},
        {.name = "layers.0.norm.weight", .rows = 5},
        {.name = "layers.0.moe.experts.0.gate.weight", .rows = 3, .cols = 7},
        {.name = "optim.m.embed.weight", .rows = 8, .cols = 12, .moment = true},
        {.name = "optim.m.layers.0.norm.weight", .rows = 5, .moment = true},
        {.name = "optim.v.embed.weight", .rows = 8, .cols = 12, .moment = true},
        {.name = "layers.0.moe.router.bias", .rows = 4},
    };
    memcpy(w->item, items, sizeof items);
    for (int t = 0; t < TENSORS; t++) {
        w->item[t].first = t;
        w->item[t].n = 1;
        w->piece[t] = (struct mt_ckpt_piece){.data = w->data[t], .rows = w->item[t].rows};
    }
    w->items = (struct mt_ckpt_items){.item = w->item, .piece = w->piece, .n = TENSORS, .n_pieces = TENSORS};
    fill_world(w, seed);
}

/* The bytes that belong to items, compared as bytes: NaNs count. */
static inline bool same_world(const struct world *a, const struct world *b)
{
    for (int t = 0; t < TENSORS; t++)
        if (memcmp(a->data[t], b->data[t], (size_t)mt_ckpt_item_bytes(&a->item[t]))) return false;
    return true;
}

/* mt_ckpt_load by one process that has all ranks. */
static inline mt_status load(const char *path, const struct mt_ckpt_items *items, bool weights_only,
                             struct mt_ckpt_meta *meta, mt_err *e)
{
    struct mt_job alone = mt_job_alone(1);
    struct mt_ckpt_loaded x;
    mt_status st = mt_ckpt_load(path, items, &alone, weights_only, &x, e);
    *meta = x.meta;
    return st;
}

static inline const char *temporary_folder(void)
{
    static char path[64];
    if (!*path) {
        snprintf(path, sizeof path, "/tmp/moetitan-ckpt-XXXXXX");
        if (!mkdtemp(path)) abort();
    }
    return path;
}
static inline void remove_temporary_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", temporary_folder());
    if (system(command)) abort();
}

/* A run's folder of its own for each test. */
static inline const char *run_folder(void)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", temporary_folder(), check_.test);
    return path;
}

struct bytes {
    unsigned char at[1 << 16];
    size_t n;
};
static inline bool read_bytes(struct bytes *b, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    b->n = fread(b->at, 1, sizeof b->at, f);
    fclose(f);
    return b->n < sizeof b->at;
}
static inline void write_bytes(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f)) abort();
}
static inline bool exists(const char *path)
{
    struct stat st;
    return !lstat(path, &st);
}

/* Fails with the code, and the message says the words. */
static inline bool failed_so(mt_status st, const mt_err *e, mt_status want, const char *words)
{
    if (st == want && e->code == want && strstr(e->msg, words)) return true;
    printf("    status %d, message \"%s\", wanted %d with \"%s\"\n", (int)st, e->msg, (int)want, words);
    return false;
}
#endif
