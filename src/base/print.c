#include "base/print.h"

#include <cjson/cJSON.h>
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

mt_status mt_print_json(cJSON *o, bool lines, const char *path, mt_err *e)
{
    FILE *f;
    char *text = !o ? NULL : lines ? cJSON_Print(o) : cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    mt_status st = text ? mt_print_open(&f, path, e) : mt_err_set(e, MT_IO, "no memory to write '%s'", path);
    if (st == MT_OK) {
        fprintf(f, "%s\n", text);
        st = mt_print_close(f, path, e);
    }
    cJSON_free(text);
    return st;
}
