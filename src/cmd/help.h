/* help.h: how a command is called, at length. */
#ifndef MT_CMD_HELP_H
#define MT_CMD_HELP_H
#include <stdio.h>

/* Nothing of a command that help.def does not have. */
void mt_help_print(const char *command, FILE *f);
#endif
