#include "ckpt/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/sum.h"
#include "ckpt/writers.h"

/* EINVAL: the file system, or its block size, does not allow it. */
static bool give_up_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return errno == EINVAL && flags >= 0 && flags & O_DIRECT && !fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

mt_status mt_direct_open(int *fd, const char *path, int64_t bytes, mt_err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    unlink(path); /* a write of an earlier try that still hangs ends in a file without a name */
    *fd = open(path, flags | O_DIRECT, 0644);
    if (*fd < 0 && errno == EINVAL) {
        unlink(path); /* some file systems make the file before they refuse */
        *fd = open(path, flags, 0644);
    }
    MT_REQUIRE(*fd >= 0, e, MT_IO, "cannot create '%s': %s", path, strerror(errno));
    if (!fallocate(*fd, 0, 0, bytes) || (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)) return MT_OK;
    mt_err_set(e, MT_IO, "cannot write to '%s', which takes %lld bytes: %s", path, (long long)bytes,
               strerror(errno));
    close(*fd);
    *fd = -1;
    return e->code;
}

mt_status mt_direct_write(int fd, const char *path, const char *p, int64_t n, int64_t at, mt_err *e)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, p, (size_t)n, at);
        if (done < 0 && (errno == EINTR || give_up_direct(fd))) continue;
        MT_REQUIRE(done > 0, e, MT_IO, "cannot write to '%s' at byte %lld: %s", path, (long long)at,
                   done ? strerror(errno) : "nothing was taken");
        p += done;
        n -= done;
        at += done;
    }
    return MT_OK;
}

mt_status mt_direct_finish(int fd, const char *path, int64_t bytes, mt_err *e)
{
    MT_REQUIRE(!ftruncate(fd, bytes) && !fsync(fd), e, MT_IO, "cannot bring '%s' to the disk: %s", path,
               strerror(errno));
    return MT_OK;
}

/* Past the system's cache, or with what it has of the file dropped. */
static int open_again(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd >= 0 || errno != EINVAL) return fd;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return fd;
}

static mt_status sum_all(int fd, const char *path, char *buffer, int64_t room, const struct mt_turn *turn,
                         struct mt_sum *sum, mt_err *e)
{
    for (int64_t at = 0;;) {
        if (mt_turn_is_over(turn)) return MT_OK;
        ssize_t n = pread(fd, buffer, (size_t)room, at);
        if (n < 0 && (errno == EINTR || give_up_direct(fd))) continue;
        MT_REQUIRE(n >= 0, e, MT_IO, "cannot read '%s' at byte %" PRId64 ", which was just written: %s", path,
                   at, strerror(errno));
        if (!n) return MT_OK;
        mt_sum_add(sum, buffer, n);
        at += n;
    }
}

mt_status mt_direct_check(const char *path, int64_t bytes, uint64_t xxh3, char *buffer, int64_t room,
                          const struct mt_turn *turn, mt_err *e)
{
    struct mt_sum *sum = mt_sum_open();
    MT_REQUIRE(sum, e, MT_IO, "no memory for the checksum of '%s'", path);
    int fd = open_again(path);
    mt_status st =
        fd < 0 ? mt_err_set(e, MT_IO, "cannot read '%s', which was just written: %s", path, strerror(errno))
               : sum_all(fd, path, buffer, room, turn, sum, e);
    uint64_t now = mt_sum_value(sum);
    if (fd >= 0) close(fd);
    mt_sum_close(sum);
    MT_TRY(st);
    MT_REQUIRE(now == xxh3 || mt_turn_is_over(turn), e, MT_IO,
               "'%s' is not what was written: read back, its %" PRId64 " bytes have the checksum %016" PRIx64
               " in the place of %016" PRIx64 "; the disk or the way to it is at fault",
               path, bytes, now, xxh3);
    return MT_OK;
}
