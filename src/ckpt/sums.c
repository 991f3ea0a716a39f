#include "ckpt/sums.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/json.h"

bool mt_sums_key(const char *key, char *name, int64_t *row)
{
    const char *at = strrchr(key, '@');
    size_t n = at ? (size_t)(at - key) : strlen(key);
    *row = 0;
    if (!n || n >= MT_TENSOR_NAME) return false;
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~' || key[i] == '@') return false;
    memcpy(name, key, n);
    name[n] = 0;
    if (!at) return true;
    char again[24];
    errno = 0;
    *row = strtoll(at + 1, NULL, 10);
    snprintf(again, sizeof again, "%" PRId64, *row);
    return !errno && *row >= 0 && !strcmp(again, at + 1); /* the one way to write it */
}

static bool shape_of(const cJSON *j, struct mt_sums_entry *x)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(j, "shape");
    int dims = cJSON_GetArraySize(shape);
    if (!cJSON_IsArray(shape) || dims < 1 || dims > 2 || !mt_json_count(shape->child, &x->rows)) return false;
    return dims == 1 || (mt_json_count(shape->child->next, &x->cols) && x->cols > 0);
}

static bool entry_of(const cJSON *j, struct mt_sums_entry *x)
{
    char name[MT_TENSOR_NAME];
    int64_t row;
    *x = (struct mt_sums_entry){.key = j->string, .whole = cJSON_IsString(j)};
    if (!mt_sums_key(j->string, name, &row)) return false;
    if (x->whole) return mt_json_hash(j, &x->xxh3);
    return cJSON_IsObject(j) && shape_of(j, x) &&
           mt_json_count(cJSON_GetObjectItemCaseSensitive(j, "row"), &x->row) && x->row == row &&
           mt_json_hash(cJSON_GetObjectItemCaseSensitive(j, "xxh3"), &x->xxh3);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct mt_sums_entry *)a)->key, ((const struct mt_sums_entry *)b)->key);
}

static mt_status read_file(struct mt_sums *s, const char *name, mt_err *e)
{
    const cJSON *file = cJSON_GetObjectItemCaseSensitive(s->json, "file");
    if (!file) return MT_OK;
    s->has_file = true;
    MT_REQUIRE(cJSON_IsObject(file) &&
                   mt_json_count(cJSON_GetObjectItemCaseSensitive(file, "bytes"), &s->bytes) &&
                   mt_json_hash(cJSON_GetObjectItemCaseSensitive(file, "xxh3"), &s->xxh3),
               e, MT_CKPT, "'%s': \"file\" has no valid bytes and xxh3", name);
    return MT_OK;
}

static mt_status read_tensors(struct mt_sums *s, const char *name, mt_err *e)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(s->json, "tensors"), *j;
    MT_REQUIRE(cJSON_IsObject(of), e, MT_CKPT, "'%s' holds no checksums of tensors", name);
    int size = cJSON_GetArraySize(of);
    s->entry = calloc((size_t)size + 1, sizeof *s->entry);
    MT_REQUIRE(s->entry, e, MT_IO, "no memory for the checksums of %d tensors in '%s'", size, name);
    cJSON_ArrayForEach(j, of)
    {
        /* A key that is not plain is not printed either. */
        MT_REQUIRE(entry_of(j, &s->entry[s->n]), e, MT_CKPT,
                   "'%s': entry %" PRId64 " of the tensors has no plain name, or no valid %s", name, s->n,
                   s->has_file ? "shape, row and xxh3" : "checksum");
        MT_REQUIRE(s->entry[s->n].whole != s->has_file, e, MT_CKPT,
                   "'%s': tensor '%.120s' is described as in another version of the format", name, j->string);
        s->n++;
    }
    qsort(s->entry, (size_t)s->n, sizeof *s->entry, by_key);
    for (int64_t i = 1; i < s->n; i++)
        MT_REQUIRE(strcmp(s->entry[i - 1].key, s->entry[i].key), e, MT_CKPT,
                   "'%s' lists tensor '%.120s' twice", name, s->entry[i].key);
    return MT_OK;
}

mt_status mt_sums_parse(struct mt_sums *s, const char *name, const void *text, int64_t bytes, mt_err *e)
{
    *s = (struct mt_sums){.json = mt_json_object(text, bytes)};
    mt_status st = s->json ? read_file(s, name, e)
                           : mt_err_set(e, MT_CKPT, "'%s' is not a JSON object", name);
    if (st == MT_OK) st = read_tensors(s, name, e);
    if (st != MT_OK) mt_sums_release(s);
    return st;
}

void mt_sums_release(struct mt_sums *s)
{
    cJSON_Delete(s->json);
    free(s->entry);
    *s = (struct mt_sums){0};
}
