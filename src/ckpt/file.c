#include "ckpt/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PATH_MOST = 1280 };

uint64_t mt_xxh3(const void *p, int64_t bytes)
{
    return XXH3_64bits(p, (size_t)bytes);
}

/* ---- writing ---- */
static int write_bytes(int fd, const char *p, int64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, p, (size_t)(bytes < 1 << 30 ? bytes : 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        p += n;
        bytes -= n;
    }
    return 0;
}

static int open_new(const char *path)
{
    unlink(path); /* a write of an earlier try that still hangs ends in a file without a name */
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

/* To the disk; error: of what was written before. Without the file after a failure. */
static mt_status end_new(int fd, const char *path, int error, mt_err *e)
{
    if (!error && fsync(fd)) error = errno;
    if (close(fd) && !error) error = errno; /* some network filesystems write only now */
    if (!error) return MT_OK;
    unlink(path);
    MT_FAIL(e, MT_IO, "cannot write to '%s': %s", path, strerror(error));
}

mt_status mt_write_file(const char *path, const void *p, int64_t bytes, uint64_t *xxh3, mt_err *e)
{
    int fd = open_new(path);
    MT_REQUIRE(fd >= 0, e, MT_IO, "cannot create '%s': %s", path, strerror(errno));
    *xxh3 = mt_xxh3(p, bytes);
    return end_new(fd, path, write_bytes(fd, p, bytes), e);
}

static int copy_bytes(int to, int from, int64_t bytes)
{
    char buffer[1 << 16];
    int error = 0;
    while (bytes > 0 && !error) {
        ssize_t n =
            read(from, buffer, (size_t)(bytes < (int64_t)sizeof buffer ? bytes : (int64_t)sizeof buffer));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO; /* it has become shorter */
        error = write_bytes(to, buffer, n);
        bytes -= n;
    }
    return error;
}

mt_status mt_copy_file(const char *to, const char *from, int64_t bytes, mt_err *e)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    MT_REQUIRE(in >= 0, e, MT_IO, "cannot open '%s': %s", from, strerror(errno));
    int out = open_new(to);
    if (out < 0) (void)mt_err_set(e, MT_IO, "cannot create '%s': %s", to, strerror(errno));
    mt_status st = out < 0 ? e->code : end_new(out, to, copy_bytes(out, in, bytes), e);
    close(in);
    return st;
}

/* ---- reading ---- */
static mt_status open_read(const char *path, int *fd, mt_err *e)
{
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe of that name must not stop us */
    MT_REQUIRE(*fd >= 0, e, errno == ENOENT || errno == ENOTDIR ? MT_CKPT : MT_IO, "cannot open '%s': %s",
               path, strerror(errno));
    return MT_OK;
}

mt_status mt_hash_file(const char *path, int64_t *bytes, uint64_t *xxh3, mt_err *e)
{
    char buffer[1 << 16];
    XXH3_state_t hash;
    ssize_t n;
    int fd;
    XXH3_INITSTATE(&hash);
    XXH3_64bits_reset(&hash);
    mt_status st = open_read(path, &fd, e);
    *bytes = 0;
    while (st == MT_OK && (n = read(fd, buffer, sizeof buffer))) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            st = mt_err_set(e, MT_IO, "cannot read '%s' after %lld bytes: %s", path, (long long)*bytes,
                            strerror(errno));
        } else {
            XXH3_64bits_update(&hash, buffer, (size_t)n);
            *bytes += n;
        }
    }
    *xxh3 = XXH3_64bits_digest(&hash);
    if (fd >= 0) close(fd);
    return st;
}

/* ---- folders ---- */
static mt_status sync_parent(const char *path, mt_err *e)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MOST];
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return mt_sync_folder(parent, e);
}

static mt_status make_folder(const char *path, mt_err *e)
{
    struct stat st;
    if (!mkdir(path, 0755)) return sync_parent(path, e);
    int error = errno;
    MT_REQUIRE(!stat(path, &st) && S_ISDIR(st.st_mode), e, MT_IO, "cannot make the folder '%s': %s", path,
               strerror(error));
    return MT_OK;
}

mt_status mt_make_folders(const char *path, mt_err *e)
{
    char p[PATH_MOST];
    size_t n = strlen(path);
    MT_REQUIRE(n && n < sizeof p, e, MT_CONFIG,
               "a folder's name has %zu bytes: '%.60s...'; at most %zu can be used", n, path, sizeof p - 1);
    memcpy(p, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if ((p[i] != '/' && p[i]) || p[i - 1] == '/') continue;
        char end = p[i];
        p[i] = 0;
        MT_TRY(make_folder(p, e));
        p[i] = end;
    }
    return MT_OK;
}

mt_status mt_sync_folder(const char *path, mt_err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MT_REQUIRE(fd >= 0, e, MT_IO, "cannot open the folder '%s': %s", path, strerror(errno));
    /* Some network filesystems refuse to fsync a folder (EINVAL); their renames are durable on their own. */
    bool ok = !fsync(fd) || errno == EINVAL;
    int error = errno;
    close(fd);
    MT_REQUIRE(ok, e, MT_IO, "cannot bring the folder '%s' to the disk: %s", path, strerror(error));
    return MT_OK;
}

static mt_status remove_files(DIR *d, const char *path, const char *first, mt_err *e)
{
    if (first && !unlinkat(dirfd(d), first, 0)) MT_TRY(mt_sync_folder(path, e));
    for (struct dirent *f; (f = readdir(d));) {
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..")) continue;
        MT_REQUIRE(!unlinkat(dirfd(d), f->d_name, 0) || errno == ENOENT, e, MT_IO,
                   "cannot remove '%s/%s': %s", path, f->d_name, strerror(errno));
    }
    return MT_OK;
}

mt_status mt_remove_folder(const char *path, const char *first, mt_err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return MT_OK;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        mt_err_set(e, MT_IO, "cannot open the folder '%s': %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return e->code;
    }
    mt_status st = remove_files(d, path, first, e);
    closedir(d);
    MT_TRY(st);
    MT_REQUIRE(!rmdir(path), e, MT_IO, "cannot remove the folder '%s': %s", path, strerror(errno));
    return MT_OK;
}
