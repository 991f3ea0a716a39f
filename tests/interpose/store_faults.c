/* store_faults.c: an LD_PRELOAD library that stands for a store that fails or hangs.
 *
 *     MT_STORE_FAULT   "CALL ACTION PATTERN": calls of CALL (pwrite, fsync or rename) for a path that fits PATTERN (fnmatch) fail
 *                      with an error (EIO, ENOSPC, EDQUOT, EROFS), or never return (hang)
 *     MT_STORE_HITS    file that gets a byte for each of them, so that a test knows that they happened */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void note(void)
{
    const char *path = getenv("MT_STORE_HITS");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd < 0) return;
    if (write(fd, "x", 1) != 1) abort();
    close(fd);
}

static int error_of(const char *name)
{
    static const struct {
        const char *name;
        int error;
    } known[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) return known[i].error;
    abort();
}

static bool refused(const char *call, const char *path)
{
    char want[16], action[16], pattern[300];
    const char *fault = getenv("MT_STORE_FAULT");
    if (!fault) return false;
    if (sscanf(fault, "%15s %15s %299s", want, action, pattern) != 3) abort();
    if (strcmp(call, want) || fnmatch(pattern, path, 0)) return false;
    note();
    while (!strcmp(action, "hang")) pause();
    errno = error_of(action);
    return true;
}

static bool refused_fd(const char *call, int fd)
{
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return refused(call, path);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return refused_fd("pwrite", fd) ? -1 : syscall(SYS_pwrite64, fd, p, n, at);
}
int fsync(int fd)
{
    return refused_fd("fsync", fd) ? -1 : (int)syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to)
{
    return refused("rename", to) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}
