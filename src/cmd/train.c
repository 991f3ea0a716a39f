#include "cmd/cmd.h"
#include "train/loop.h"

mt_status mt_cmd_train(int argc, char **argv, mt_err *e)
{
    mt_config cfg;
    MT_REQUIRE(argc >= 2, e, MT_CONFIG, "usage: moetitan train CONFIG.yaml [key=value ...]");
    MT_TRY(mt_config_load(&cfg, argv[1], argc - 2, argv + 2, e));
    return mt_train(&cfg, e);
}
