/* test: variants=asan,tsan
 *
 * A job of one process, and one of several in a build that has no MPI. */
#include "check.h"
#include "comm/comm.h"

TEST(alone_everything_returns)
{
    struct mt_job j = mt_job_alone(8);
    mt_err e = {0};
    int64_t x = 5;
    char text[] = "as it was";
    CHECK_INT(j.world, 8);
    CHECK_INT(j.n_local, 8);
    mt_job_sum(&j, &x, 1);
    mt_job_broadcast(&j, text, sizeof text, 0);
    CHECK_INT(x, 5);
    CHECK_STR(text, "as it was");
    CHECK(mt_job_any(&j, true) && !mt_job_any(&j, false));
    CHECK_INT(mt_job_same(&j, "a text", "one", &e), MT_OK);
    CHECK_INT(mt_job_agree(&j, mt_err_set(&e, MT_DATA, "it is gone"), &e), MT_DATA);
    CHECK_STR(e.msg, "it is gone");
    CHECK_INT(mt_job_fatal(&j, MT_DATA, &e), MT_DATA);
    mt_job_close(&j, MT_DATA, &e);
    CHECK_STR(e.msg, "it is gone"); /* still to be printed */
}

TEST(several_without_mpi)
{
    struct mt_launch l = {"Open MPI's mpirun", 4};
    struct mt_job j;
    mt_err e = {0};
    CHECK_INT(mt_job_open(&j, &l, &e), MT_RANKS);
    CHECK(strstr(e.msg, "mpirun started this") && strstr(e.msg, "without MPI") &&
          strstr(e.msg, "--fake-ranks"));
}

int main(void)
{
    RUN(alone_everything_returns);
    RUN(several_without_mpi);
    return DONE();
}
