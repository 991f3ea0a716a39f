#include "ckpt/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mt_xxh3(const void *p, int64_t bytes) { return XXH3_64bits(p, (size_t)bytes); }

/* ---- writing ---- */
mt_status mt_out_open(struct mt_out *o, const char *path, mt_err *e)
{
    *o = (struct mt_out){.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), .path = path, .hash = XXH3_createState()};
    if (o->fd >= 0 && o->hash && XXH3_64bits_reset(o->hash) == XXH_OK) return MT_OK;
    int error = errno;
    mt_out_abandon(o);
    MT_FAIL(e, MT_IO, "cannot create '%s': %s", path, strerror(error));
}

mt_status mt_out_write(struct mt_out *o, const void *p, int64_t bytes, mt_err *e)
{
    const char *at = p;
    XXH3_64bits_update(o->hash, p, (size_t)bytes);
    while (bytes > 0) {
        ssize_t n = write(o->fd, at, (size_t)(bytes < 1 << 30 ? bytes : 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        MT_REQUIRE(n > 0, e, MT_IO, "cannot write to '%s' after %lld bytes: %s", o->path, (long long)o->bytes, strerror(errno));
        at += n;
        bytes -= n;
        o->bytes += n;
    }
    return MT_OK;
}

mt_status mt_out_close(struct mt_out *o, uint64_t *xxh3, mt_err *e)
{
    *xxh3 = XXH3_64bits_digest(o->hash);
    int synced = fsync(o->fd), error = errno, closed = close(o->fd);
    XXH3_freeState(o->hash);
    o->hash = NULL;
    o->fd = -1;
    MT_REQUIRE(!synced && !closed, e, MT_IO, "cannot bring '%s' to the disk: %s", o->path, strerror(synced ? error : errno));
    return MT_OK;
}

void mt_out_abandon(struct mt_out *o)
{
    if (o->fd >= 0) {
        close(o->fd);
        unlink(o->path);
    }
    if (o->hash) XXH3_freeState(o->hash);
    o->fd = -1;
    o->hash = NULL;
}

/* ---- reading ---- */
mt_status mt_in_open(struct mt_in *f, const char *path, mt_err *e)
{
    struct stat st;
    *f = (struct mt_in){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    MT_REQUIRE(fd >= 0, e, MT_CKPT, "cannot open '%s': %s", path, strerror(errno));
    bool ok = !fstat(fd, &st) && S_ISREG(st.st_mode);
    void *p = ok && st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int error = errno;
    close(fd);
    MT_REQUIRE(ok, e, MT_CKPT, "'%s' is not a file", path);
    MT_REQUIRE(p != MAP_FAILED, e, MT_IO, "cannot map '%s': %s", path, strerror(error));
    f->data = p;
    f->bytes = st.st_size;
    return MT_OK;
}

void mt_in_close(struct mt_in *f)
{
    if (f->data) munmap((void *)(uintptr_t)f->data, (size_t)f->bytes);
    *f = (struct mt_in){0};
}

/* ---- folders ---- */
mt_status mt_make_folders(const char *path, mt_err *e)
{
    char p[1200];
    size_t n = strlen(path);
    MT_REQUIRE(n && n < sizeof p, e, MT_CONFIG, "a folder's name has %zu bytes: '%.60s...'; at most %zu can be used", n, path, sizeof p - 1);
    memcpy(p, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (p[i] != '/' && p[i]) continue;
        char end = p[i];
        p[i] = 0;
        MT_REQUIRE(!mkdir(p, 0755) || errno == EEXIST, e, MT_IO, "cannot make the folder '%s': %s", p, strerror(errno));
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

mt_status mt_remove_folder(const char *path, mt_err *e)
{
    DIR *d = opendir(path);
    if (!d) {
        MT_REQUIRE(errno == ENOENT, e, MT_IO, "cannot open the folder '%s': %s", path, strerror(errno));
        return MT_OK;
    }
    for (struct dirent *f; (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..")) unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    MT_REQUIRE(!rmdir(path), e, MT_IO, "cannot remove the folder '%s': %s", path, strerror(errno));
    return MT_OK;
}
