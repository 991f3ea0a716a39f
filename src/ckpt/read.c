#include "ckpt/read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

mt_status mt_read_open(int *fd, const char *path, int64_t *bytes, mt_err *e)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe of that name must not stop us */
    MT_REQUIRE(*fd >= 0, e, errno == ENOENT || errno == ENOTDIR ? MT_CKPT : MT_IO, "cannot open '%s': %s",
               path, strerror(errno));
    bool ok = !fstat(*fd, &st) && S_ISREG(st.st_mode);
    *bytes = ok ? st.st_size : 0;
    if (ok)
        (void)posix_fadvise(*fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* so that the system reads further ahead */
    if (ok) return MT_OK;
    close(*fd);
    *fd = -1;
    MT_FAIL(e, MT_CKPT, "'%s' is not a file", path);
}

mt_status mt_read_at(int fd, const char *path, int64_t at, void *to, int64_t bytes, mt_err *e)
{
    char *p = to;
    while (bytes > 0) {
        ssize_t n = pread(fd, p, (size_t)(bytes < 1 << 30 ? bytes : 1 << 30), at);
        if (n < 0 && errno == EINTR) continue;
        MT_REQUIRE(n >= 0, e, MT_IO, "cannot read '%s' at byte %" PRId64 ": %s", path, at, strerror(errno));
        MT_REQUIRE(n > 0, e, MT_CKPT, "'%s' ends at byte %" PRId64 ", before what its header says", path, at);
        p += n;
        at += n;
        bytes -= n;
    }
    return MT_OK;
}

mt_status mt_read_whole(const char *path, int64_t most, char **text, int64_t *bytes, mt_err *e)
{
    int fd;
    *text = NULL;
    MT_TRY(mt_read_open(&fd, path, bytes, e));
    mt_status st = MT_OK;
    if (*bytes > most)
        st = mt_err_set(e, MT_CKPT, "'%s' has %" PRId64 " bytes: more than such a file can have", path,
                        *bytes);
    *text = st == MT_OK ? malloc((size_t)*bytes + 1) : NULL;
    if (st == MT_OK && !*text)
        st = mt_err_set(e, MT_IO, "no memory to read '%s': %" PRId64 " bytes", path, *bytes);
    if (st == MT_OK) st = mt_read_at(fd, path, 0, *text, *bytes, e);
    close(fd);
    if (st == MT_OK) {
        (*text)[*bytes] = 0;
    } else {
        free(*text);
        *text = NULL;
    }
    return st;
}

mt_status mt_read_parts(int fd, const char *path, int64_t at, int64_t bytes, void *buffer, int64_t room,
                        void (*take)(void *arg, const void *p, int64_t from, int64_t bytes), void *arg,
                        mt_err *e)
{
    for (int64_t from = 0; from < bytes;) {
        int64_t n = bytes - from < room ? bytes - from : room;
        MT_TRY(mt_read_at(fd, path, at + from, buffer, n, e));
        take(arg, buffer, from, n);
        from += n;
    }
    return MT_OK;
}
