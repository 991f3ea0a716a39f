#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mt_status mt_text_append(struct mt_text *t, const char *from, int64_t bytes, mt_err *e)
{
    if (t->bytes + bytes > t->room) {
        int64_t room = 2 * t->room + bytes + 64;
        char *at = realloc(t->at, (size_t)room);
        MT_REQUIRE(at, e, MT_IO, "no memory for %lld bytes of text", (long long)room);
        t->at = at;
        t->room = room;
    }
    if (bytes) memcpy(t->at + t->bytes, from, (size_t)bytes);
    t->bytes += bytes;
    return MT_OK;
}

static mt_status read_open(struct mt_text *t, FILE *f, const char *path, int64_t most, mt_status code,
                           mt_err *e)
{
    char chunk[1 << 14];
    size_t n;
    int64_t before = t->bytes;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) {
        MT_REQUIRE(t->bytes - before + (int64_t)n <= most, e, code, "'%s' has more than %lld bytes", path,
                   (long long)most);
        MT_TRY(mt_text_append(t, chunk, (int64_t)n, e));
    }
    MT_REQUIRE(!ferror(f), e, MT_IO, "cannot read '%s': %s", path, strerror(errno));
    MT_TRY(mt_text_append(t, "", 1, e));
    t->bytes--;
    return MT_OK;
}

mt_status mt_text_read(struct mt_text *t, const char *path, int64_t most, mt_status code, mt_err *e)
{
    FILE *f = fopen(path, "rbe");
    MT_REQUIRE(f, e, code, "cannot open '%s': %s", path, strerror(errno));
    mt_status st = read_open(t, f, path, most, code, e);
    fclose(f);
    return st;
}

void mt_text_release(struct mt_text *t)
{
    free(t->at);
    *t = (struct mt_text){0};
}
