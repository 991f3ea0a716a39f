/* command.h: a subcommand called as main calls it. */
#ifndef MT_TESTS_CMD_COMMAND_H
#define MT_TESTS_CMD_COMMAND_H
#include "../data/files.h"
#include "cmd/cmd.h"

#include <fcntl.h>

static mt_err e; /* of the last command */

/* Runs the command with `words`, its name first, and what it prints on the standard output in a file. */
static inline mt_status command_run(mt_status (*command)(int, char **, mt_err *), const char *words,
                                    const char *printed)
{
    char text[2048], *argv[40] = {0}, *rest = text;
    int argc = 0;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&rest, " "));) argv[argc++] = word;
    fflush(stdout);
    int saved = dup(1), fd = open(printed, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, 1);
    close(fd);
    e = (mt_err){0};
    mt_status s = command(argc, argv, &e);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    return s;
}

/* The file's text, cut at room - 1 bytes; returns its length, 0 if there is no such file. */
static inline int64_t command_text(const char *path, char *out, int64_t room)
{
    int64_t n = get_file(path, out, room - 1);
    if (n < 0) n = 0;
    out[n] = 0;
    return n;
}
#endif
