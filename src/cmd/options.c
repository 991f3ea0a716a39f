#include "cmd/cmd.h"

#include "config/config.h"

#include <string.h>

/* options [--markdown] [KEY or its beginning] */
mt_status mt_cmd_options(int argc, char **argv, mt_err *e)
{
    const char *prefix = NULL;
    bool markdown = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--markdown")) {
            markdown = true;
        } else {
            MT_REQUIRE(
                argv[i][0] != '-' && !prefix, e, MT_CONFIG,
                "options: unexpected '%.64s'; usage: moetitan options [--markdown] [KEY or its beginning]",
                argv[i]);
            prefix = argv[i];
        }
    }
    int n = mt_config_document(stdout, markdown, prefix);
    MT_REQUIRE(n > 0, e, MT_CONFIG, "options: no option begins with '%.64s'; `moetitan options` lists all",
               prefix);
    MT_REQUIRE(fflush(stdout) == 0, e, MT_IO, "options: can't write to standard output");
    return MT_OK;
}
