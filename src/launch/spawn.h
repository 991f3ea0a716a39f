/* spawn.h: another program, run to its end. */
#ifndef MT_LAUNCH_SPAWN_H
#define MT_LAUNCH_SPAWN_H
#include "base/status.h"

enum { MT_SPAWN_TEXT = 4096 };
struct mt_spawned {
    int code; /* its exit code; 128 + n: ended by signal n */
    char out[MT_SPAWN_TEXT],
        err[MT_SPAWN_TEXT]; /* what it printed, cut at the end, without the last line break */
};
/* argv[0] is looked for in PATH; `input` is its standard input (NULL: none). IO: it cannot be run. How it ended itself is for
 * the caller to judge. */
MT_MUST_USE mt_status mt_spawn(struct mt_spawned *x, const char *const argv[], const char *input, mt_err *e);
#endif
