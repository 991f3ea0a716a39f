#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/json.h"
#include "hf/folder.h"

static bool plain_file(const char *name)
{
    size_t n = strlen(name);
    return n && n < MT_HF_FILE && name[0] != '.' &&
           n == strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
}

/* Names are printed: only what no terminal obeys. */
static bool plain_tensor(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~') return false;
    return *name;
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const struct mt_hf_place *)a)->tensor, ((const struct mt_hf_place *)b)->tensor);
}

static mt_status read_places(struct mt_hf_index *x, const char *name, mt_err *e)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(x->json, "weight_map"), *j;
    MT_REQUIRE(cJSON_IsObject(map) && map->child, e, MT_CKPT, "'%s' has no weight_map", name);
    x->place = calloc((size_t)cJSON_GetArraySize(map), sizeof *x->place);
    MT_REQUIRE(x->place, e, MT_IO, "no memory to list the tensors of '%s'", name);
    cJSON_ArrayForEach(j, map)
    {
        MT_REQUIRE(plain_tensor(j->string), e, MT_CKPT,
                   "'%s': the name of tensor %" PRId64 " is not printable ASCII", name, x->n);
        MT_REQUIRE(cJSON_IsString(j) && plain_file(j->valuestring), e, MT_CKPT,
                   "'%s': the file of tensor '%.100s' is no plain name", name, j->string);
        x->place[x->n++] = (struct mt_hf_place){j->string, j->valuestring};
    }
    qsort(x->place, (size_t)x->n, sizeof *x->place, by_tensor);
    for (int64_t i = 1; i < x->n; i++)
        MT_REQUIRE(strcmp(x->place[i - 1].tensor, x->place[i].tensor), e, MT_CKPT,
                   "'%s': tensor '%.100s' is there twice", name, x->place[i].tensor);
    return MT_OK;
}

mt_status mt_hf_index_parse(struct mt_hf_index *x, const char *name, const char *text, int64_t bytes,
                            mt_err *e)
{
    *x = (struct mt_hf_index){.json = mt_json_object(text, bytes)};
    MT_REQUIRE(x->json, e, MT_CKPT, "'%s' is not a JSON object", name);
    mt_status st = read_places(x, name, e);
    if (st != MT_OK) mt_hf_index_close(x);
    return st;
}

void mt_hf_index_close(struct mt_hf_index *x)
{
    cJSON_Delete(x->json);
    free(x->place);
    *x = (struct mt_hf_index){0};
}
