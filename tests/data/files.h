/* files.h: token files written byte by byte for the data tests, without the product's writer. */
#ifndef MT_TESTS_DATA_FILES_H
#define MT_TESTS_DATA_FILES_H
#include "check.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct raw_index {
    unsigned char bytes[4096];
    int64_t n;
} raw_index;

static inline void raw_put(raw_index *r, const void *v, int64_t n)
{
    if (r->n + n > (int64_t)sizeof r->bytes) abort();
    memcpy(r->bytes + r->n, v, (size_t)n);
    r->n += n;
}

/* An index of sequences with `lengths`, gapless, documents beginning at the sequences
 * `documents[0..entries)`. */
static inline raw_index raw_make(int code, int64_t width, const int32_t *lengths, int64_t sequences,
                                 const int64_t *documents, int64_t entries)
{
    raw_index r = {.n = 0};
    int64_t version = 1, offset = 0;
    unsigned char c = (unsigned char)code;
    raw_put(&r, "MMIDIDX\0", 9);
    raw_put(&r, &version, 8);
    raw_put(&r, &c, 1);
    raw_put(&r, &sequences, 8);
    raw_put(&r, &entries, 8);
    raw_put(&r, lengths, 4 * sequences);
    for (int64_t s = 0; s < sequences; s++) {
        raw_put(&r, &offset, 8);
        offset += lengths[s] * width;
    }
    raw_put(&r, documents, 8 * entries);
    return r;
}

static inline const char *temporary_folder(void)
{
    static char path[64];
    if (!*path) {
        snprintf(path, sizeof path, "/tmp/moetitan-data-XXXXXX");
        if (!mkdtemp(path)) abort();
    }
    return path;
}

/* Removes what the test program wrote, which has only files in one folder. */
static inline void remove_temporary_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", temporary_folder());
    if (system(command)) abort();
}

/* The path of `name` in the temporary folder; 8 may be in use at a time. */
static inline const char *in_folder(const char *name)
{
    static char path[8][256];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", temporary_folder(), name);
    return path[turn];
}

static inline void put_file(const char *path, const void *data, int64_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, (size_t)bytes, f) != (size_t)bytes || fclose(f)) abort();
}

static inline int64_t get_file(const char *path, void *data, int64_t room)
{
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    int64_t n = (int64_t)fread(data, 1, (size_t)room, f);
    fclose(f);
    return n;
}

/* NAME.idx and NAME.bin in the temporary folder, u16 tokens, documents of `lengths`; returns the prefix. */
static inline const char *put_u16(const char *name, const uint16_t *tokens, const int32_t *lengths,
                                  int64_t documents)
{
    static char prefix[256];
    int64_t bounds[128], n = 0;
    char path[300];
    for (int64_t d = 0; d <= documents; d++) bounds[d] = d;
    for (int64_t d = 0; d < documents; d++) n += lengths[d];
    raw_index r = raw_make(8, 2, lengths, documents, bounds, documents + 1);
    snprintf(prefix, sizeof prefix, "%s/%s", temporary_folder(), name);
    snprintf(path, sizeof path, "%s.idx", prefix);
    put_file(path, r.bytes, r.n);
    snprintf(path, sizeof path, "%s.bin", prefix);
    put_file(path, tokens, 2 * n);
    return prefix;
}
#endif
