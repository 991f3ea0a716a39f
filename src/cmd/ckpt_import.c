#include <stdio.h>
#include <string.h>

#include "cmd/ckpt_hf.h"
#include "cmd/progress.h"
#include "hf/import.h"

mt_status mt_cmd_ckpt_import(int argc, char **argv, mt_err *e)
{
    struct mt_bar bar;
    bool mtp = argc == 4 && !strcmp(argv[3], "--mtp");
    MT_REQUIRE(argc == 3 + mtp && argv[1][0] != '-' && argv[2][0] != '-', e, MT_CONFIG,
               "usage: moetitan ckpt import FOLDER NEW_CHECKPOINT [--mtp]");
    mt_bar_open(&bar, "import");
    mt_status st = mt_hf_import(argv[1], argv[2], mtp, stdout, &bar.work, e);
    mt_bar_close(&bar);
    if (st == MT_OK) printf("%s: a checkpoint of step 0, for init.from and sample\n", argv[2]);
    return st;
}
