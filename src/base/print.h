/* print.h: a text file written at one go, or the standard output. */
#ifndef MT_BASE_PRINT_H
#define MT_BASE_PRINT_H
#include <stdio.h>

#include "base/status.h"

struct cJSON;

/* Begins the file anew; "-": the standard output. IO: it cannot be written. */
MT_MUST_USE mt_status mt_print_open(FILE **f, const char *path, mt_err *e);
/* Closes it, the standard output excepted. IO: something that was written to it since is lost. */
MT_MUST_USE mt_status mt_print_close(FILE *f, const char *path, mt_err *e);
/* A JSON value, which it deletes (NULL: there was no memory for it), to such a file. lines: indented. IO. */
MT_MUST_USE mt_status mt_print_json(struct cJSON *o, bool lines, const char *path, mt_err *e);
#endif
