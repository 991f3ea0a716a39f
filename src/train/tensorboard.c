#include "train/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/file.h"
#include "train/say.h"

enum { RECORD = 4096, AROUND = 16 };

/* A record under construction: the event behind room for length and checksum. */
struct record {
    unsigned char at[RECORD];
    int n;
};

/* ---- protocol buffers ---- */
static void put(struct record *r, const void *p, int n)
{
    MT_ASSERT(r->n + n <= RECORD - AROUND);
    memcpy(r->at + r->n, p, (size_t)n);
    r->n += n;
}
static void put_varint(struct record *r, uint64_t x)
{
    unsigned char byte;
    for (; x >= 0x80; x >>= 7) {
        byte = (unsigned char)(x | 0x80);
        put(r, &byte, 1);
    }
    byte = (unsigned char)x;
    put(r, &byte, 1);
}
enum wire_type { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };
static void put_key(struct record *r, int field, enum wire_type type)
{
    put_varint(r, (uint64_t)field << 3 | type);
}
static void put_text(struct record *r, int field, const char *text)
{
    put_key(r, field, BYTES);
    put_varint(r, strlen(text));
    put(r, text, (int)strlen(text));
}
/* Event: 1 wall_time, 2 step. */
static void begin(struct record *r, int64_t step)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    r->n = 12;
    put_key(r, 1, EIGHT);
    put(r, &now, 8);
    put_key(r, 2, VARINT);
    put_varint(r, (uint64_t)step);
}

/* ---- records ---- */
/* CRC-32C, reflected, then rotated and offset as these files have it. */
static uint32_t masked_crc(const struct mt_tensorboard *t, const unsigned char *p, int n)
{
    uint32_t c = UINT32_MAX;
    for (int i = 0; i < n; i++) c = t->crc[(c ^ p[i]) & 0xFF] ^ c >> 8;
    c = ~c;
    return (c >> 15 | c << 17) + UINT32_C(0xa282ead8);
}
static void end(const struct mt_tensorboard *t, struct record *r)
{
    uint64_t length = (uint64_t)r->n - 12;
    memcpy(r->at, &length, 8);
    uint32_t crc = masked_crc(t, r->at, 8);
    memcpy(r->at + 8, &crc, 4);
    crc = masked_crc(t, r->at + 12, r->n - 12);
    memcpy(r->at + r->n, &crc, 4);
    mt_say_to(t->fd, (const char *)r->at, r->n + 4);
}

/* Event: 3 file_version; 7 session_log {1 status: 1 START}, which says that later steps of older files are void. */
static void write_head(const struct mt_tensorboard *t, int64_t step)
{
    static const unsigned char start[] = {1 << 3, 1};
    struct record r;
    begin(&r, 0);
    put_text(&r, 3, "brain.Event:2");
    end(t, &r);
    begin(&r, step + 1);
    put_key(&r, 7, BYTES);
    put_varint(&r, sizeof start);
    put(&r, start, sizeof start);
    end(t, &r);
}

mt_status mt_tensorboard_open(struct mt_tensorboard *t, const char *folder, int64_t step, mt_err *e)
{
    char path[1400], host[65] = "host";
    *t = (struct mt_tensorboard){.fd = -1};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? UINT32_C(0x82F63B78) ^ c >> 1 : c >> 1;
        t->crc[i] = c;
    }
    MT_TRY(mt_make_folders(folder, e));
    (void)gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s.%lld", folder, (long long)time(NULL), host,
             (long long)getpid());
    t->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    MT_REQUIRE(t->fd >= 0, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    write_head(t, step);
    return MT_OK;
}

/* Event: 5 summary {1 value {1 tag, 2 simple_value}}, a value each. */
void mt_tensorboard_write(const struct mt_tensorboard *t, const struct mt_scalars *s)
{
    static const char *const tag[] = {
#define MT_SCALAR(field, tag_, name, doc) tag_,
#include "train/scalars.def"
#undef MT_SCALAR
    };
    struct record r, values = {.n = 0};
    if (t->fd < 0) return;
    for (int i = 0; i < MT_N_SCALARS; i++) {
        float x = (float)s->x[i];
        int n = (int)strlen(tag[i]);
        if (isnan(s->x[i])) continue;
        put_key(&values, 1, BYTES);
        put_varint(&values, (uint64_t)(2 + n + 5)); /* tags are shorter than 128 */
        put_text(&values, 1, tag[i]);
        put_key(&values, 2, FOUR);
        put(&values, &x, 4);
    }
    begin(&r, s->step);
    put_key(&r, 5, BYTES);
    put_varint(&r, (uint64_t)values.n);
    put(&r, values.at, values.n);
    end(t, &r);
}

void mt_tensorboard_close(struct mt_tensorboard *t)
{
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}
