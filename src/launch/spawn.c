#include "launch/spawn.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

/* attr: NULL: as this process is. */
static int start(const int fd[3], const char *const argv[], const posix_spawnattr_t *attr, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++) posix_spawn_file_actions_adddup2(&actions, fd[i], i);
#if defined __GLIBC__ && __GLIBC_PREREQ(2, 34)
    if (attr) posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#endif
    /* The interface is older than const; nothing is written. */
    int rc = posix_spawnp(pid, argv[0], &actions, attr, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static void told(struct mt_spawned *x, int how, const int fd[3])
{
    x->code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    take(fd[1], x->out);
    take(fd[2], x->err);
}

mt_status mt_spawn(struct mt_spawned *x, const char *const argv[], const char *input, mt_err *e)
{
    struct streams s = {{-1, -1, -1}};
    pid_t pid = -1;
    int how = 0;
    *x = (struct mt_spawned){.code = -1};
    int rc = open_streams(&s, input) ? start(s.fd, argv, NULL, &pid) : errno;
    if (rc == 0) {
        while (waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
        told(x, how, s.fd);
    }
    close_streams(&s);
    MT_REQUIRE(rc == 0, e, MT_IO, "cannot run %s: %s", argv[0], strerror(rc));
    return MT_OK;
}

/* ---- beside this process ---- */
static int start_apart(const int fd[3], const char *const argv[], pid_t *pid)
{
    posix_spawnattr_t attr;
    sigset_t deaf;
    sigemptyset(&deaf);
    sigaddset(&deaf, SIGINT);
    sigaddset(&deaf, SIGTERM);
    sigaddset(&deaf, SIGUSR1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &deaf);
    int rc = start(fd, argv, &attr, pid);
    posix_spawnattr_destroy(&attr);
    return rc;
}

mt_status mt_child_start(struct mt_child *c, const char *const argv[], mt_err *e)
{
    enum { LOWEST = 19 };
    struct streams s = {{-1, -1, -1}};
    *c = (struct mt_child){0};
    int rc = open_streams(&s, NULL) ? start_apart(s.fd, argv, &c->pid) : errno;
    if (rc) close_streams(&s);
    if (rc) c->pid = 0;
    MT_REQUIRE(rc == 0, e, MT_IO, "cannot run %s: %s", argv[0], strerror(rc));
    memcpy(c->fd, s.fd, sizeof c->fd);
    (void)setpriority(PRIO_PROCESS, (id_t)c->pid, LOWEST);
    return MT_OK;
}

static void forget(struct mt_child *c)
{
    struct streams s;
    memcpy(s.fd, c->fd, sizeof s.fd);
    close_streams(&s);
    c->pid = 0;
}

bool mt_child_ended(struct mt_child *c, struct mt_spawned *x)
{
    int how = 0;
    *x = (struct mt_spawned){.code = -1};
    if (!c->pid) return true;
    pid_t done = waitpid(c->pid, &how, WNOHANG);
    if (done == 0 || (done < 0 && errno == EINTR)) return false;
    if (done > 0) told(x, how, c->fd);
    forget(c);
    return true;
}

void mt_child_kill(struct mt_child *c)
{
    if (!c->pid) return;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) continue;
    forget(c);
}
