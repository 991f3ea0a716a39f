/* golden.h: reads the files of tests/golden (what each holds: tests/oracle/README.md). Needs -lcjson.
 *
 * Paths are relative to the repository root, where tests run. Every function that can fail prints the reason
 * and returns false, NULL, NAN or GOLDEN_NO_INT, for the caller to CHECK. */
#ifndef MT_TESTS_GOLDEN_H
#define MT_TESTS_GOLDEN_H
#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef GOLDEN_DIR
#define GOLDEN_DIR "tests/golden"
#endif
#define GOLDEN_MAX_DIMS 4
#define GOLDEN_NO_INT INT64_MIN

struct golden_tensor {
    const char *name;
    const char *dtype; /* "F32" or "I32" */
    int n_dims;
    int64_t dim[GOLDEN_MAX_DIMS];
    int64_t n;        /* elements */
    const void *data; /* row-major, aligned to 4 */
};

/* A safetensors file in memory; everything returned below points into it until golden_close. */
struct golden {
    char path[256];
    char *bytes;
    cJSON *header;
    struct golden_tensor *tensor;
    int64_t n_tensors;
};

static inline bool golden_complain(const char *path, const char *what, const char *which)
{
    printf("golden file %s: %s%s%s\n", path, what, which ? " " : "", which ? which : "");
    return false;
}

/* The file's bytes and a final NUL, malloc'ed; its length in *n. `file` is a name in GOLDEN_DIR. */
static inline char *golden_read_file(const char *file, size_t *n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", GOLDEN_DIR, file);
    FILE *f = fopen(path, "rb");
    long size = -1;
    if (f && fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    char *bytes = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (bytes) {
        rewind(f);
        *n = fread(bytes, 1, (size_t)size, f);
        bytes[*n] = 0;
    }
    if (f) fclose(f);
    if (!bytes || *n != (size_t)size) {
        golden_complain(path, "can't be read (run tests from the repository root)", NULL);
        free(bytes);
        return NULL;
    }
    return bytes;
}

/* A .json file of the folder; the caller deletes it with cJSON_Delete. */
static inline cJSON *golden_json(const char *file)
{
    size_t n = 0;
    char *text = golden_read_file(file, &n);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    if (text && !json) golden_complain(file, "isn't JSON", NULL);
    free(text);
    return json;
}

/* Fills *t from one entry of the header; `data` and `n_data` are the file's data part. */
static inline bool golden_entry(struct golden_tensor *t, const cJSON *entry, const char *data, size_t n_data)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    const cJSON *from = cJSON_GetArrayItem(range, 0), *to = cJSON_GetArrayItem(range, 1), *d;
    t->name = entry->string;
    t->dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
    t->n_dims = 0;
    t->n = 1;
    cJSON_ArrayForEach(d, shape)
    {
        if (t->n_dims == GOLDEN_MAX_DIMS) return false;
        t->dim[t->n_dims++] = (int64_t)d->valuedouble;
        t->n *= (int64_t)d->valuedouble;
    }
    if (!t->dtype || !shape || !from || !to || to->valuedouble > (double)n_data) return false;
    if ((int64_t)(to->valuedouble - from->valuedouble) != t->n * 4) return false;
    t->data = data + (size_t)from->valuedouble;
    return true;
}

static inline void golden_close(struct golden *g)
{
    cJSON_Delete(g->header);
    free(g->tensor);
    free(g->bytes);
    memset(g, 0, sizeof *g);
}

/* Reads "dense.safetensors" or another of GOLDEN_DIR; golden_close releases it, also after a failure. */
static inline bool golden_open(struct golden *g, const char *file)
{
    size_t size = 0;
    uint64_t n_header = 0;
    const cJSON *entry;
    memset(g, 0, sizeof *g);
    snprintf(g->path, sizeof g->path, "%s/%s", GOLDEN_DIR, file);
    g->bytes = golden_read_file(file, &size);
    if (!g->bytes) return false;
    if (size >= 8) memcpy(&n_header, g->bytes, 8);
    if (size < 8 || n_header > size - 8) return golden_complain(g->path, "has no safetensors header", NULL);
    g->header = cJSON_ParseWithLength(g->bytes + 8, n_header);
    if (!g->header) return golden_complain(g->path, "has a header that isn't JSON", NULL);
    g->tensor = calloc((size_t)cJSON_GetArraySize(g->header) + 1, sizeof *g->tensor);
    if (!g->tensor) return golden_complain(g->path, "doesn't fit in memory", NULL);
    cJSON_ArrayForEach(entry, g->header)
    {
        if (!strcmp(entry->string, "__metadata__")) continue;
        if (!golden_entry(&g->tensor[g->n_tensors], entry, g->bytes + 8 + n_header, size - 8 - n_header))
            return golden_complain(g->path, "has a damaged tensor", entry->string);
        g->n_tensors++;
    }
    return true;
}

/* NULL, silently, where the file has no such tensor. */
static inline const struct golden_tensor *golden_find(const struct golden *g, const char *name)
{
    for (int64_t i = 0; i < g->n_tensors; i++)
        if (!strcmp(g->tensor[i].name, name)) return &g->tensor[i];
    return NULL;
}

/* The tensor's elements if it is there with this dtype and n elements. */
static inline const void *golden_data(const struct golden *g, const char *name, const char *dtype, int64_t n)
{
    const struct golden_tensor *t = golden_find(g, name);
    if (t && !strcmp(t->dtype, dtype) && t->n == n) return t->data;
    golden_complain(g->path, t ? "has another dtype or size of" : "doesn't have", name);
    return NULL;
}
static inline const float *golden_f32(const struct golden *g, const char *name, int64_t n)
{
    return golden_data(g, name, "F32", n);
}
static inline const int32_t *golden_i32(const struct golden *g, const char *name, int64_t n)
{
    return golden_data(g, name, "I32", n);
}

static inline bool golden_has_meta(const struct golden *g, const char *key)
{
    return cJSON_HasObjectItem(cJSON_GetObjectItemCaseSensitive(g->header, "__metadata__"), key);
}
/* Metadata are strings: "0.01", "sigmoid", "1" for true. */
static inline const char *golden_meta(const struct golden *g, const char *key)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(g->header, "__metadata__");
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, key));
    if (!value) golden_complain(g->path, "has no metadata", key);
    return value;
}
static inline double golden_meta_num(const struct golden *g, const char *key)
{
    const char *value = golden_meta(g, key);
    return value ? strtod(value, NULL) : (double)NAN;
}
static inline int64_t golden_meta_int(const struct golden *g, const char *key)
{
    const char *value = golden_meta(g, key);
    return value ? strtoll(value, NULL, 10) : GOLDEN_NO_INT;
}
#endif
