#include "cmd/help.h"

#include <string.h>

enum kind { CALL, FLAG, MORE };
static const struct line {
    const char *command;
    enum kind kind;
    const char *left, *says;
} lines[] = {
#define MT_CALL(command, arguments) {#command, CALL, arguments, ""},
#define MT_FLAG(command, flag, says) {#command, FLAG, flag, says},
#define MT_MORE(command, text) {#command, MORE, "", text},
#include "cmd/help.def"
};

void mt_help_print(const char *command, FILE *f)
{
    enum { LEFT = 22 }; /* a longer flag has a line for itself */
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const struct line *l = &lines[i];
        if (strcmp(l->command, command) != 0) continue;
        if (l->kind == CALL)
            fprintf(f, "  moetitan %s %s\n", command, l->left);
        else if (l->kind == MORE)
            fprintf(f, "  %s\n", l->says);
        else if (strlen(l->left) > LEFT)
            fprintf(f, "    %s\n    %-*s  %s\n", l->left, LEFT, "", l->says);
        else
            fprintf(f, "    %-*s  %s\n", LEFT, l->left, l->says);
    }
}
