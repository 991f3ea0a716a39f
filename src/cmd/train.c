#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "train/control.h"
#include "train/loop.h"

enum { MOST_RANKS = 1 << 20 };

/* Takes `--fake-ranks N`, or `=N`, out of the arguments; *world stays as it is without. */
static mt_status take_ranks(int *argc, char **argv, int *world, mt_err *e)
{
    int n = 0;
    for (int i = 0; i < *argc; i++) {
        char *end;
        bool joined = !strncmp(argv[i], "--fake-ranks=", 13);
        if (!joined && strcmp(argv[i], "--fake-ranks")) {
            argv[n++] = argv[i];
            continue;
        }
        const char *number = joined ? argv[i] + 13 : i + 1 < *argc ? argv[++i] : "";
        long v = strtol(number, &end, 10);
        MT_REQUIRE(*number && !*end && v >= 1 && v <= MOST_RANKS, e, MT_CONFIG,
                   "--fake-ranks needs a number of ranks, 1 to %d", MOST_RANKS);
        *world = (int)v;
    }
    *argc = n;
    return MT_OK;
}

static mt_status read_arguments(int argc, char **argv, struct mt_job *job, mt_config *cfg, mt_err *e)
{
    int fake = 0;
    MT_TRY(take_ranks(&argc, argv, &fake, e));
    MT_REQUIRE(argc >= 2, e, MT_CONFIG, "usage: moetitan train CONFIG.yaml [key=value ...] [--fake-ranks N]");
    MT_REQUIRE(!fake || job->n == 1, e, MT_CONFIG,
               "--fake-ranks %d: the ranks of one process, and this job has %d processes, one rank each",
               fake, job->n);
    if (fake) *job = mt_job_alone(fake);
    return mt_config_load(cfg, argv[1], argc - 2, argv + 2, e);
}

mt_status mt_cmd_train(int argc, char **argv, mt_err *e)
{
    mt_config cfg;
    struct mt_launch launch;
    struct mt_job job;
    mt_control_block_signals();
    MT_TRY(mt_launch_find(&launch, getenv, e));
    MT_TRY(mt_job_open(&job, &launch, e));
    mt_status st = mt_job_agree(&job, read_arguments(argc, argv, &job, &cfg, e), e);
    if (st == MT_OK) st = mt_train(&cfg, &job, e);
    mt_job_close(&job, st, e);
    return st;
}
