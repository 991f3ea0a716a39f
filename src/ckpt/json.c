#include "ckpt/json.h"

#include <stdlib.h>
#include <string.h>

cJSON *mt_json_object(const void *text, int64_t bytes)
{
    /* A copy with an end: the library then also refuses what follows the object. */
    char *copy = bytes > 0 && !memchr(text, 0, (size_t)bytes) ? malloc((size_t)bytes + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, text, (size_t)bytes);
    copy[bytes] = 0;
    cJSON *o = cJSON_ParseWithLengthOpts(copy, (size_t)bytes + 1, NULL, true);
    free(copy);
    if (cJSON_IsObject(o)) return o;
    cJSON_Delete(o);
    return NULL;
}

bool mt_json_count(const cJSON *j, int64_t *out)
{
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0) || j->valuedouble > 0x1p53) return false;
    *out = (int64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

bool mt_json_hash(const cJSON *j, uint64_t *out)
{
    if (!cJSON_IsString(j) || strspn(j->valuestring, "0123456789abcdef") != 16 || j->valuestring[16])
        return false;
    *out = strtoull(j->valuestring, NULL, 16);
    return true;
}
