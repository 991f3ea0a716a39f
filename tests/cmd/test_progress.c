/* The bar of long commands: its text, and that only a terminal gets one. */
#include "cmd/progress.h"

#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

static const char *text(int64_t done, int64_t total, double seconds)
{
    static char out[96];
    mt_bar_text(out, "verify", done, total, seconds);
    return out;
}

TEST(text_of_a_bar)
{
    const int64_t GiB = INT64_C(1) << 30;
    CHECK_STR(text(0, 0, 0), "verify   ........................   0% 0.00 GiB, 0 MiB/s, --:-- left");
    CHECK_STR(text(0, 8 * GiB, 2), "verify   ........................   0% 8.00 GiB, 0 MiB/s, --:-- left");
    CHECK_STR(text(2 * GiB, 8 * GiB, 4),
              "verify   ######..................  25% 8.00 GiB, 512 MiB/s, 0:12 left");
    CHECK_STR(text(4 * GiB, 8 * GiB, 400),
              "verify   ############............  50% 8.00 GiB, 10 MiB/s, 6:40 left");
    CHECK_STR(text(8 * GiB, 8 * GiB, 8),
              "verify   ######################## 100% 8.00 GiB, 1024 MiB/s, 0:00 left");
    CHECK_STR(text(9 * GiB, 8 * GiB, 9),
              "verify   ######################## 100% 8.00 GiB, 1024 MiB/s, --:-- left");
    CHECK(strlen(text(40000 * GiB, 90000 * GiB, 800)) < 80);
}

/* What a bar leaves on stderr while half of the work is done. */
static void draw_on(int fd, struct mt_bar *b)
{
    int kept = dup(2);
    dup2(fd, 2);
    mt_bar_open(b, "verify");
    b->work.total = INT64_C(1) << 30;
    b->work.done = INT64_C(1) << 29;
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    mt_bar_close(b);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
}

TEST(on_a_terminal)
{
    struct mt_bar b;
    char got[4096] = "";
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) SKIP("no pseudo-terminal here");
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0) SKIP("no pseudo-terminal here");
    draw_on(slave, &b);
    /* A terminal hands over what it has piece by piece. */
    ssize_t n = 0;
    for (struct pollfd p = {master, POLLIN, 0}; n < (ssize_t)sizeof got - 1 && poll(&p, 1, 500) > 0;) {
        ssize_t more = read(master, got + n, sizeof got - 1 - (size_t)n);
        if (more <= 0) break;
        n += more;
    }
    CHECK(n > 0);
    CHECK(strstr(got, "verify   ############............  50% 1.00 GiB, "));
    CHECK(n > 4 && !strcmp(got + n - 4, "\r\033[K")); /* nothing stays */
    close(slave);
    close(master);
}

TEST(elsewhere)
{
    struct mt_bar b;
    char name[] = "/tmp/moetitan-bar-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    unlink(name);
    draw_on(fd, &b);
    CHECK_INT(lseek(fd, 0, SEEK_END), 0);
    close(fd);
}

int main(void)
{
    RUN(text_of_a_bar);
    RUN(on_a_terminal);
    RUN(elsewhere);
    return DONE();
}
