/* Programs that run to their end, and children beside this process: what they print, how they end, what they inherit. */
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define SHELL(text) ((const char *const[]){"sh", "-c", text, NULL})

static void nap(void)
{
    nanosleep(&(struct timespec){0, 2000000}, NULL);
}
static void wait_for_end(struct mt_child *c, struct mt_spawned *x)
{
    while (!mt_child_ended(c, x)) nap();
}
static bool gone(pid_t pid)
{
    return kill(pid, 0) < 0 && errno == ESRCH;
}
static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

TEST(to_its_end)
{
    struct mt_spawned x;
    mt_err e = {0};
    CHECK(mt_spawn(&x, SHELL("cat; echo wrong >&2; exit 3"), "in\n\n", &e) == MT_OK);
    CHECK(x.code == 3 && !strcmp(x.out, "in") && !strcmp(x.err, "wrong"));
    CHECK(mt_spawn(&x, SHELL("kill -9 $$"), NULL, &e) == MT_OK && x.code == 128 + SIGKILL);
    CHECK(mt_spawn(&x, SHELL("yes | head -c 100000"), NULL, &e) == MT_OK &&
          strlen(x.out) == MT_SPAWN_TEXT - 1);
    CHECK(mt_spawn(&x, (const char *const[]){"no-such-program", NULL}, NULL, &e) == MT_IO);
    CHECK(strstr(e.msg, "cannot run no-such-program: No such file"));
}

TEST(a_child_ends)
{
    struct mt_child c;
    struct mt_spawned x;
    mt_err e = {0};
    int files = open_files();
    CHECK(mt_child_start(&c, SHELL("echo out; echo err >&2; exit 5"), &e) == MT_OK);
    pid_t pid = c.pid;
    wait_for_end(&c, &x);
    CHECK(x.code == 5 && !strcmp(x.out, "out") && !strcmp(x.err, "err"));
    CHECK(c.pid == 0 && gone(pid) && open_files() == files);
    CHECK(mt_child_ended(&c, &x) && x.code == -1); /* there is none */
    mt_child_kill(&c);

    CHECK(mt_child_start(&c, SHELL("kill -SEGV $$"), &e) == MT_OK);
    wait_for_end(&c, &x);
    CHECK(x.code == 128 + SIGSEGV && open_files() == files);
}

/* More than a pipe holds, and nobody reads it meanwhile. */
TEST(a_child_that_prints_much)
{
    struct mt_child c;
    struct mt_spawned x;
    mt_err e = {0};
    CHECK(mt_child_start(&c, SHELL("head -c 3000000 /dev/zero | tr '\\0' x; echo >&2; exit 0"), &e) == MT_OK);
    wait_for_end(&c, &x);
    CHECK(x.code == 0 && strlen(x.out) == MT_SPAWN_TEXT - 1 && x.err[0] == 0);
}

TEST(a_child_that_cannot_be)
{
    struct mt_child c;
    struct mt_spawned x;
    mt_err e = {0};
    int files = open_files();
    CHECK(mt_child_start(&c, (const char *const[]){"no-such-program", NULL}, &e) == MT_IO);
    CHECK(strstr(e.msg, "cannot run no-such-program: No such file"));
    CHECK(c.pid == 0 && open_files() == files && mt_child_ended(&c, &x));
}

TEST(a_child_that_is_killed)
{
    struct mt_child c;
    struct mt_spawned x;
    mt_err e = {0};
    int files = open_files();
    CHECK(mt_child_start(&c, SHELL("exec sleep 1000"), &e) == MT_OK);
    pid_t pid = c.pid;
    CHECK(!mt_child_ended(&c, &x) && c.pid == pid);
    mt_child_kill(&c);
    CHECK(c.pid == 0 && gone(pid) && open_files() == files);
}

/* Not a shell, which may unblock what it finds blocked. Signals that schedulers send to whole jobs do not end it, by itself or by its group; the default of others does. */
TEST(a_child_is_deaf)
{
    static const int deaf_to[] = {SIGINT, SIGTERM, SIGUSR1};
    struct mt_child c;
    struct mt_spawned x;
    mt_err e = {0};
    CHECK(mt_child_start(&c, (const char *const[]){"sleep", "0.2", NULL}, &e) == MT_OK);
    for (int i = 0; i < 3; i++) CHECK(!kill(-c.pid, deaf_to[i]));
    wait_for_end(&c, &x);
    CHECK_INT(x.code, 0);
    CHECK(mt_child_start(&c, SHELL("exec sleep 1000"), &e) == MT_OK);
    CHECK(!kill(c.pid, SIGHUP));
    wait_for_end(&c, &x);
    CHECK(x.code == 128 + SIGHUP);
}

TEST(what_a_child_is)
{
    struct mt_child c;
    struct mt_spawned x;
    mt_err e = {0};
    int own = open("/dev/null", O_RDONLY); /* not closed by exec */
    CHECK(own > 2);
    CHECK(mt_child_start(&c, SHELL("cat; exit 7"), &e) == MT_OK);
    CHECK(getpgid(c.pid) == c.pid);
    CHECK(getpriority(PRIO_PROCESS, (id_t)c.pid) == 19 && getpriority(PRIO_PROCESS, 0) < 19);
    wait_for_end(&c, &x);
    CHECK(x.code == 7 && x.out[0] == 0); /* standard input is empty, not this process's */
    char held[64];
    snprintf(held, sizeof held, "test ! -e /proc/self/fd/%d", own);
    CHECK(mt_child_start(&c, SHELL(held), &e) == MT_OK);
    wait_for_end(&c, &x);
    CHECK(x.code == 0);
    close(own);
}

int main(void)
{
    RUN(to_its_end);
    RUN(a_child_ends);
    RUN(a_child_that_prints_much);
    RUN(a_child_that_cannot_be);
    RUN(a_child_that_is_killed);
    RUN(a_child_is_deaf);
    RUN(what_a_child_is);
    return DONE();
}
