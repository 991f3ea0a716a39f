#include "launch/launch.h"

#include <stdlib.h>

/* A whole number from the environment, `otherwise` where there is none. */
static int number(char *(*get)(const char *), const char *name, int otherwise)
{
    const char *text = get(name);
    char *end;
    long v = text && *text ? strtol(text, &end, 10) : -1;
    return v >= 0 && v <= 1 << 24 && !*end ? (int)v : otherwise;
}

/* In the order in which they hide each other: mpirun in a batch job sees the batch system's variables too. A
 * process that srun starts without a process management interface has no rank that MPI_Init could learn. */
mt_status mt_launch_find(struct mt_launch *l, char *(*get)(const char *name), mt_err *e)
{
    static const struct {
        const char *by, *mark, *size;
    } known[] = {
        {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
        {"srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
        {"a PMI launcher", "PMI_RANK", "PMI_SIZE"},
    };
    *l = (struct mt_launch){.size = 1};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!get(known[i].mark)) continue;
        int size = number(get, known[i].size, 0);
        if (size != 1) *l = (struct mt_launch){known[i].by, size};
        return MT_OK;
    }
    int tasks = number(get, "SLURM_STEP_NUM_TASKS", 1);
    MT_REQUIRE(
        tasks == 1, e, MT_RANKS,
        "srun started %d tasks that cannot find each other, and each would train alone: start them with "
        "srun --mpi=pmix",
        tasks);
    return MT_OK;
}

/* mpirun's before srun's, which are the same for all that an mpirun in a batch job starts. */
int mt_launch_local(char *(*get)(const char *name))
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int local = number(get, names[i], -1);
        if (local >= 0) return local;
    }
    return -1;
}

mt_status mt_launch_gpu(int seen, char *(*get)(const char *name), int *gpu, mt_err *e)
{
    const char *visible = get("CUDA_VISIBLE_DEVICES");
    int local = mt_launch_local(get);
    *gpu = seen > 0 ? 0 : -1;
    if (seen <= 1) return MT_OK;
    struct mt_launch l;
    MT_TRY(mt_launch_find(&l, get, e));
    if (!l.by) return MT_OK; /* alone, it takes the first */
    MT_REQUIRE(local >= 0, e, MT_RANKS,
               "%s started this process and says no local rank, so which of %d GPUs is its own? Give each "
               "process one: "
               "CUDA_VISIBLE_DEVICES",
               l.by, seen);
    MT_REQUIRE(local < seen, e, MT_RANKS,
               "local rank %d has no GPU: its node shows %d (CUDA_VISIBLE_DEVICES=%.40s); start as many "
               "ranks on a node as "
               "it has GPUs",
               local, seen, visible ? visible : "");
    *gpu = local;
    return MT_OK;
}
