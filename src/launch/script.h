/* script.h: a batch script from its template. A template is a script that sbatch takes as it is; some of its lines are replaced. */
#ifndef MT_LAUNCH_SCRIPT_H
#define MT_LAUNCH_SCRIPT_H
#include <stdio.h>

#include "base/status.h"

/* Each is NULL to leave what the template says. */
struct mt_script {
#define MT_DIRECTIVE(field, option) const char *field;
#define MT_SCRIPT_VALUE(field)
#include "launch/script.def"
    struct {
#define MT_DIRECTIVE(field, option)
#define MT_SCRIPT_VALUE(field) const char *field; /* as shell, quoted */
#include "launch/script.def"
    } value;
};
/* The text, which is the caller's to free. CONFIG: the template `name` is no batch script, or lacks a value that is given. */
MT_MUST_USE mt_status mt_script_render(const struct mt_script *s, const char *name, const char *template,
                                       char **text, mt_err *e);
/* A word of shell that stands for the text. */
void mt_script_quote(FILE *f, const char *text);
#endif
