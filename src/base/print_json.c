#include <cjson/cJSON.h>

#include "base/print.h"

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
