#include "launch/spawn.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Files in memory: a pipe would have to be emptied while it is filled. */
struct streams {
    int fd[3];
};

static bool open_streams(struct streams *s, const char *input)
{
    size_t n = input ? strlen(input) : 0;
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        s->fd[i] = memfd_create("stream", MFD_CLOEXEC);
        ok = ok && s->fd[i] >= 0;
    }
    for (size_t at = 0; ok && at < n;) {
        ssize_t k = write(s->fd[0], input + at, n - at);
        ok = k > 0;
        at += ok ? (size_t)k : 0;
    }
    return ok && lseek(s->fd[0], 0, SEEK_SET) == 0;
}
static void close_streams(const struct streams *s)
{
    for (int i = 0; i < 3; i++)
        if (s->fd[i] >= 0) close(s->fd[i]);
}

static void take(int fd, char out[MT_SPAWN_TEXT])
{
    ssize_t n = pread(fd, out, MT_SPAWN_TEXT - 1, 0);
    if (n < 0) n = 0;
    while (n > 0 && out[n - 1] == '\n') n--;
    out[n] = 0;
}

static int start(const struct streams *s, const char *const argv[], pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++) posix_spawn_file_actions_adddup2(&actions, s->fd[i], i);
    /* The interface is older than const; nothing is written. */
    int rc = posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

mt_status mt_spawn(struct mt_spawned *x, const char *const argv[], const char *input, mt_err *e)
{
    struct streams s = {{-1, -1, -1}};
    pid_t pid = -1;
    int how = 0;
    *x = (struct mt_spawned){.code = -1};
    int rc = open_streams(&s, input) ? start(&s, argv, &pid) : errno;
    if (rc == 0) {
        while (waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
        x->code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        take(s.fd[1], x->out);
        take(s.fd[2], x->err);
    }
    close_streams(&s);
    MT_REQUIRE(rc == 0, e, MT_IO, "cannot run %s: %s", argv[0], strerror(rc));
    return MT_OK;
}
