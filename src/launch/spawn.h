/* spawn.h: another program, run to its end or beside this one. */
#ifndef MT_LAUNCH_SPAWN_H
#define MT_LAUNCH_SPAWN_H
#include <stdbool.h>
#include <sys/types.h>

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

struct mt_child {
    pid_t pid; /* 0: there is none */
    int fd[3];
};
/* Starts it and returns: with the lowest priority, in a process group of its own, without this process's open files, and deaf to
 * SIGINT, SIGTERM and SIGUSR1, which are sent to whole jobs. IO: it cannot be run; there is no child then. */
MT_MUST_USE mt_status mt_child_start(struct mt_child *c, const char *const argv[], mt_err *e);
/* Whether it has ended, and how; then there is no child any more. Does not wait. */
bool mt_child_ended(struct mt_child *c, struct mt_spawned *x);
/* Ends it at once, if there is one. */
void mt_child_kill(struct mt_child *c);
#endif
