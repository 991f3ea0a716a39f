#include "base/print.h"

#include <errno.h>
#include <string.h>

mt_status mt_print_open(FILE **f, const char *path, mt_err *e)
{
    *f = strcmp(path, "-") ? fopen(path, "w") : stdout;
    MT_REQUIRE(*f, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    return MT_OK;
}

mt_status mt_print_close(FILE *f, const char *path, mt_err *e)
{
    bool ok = !fflush(f) && !ferror(f);
    int why = errno;
    if (f != stdout && fclose(f) && ok) ok = false, why = errno;
    MT_REQUIRE(ok, e, MT_IO, "cannot write '%s': %s", path, strerror(why));
    return MT_OK;
}
