/* print.h: a text file written at one go, or the standard output. */
#ifndef MT_BASE_PRINT_H
#define MT_BASE_PRINT_H
#include <stdio.h>

#include "base/status.h"

/* Begins the file anew; "-": the standard output. IO: it cannot be written. */
MT_MUST_USE mt_status mt_print_open(FILE **f, const char *path, mt_err *e);
/* Closes it, the standard output excepted. IO: something that was written to it since is lost. */
MT_MUST_USE mt_status mt_print_close(FILE *f, const char *path, mt_err *e);
#endif
