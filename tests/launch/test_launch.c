/* How the process was started, from what launchers leave in the environment. */
#include <stdint.h>

#include "check.h"
#include "launch/launch.h"

struct var {
    const char *name, *value;
};
static char *find(const struct var *env, const char *name)
{
    for (; env->name; env++)
        if (!strcmp(env->name, name)) return (char *)(uintptr_t)env->value; /* as getenv: to be read only */
    return NULL;
}
#define ENVIRONMENT(name_, ...)                                             \
    static char *name_(const char *name)                                    \
    {                                                                       \
        return find((const struct var[]){__VA_ARGS__, {NULL, NULL}}, name); \
    }
ENVIRONMENT(mpirun, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMIX_RANK", "3"},
            {"SLURM_STEP_NUM_TASKS", "2"})
ENVIRONMENT(srun_pmix, {"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "384"})
ENVIRONMENT(srun_plain, {"SLURM_STEP_NUM_TASKS", "4"})
ENVIRONMENT(batch, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"})
ENVIRONMENT(one, {"OMPI_COMM_WORLD_SIZE", "1"})
ENVIRONMENT(odd, {"OMPI_COMM_WORLD_SIZE", "many"})

TEST(launchers)
{
    struct mt_launch l;
    mt_err e = {0};
    CHECK_INT(mt_launch_find(&l, mpirun, &e), MT_OK);
    CHECK(l.by && strstr(l.by, "mpirun"));
    CHECK_INT(l.size, 8);
    CHECK_INT(mt_launch_find(&l, srun_pmix, &e), MT_OK);
    CHECK_STR(l.by, "srun");
    CHECK_INT(l.size, 384);
    CHECK_INT(mt_launch_find(&l, odd, &e), MT_OK); /* MPI knows how many */
    CHECK(l.by && l.size == 0);
}

TEST(alone)
{
    struct mt_launch l;
    mt_err e = {0};
    CHECK_INT(mt_launch_find(&l, batch, &e), MT_OK); /* a batch script's own variables are of no step */
    CHECK(!l.by && l.size == 1);
    CHECK_INT(mt_launch_find(&l, one, &e), MT_OK);
    CHECK(!l.by && l.size == 1);
}

TEST(tasks_that_cannot_meet)
{
    struct mt_launch l;
    mt_err e = {0};
    CHECK_INT(mt_launch_find(&l, srun_plain, &e), MT_RANKS);
    CHECK(strstr(e.msg, "4 tasks") && strstr(e.msg, "--mpi=pmix"));
}

ENVIRONMENT(srun_local3, {"PMIX_RANK", "7"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "3"})
ENVIRONMENT(mpirun_local2, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
            {"SLURM_LOCALID", "0"})

TEST(whose_gpu)
{
    mt_err e = {0};
    int gpu;
    CHECK_INT(mt_launch_gpu(0, srun_local3, &gpu, &e), MT_OK);
    CHECK_INT(gpu, -1);
    CHECK_INT(mt_launch_gpu(1, srun_local3, &gpu, &e), MT_OK); /* its own, whatever its local rank */
    CHECK_INT(gpu, 0);
    CHECK_INT(mt_launch_gpu(4, srun_local3, &gpu, &e), MT_OK);
    CHECK_INT(gpu, 3);
    CHECK_INT(mt_launch_gpu(4, mpirun_local2, &gpu, &e), MT_OK); /* not the batch script's 0 */
    CHECK_INT(gpu, 2);
    CHECK_INT(mt_launch_gpu(4, batch, &gpu, &e), MT_OK); /* alone */
    CHECK_INT(gpu, 0);
    CHECK_INT(mt_launch_gpu(2, srun_local3, &gpu, &e), MT_RANKS);
    CHECK(strstr(e.msg, "local rank 3") && strstr(e.msg, "shows 2"));
    e = (mt_err){0};
    CHECK_INT(mt_launch_gpu(4, srun_pmix, &gpu, &e), MT_RANKS);
    CHECK(strstr(e.msg, "no local rank"));
}

int main(void)
{
    RUN(launchers);
    RUN(alone);
    RUN(tasks_that_cannot_meet);
    RUN(whose_gpu);
    return DONE();
}
