#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "train/loop.h"

/* Takes `--fake-ranks N` out of the arguments. */
static mt_status take_ranks(int *argc, char **argv, int *world, mt_err *e)
{
    int n = 0;
    *world = 1;
    for (int i = 0; i < *argc; i++) {
        char *end;
        if (strcmp(argv[i], "--fake-ranks")) {
            argv[n++] = argv[i];
            continue;
        }
        long v = i + 1 < *argc ? strtol(argv[i + 1], &end, 10) : 0;
        MT_REQUIRE(i + 1 < *argc && !*end && v >= 1 && v <= 1 << 20, e, MT_CONFIG, "--fake-ranks needs a number of ranks, 1 or more");
        *world = (int)v;
        i++;
    }
    *argc = n;
    return MT_OK;
}

mt_status mt_cmd_train(int argc, char **argv, mt_err *e)
{
    mt_config cfg;
    int world;
    MT_TRY(take_ranks(&argc, argv, &world, e));
    MT_REQUIRE(argc >= 2, e, MT_CONFIG, "usage: moetitan train CONFIG.yaml [key=value ...] [--fake-ranks N]");
    MT_TRY(mt_config_load(&cfg, argv[1], argc - 2, argv + 2, e));
    return mt_train(&cfg, world, e);
}
