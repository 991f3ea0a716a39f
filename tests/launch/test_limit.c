/* The time that the batch system leaves a job: from its variables, or from what squeue prints, here one of the test's own. */
#include <math.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "check.h"
#include "launch/limit.h"

static double parsed(const char *text)
{
    double s = -2;
    return mt_limit_parse(text, &s) ? s : -1;
}
TEST(times_are_read)
{
    CHECK_CLOSE(parsed("12:34"), 754, 0);
    CHECK_CLOSE(parsed("0:03"), 3, 0);
    CHECK_CLOSE(parsed("2:03:04"), 7384, 0);
    CHECK_CLOSE(parsed("1-02:03:04"), 93784, 0);
    CHECK_CLOSE(parsed("12-00:00:00"), 12 * 86400, 0);
    CHECK(isinf(parsed("UNLIMITED")));
    static const char *const bad[] = {"",      "NOT_SET", "INVALID", "7",  "1:2:3:4", "1-2",    "1-02:03",
                                      "-1:00", "1:000",   ":30",     "1:", "1-",      "12:34x", "1234567:00"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK_CLOSE(parsed(bad[i]), -1, 0)) printf("  \"%s\"\n", bad[i]);
}

static const char *id_, *end_;
static char *get(const char *name)
{
    const char *v = !strcmp(name, "SLURM_JOB_ID") ? id_ : !strcmp(name, "SLURM_JOB_END_TIME") ? end_ : NULL;
    return (char *)(uintptr_t)v;
}
static double left_by(const char *id, const char *end)
{
    id_ = id;
    end_ = end;
    return mt_limit_left(get, 1000);
}
TEST(variables_come_first)
{
    CHECK_CLOSE(left_by("7", "1600"), 600, 0);
    CHECK(isinf(left_by(NULL, "1600")) && isinf(left_by("", NULL)) && isinf(left_by(NULL, NULL)));
}

static void squeue_is(const char *dir, const char *script)
{
    char path[64];
    snprintf(path, sizeof path, "%s/squeue", dir);
    FILE *f = fopen(path, "w");
    MT_ASSERT(f);
    fprintf(f, "#!/bin/sh\n%s\n", script);
    fclose(f);
    MT_ASSERT(!chmod(path, 0755));
}
TEST(else_squeue_is_asked)
{
    char dir[] = "/tmp/test_limit.XXXXXX", path[600], command[64];
    MT_ASSERT(mkdtemp(dir));
    snprintf(path, sizeof path, "%s:%.500s", dir, getenv("PATH"));
    setenv("PATH", path, 1);
    squeue_is(dir, "[ \"$*\" = '-h -j 4711 -o %L' ] && echo 1:30:00");
    CHECK_CLOSE(left_by("4711", NULL), 5400, 0);
    CHECK_CLOSE(left_by("4711", "soon"), 5400, 0);
    CHECK(isinf(left_by("4712", NULL)));
    CHECK(isinf(left_by("4711; echo 0:01", NULL)));
    squeue_is(dir, "echo UNLIMITED");
    CHECK(isinf(left_by("4711", NULL)));
    squeue_is(dir, "echo 0:10; exit 1");
    CHECK(isinf(left_by("4711", NULL)));
    squeue_is(dir, "echo slurm_load_jobs error >&2");
    CHECK(isinf(left_by("4711", NULL)));
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0);
}

int main(void)
{
    RUN(times_are_read);
    RUN(variables_come_first);
    RUN(else_squeue_is_asked);
    return DONE();
}
