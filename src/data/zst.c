#include "data/zst.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

struct mt_zst {
    FILE *file;
    ZSTD_DStream *stream;
    ZSTD_inBuffer in;
    size_t room, pending; /* pending: not 0 within a frame */
    const char *damage;   /* NULL: none so far */
    int64_t bytes;
    char *buffer;
};

/* fread's source: as many bytes as are to be had, 0 at the end, -1 after damage. */
static ssize_t read_some(void *arg, char *to, size_t bytes)
{
    struct mt_zst *z = arg;
    ZSTD_outBuffer out = {to, bytes, 0};
    while (!out.pos && !z->damage) {
        if (z->in.pos == z->in.size) {
            z->in = (ZSTD_inBuffer){z->buffer, fread(z->buffer, 1, z->room, z->file), 0};
            z->bytes += (int64_t)z->in.size;
            if (!z->in.size) {
                if (z->pending) z->damage = "it ends within a frame";
                break;
            }
        }
        z->pending = ZSTD_decompressStream(z->stream, &out, &z->in);
        if (ZSTD_isError(z->pending)) z->damage = ZSTD_getErrorName(z->pending);
    }
    if (z->damage && !out.pos) errno = EIO;
    return z->damage && !out.pos ? -1 : (ssize_t)out.pos;
}

static void release(struct mt_zst *z)
{
    if (!z) return;
    if (z->file) fclose(z->file);
    ZSTD_freeDStream(z->stream);
    free(z->buffer);
    free(z);
}

int64_t mt_input_stem(const char *path)
{
    int64_t n = (int64_t)strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".zst") ? n - 4 : n;
}

static mt_status open_compressed(struct mt_input *in, FILE *f, mt_err *e)
{
    struct mt_zst *z = in->zst = calloc(1, sizeof *z);
    MT_REQUIRE(z, e, MT_IO, "no memory");
    z->file = f;
    z->room = ZSTD_DStreamInSize();
    z->buffer = malloc(z->room);
    z->stream = ZSTD_createDStream();
    if (z->buffer && z->stream) in->file = fopencookie(z, "r", (cookie_io_functions_t){.read = read_some});
    MT_REQUIRE(in->file, e, MT_IO, "%s: no memory to decompress it", in->path);
    return MT_OK;
}

mt_status mt_input_open(struct mt_input *in, const char *path, mt_err *e)
{
    *in = (struct mt_input){.path = path};
    FILE *f = fopen(path, "rbe");
    MT_REQUIRE(f, e, MT_DATA, "%s: cannot open: %s", path, strerror(errno));
    if (!path[mt_input_stem(path)]) {
        in->file = f;
        return MT_OK;
    }
    mt_status st = open_compressed(in, f, e);
    if (st != MT_OK) mt_input_close(in);
    return st;
}
mt_status mt_input_check(const struct mt_input *in, mt_err *e)
{
    MT_REQUIRE(!in->zst || !in->zst->damage, e, MT_DATA,
               "%s: damaged at or before byte %lld of the compressed file: %s", in->path,
               (long long)in->zst->bytes, in->zst->damage);
    MT_REQUIRE(!ferror(in->file) && !(in->zst && ferror(in->zst->file)), e, MT_IO, "%s: cannot read: %s",
               in->path, strerror(errno));
    return MT_OK;
}
int64_t mt_input_bytes(const struct mt_input *in)
{
    return in->zst ? in->zst->bytes : ftell(in->file);
}
void mt_input_close(struct mt_input *in)
{
    if (in->file) fclose(in->file);
    release(in->zst);
    *in = (struct mt_input){0};
}
