#include "ckpt/buddy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file.h"
#include "ckpt/read.h"

mt_status mt_buddy_open(struct mt_buddy *b, const struct mt_tier *t, char *buffer, int64_t slice,
                        const struct mt_tier_file *file, mt_err *e)
{
    *b = (struct mt_buddy){.t = t, .buffer = buffer, .slice = slice, .file = file};
    b->out = (struct mt_buddy_end){.rank = -1, .fd = -1, .sum = mt_sum_open()};
    b->in = (struct mt_buddy_end){.rank = -1, .fd = -1, .writes = true, .sum = mt_sum_open()};
    MT_REQUIRE(b->out.sum && b->in.sum, e, MT_IO, "no memory for checksums of copies");
    return MT_OK;
}

static void close_file(struct mt_buddy_end *x)
{
    if (x->fd >= 0) close(x->fd);
    x->fd = -1;
}

void mt_buddy_close(struct mt_buddy *b)
{
    if (!b->t) return;
    close_file(&b->out);
    close_file(&b->in);
    if (b->out.sum) mt_sum_close(b->out.sum);
    if (b->in.sum) mt_sum_close(b->in.sum);
}

static void begin_end(const struct mt_buddy *b, struct mt_buddy_end *x, int rank)
{
    close_file(x);
    x->rank = rank;
    x->at = 0;
    x->bytes = rank < 0 ? 0 : b->file[rank].bytes[0] + b->file[rank].bytes[1];
}

/* With several processes, a process is a rank. */
void mt_buddy_begin(struct mt_buddy *b, const char *folder)
{
    memcpy(b->folder, folder, strlen(folder) + 1);
    begin_end(b, &b->out, b->t->to < 0 ? -1 : b->t->job.me);
    begin_end(b, &b->in, b->t->from);
}

bool mt_buddy_left(const struct mt_buddy *b)
{
    return b->out.at < b->out.bytes || b->in.at < b->in.bytes;
}

/* ---- bytes of one end ---- */
static mt_status open_file(struct mt_buddy_end *x, const char *path, mt_err *e)
{
    int64_t bytes;
    mt_sum_reset(x->sum);
    if (!x->writes) return mt_read_open(&x->fd, path, &bytes, e);
    x->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    MT_REQUIRE(x->fd >= 0, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    return MT_OK;
}

static mt_status write_at(int fd, const char *path, const char *p, int64_t bytes, int64_t at, mt_err *e)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, p + done, (size_t)(bytes - done), at + done);
        if (n < 0 && errno == EINTR) continue;
        MT_REQUIRE(n > 0, e, MT_IO, "cannot write '%s': %s", path, strerror(n ? errno : ENOSPC));
        done += n;
    }
    return MT_OK;
}

static mt_status finish_file(const struct mt_buddy *b, struct mt_buddy_end *x, const char *path, int kind,
                             mt_err *e)
{
    uint64_t now = mt_sum_value(x->sum), told = (uint64_t)b->file[x->rank].xxh3[kind];
    bool last = kind == 1;
    MT_REQUIRE(now == told, e, MT_IO,
               "'%s' %s with checksum %016" PRIx64 ", its process wrote it with %016" PRIx64, path,
               x->writes ? "has come" : "was read", now, told);
    MT_REQUIRE(!x->writes || !fsync(x->fd), e, MT_IO, "cannot bring '%s' to the disk: %s", path,
               strerror(errno));
    int error = close(x->fd) ? errno : 0;
    x->fd = -1;
    MT_REQUIRE(!error, e, MT_IO, "cannot close '%s': %s", path, strerror(error));
    return x->writes && last ? mt_sync_folder(b->folder, e) : MT_OK;
}

/* The next bytes, of one file or both, between the buffer and the disk. */
static mt_status carry(const struct mt_buddy *b, struct mt_buddy_end *x, int64_t bytes, mt_err *e)
{
    const struct mt_tier_file *f = &b->file[x->rank];
    char path[MT_CKPT_PATH + 80];
    for (int64_t done = 0; done < bytes;) {
        int kind = x->at + done >= f->bytes[0];
        int64_t from = x->at + done - (kind ? f->bytes[0] : 0), n = f->bytes[kind] - from;
        if (n > bytes - done) n = bytes - done;
        mt_tier_path(b->folder, x->rank, kind, path);
        if (!from) MT_TRY(open_file(x, path, e));
        MT_TRY(x->writes ? write_at(x->fd, path, b->buffer + done, n, from, e)
                         : mt_read_at(x->fd, path, from, b->buffer + done, n, e));
        mt_sum_add(x->sum, b->buffer + done, n);
        done += n;
        if (from + n == f->bytes[kind]) MT_TRY(finish_file(b, x, path, kind, e));
    }
    return MT_OK;
}

/* ---- a slice ---- */
static int64_t next_bytes(const struct mt_buddy *b, const struct mt_buddy_end *x)
{
    return x->bytes - x->at < b->slice ? x->bytes - x->at : b->slice;
}

/* Once something has failed the bytes mean nothing; the other end waits for them even so. */
static void send_slice(struct mt_buddy *b, mt_err *e)
{
    int64_t bytes = next_bytes(b, &b->out);
    if (!bytes) return;
    if (e->code != MT_OK || carry(b, &b->out, bytes, e) != MT_OK) memset(b->buffer, 0, (size_t)bytes);
    mt_job_send(&b->t->job, b->t->to, b->buffer, bytes);
    b->out.at += bytes;
}
static void receive_slice(struct mt_buddy *b, mt_err *e)
{
    int64_t bytes = next_bytes(b, &b->in);
    if (!bytes) return;
    mt_job_receive(&b->t->job, b->t->from, b->buffer, bytes);
    mt_status st = e->code == MT_OK ? carry(b, &b->in, bytes, e) : MT_OK;
    (void)st; /* it is in e */
    b->in.at += bytes;
}

mt_status mt_buddy_slice(struct mt_buddy *b, mt_err *e)
{
    if (b->t->sends_first) send_slice(b, e);
    receive_slice(b, e);
    if (!b->t->sends_first) send_slice(b, e);
    return e->code;
}
