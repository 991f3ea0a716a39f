#include "ckpt/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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
