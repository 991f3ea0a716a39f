/* An invariant that does not hold ends the program with the documented code. */
#include "base/status.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int ends(void)
{
    int status = 0;
    fflush(stdout);
    pid_t id = fork();
    if (id == 0) {
        MT_ASSERT(id != 0);
        _exit(0);
    }
    return id > 0 && waitpid(id, &status, 0) == id ? status : -1;
}

TEST(a_bug_has_its_code)
{
    struct rlimit none = {0, 0};
    CHECK(!setrlimit(RLIMIT_CORE, &none));
    int status = ends();
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 1);
}

TEST(codes_and_names)
{
    CHECK_STR(mt_status_name(MT_HANG), "HANG");
    CHECK_STR(mt_status_name(MT_CORRUPT), "CORRUPT");
    CHECK_INT(MT_INTERNAL, 1);
    CHECK_INT(MT_PREEMPTED, 75);
}

TEST(the_first_failure_stays)
{
    mt_err e = {0};
    CHECK_INT(mt_err_set(&e, MT_DATA, "file %d", 3), MT_DATA);
    CHECK_INT(mt_err_set(&e, MT_IO, "later"), MT_DATA);
    mt_err_while(&e, "reading %s", "it");
    CHECK_STR(e.msg, "reading it: file 3");
    CHECK_INT(e.code, MT_DATA);
}

int main(void)
{
    RUN(a_bug_has_its_code);
    RUN(codes_and_names);
    RUN(the_first_failure_stays);
    return DONE();
}
