#include "ckpt/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/json.h"
#include "ckpt/read.h"

enum { HEADER_MOST = 100000000 }; /* the format's own limit */

static bool is_tensor(const cJSON *j)
{
    return strcmp(j->string, "__metadata__") != 0;
}

/* Names are printed: only what no terminal obeys. */
static bool plain(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~') return false;
    return *name;
}

static bool entry_of(const cJSON *j, struct mt_tensor_entry *x)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(j, "dtype"),
                *shape = cJSON_GetObjectItemCaseSensitive(j, "shape"),
                *off = cJSON_GetObjectItemCaseSensitive(j, "data_offsets");
    int dims = cJSON_GetArraySize(shape);
    *x = (struct mt_tensor_entry){.name = j->string};
    if (!cJSON_IsString(dtype) || strcmp(dtype->valuestring, "F32") || !cJSON_IsArray(shape) ||
        !cJSON_IsArray(off))
        return false;
    if (dims < 1 || dims > 2 || cJSON_GetArraySize(off) != 2) return false;
    for (int i = 0; i < dims; i++)
        if (!mt_json_count(cJSON_GetArrayItem(shape, i), &x->shape[i])) return false;
    if (!mt_json_count(off->child, &x->begin) || !mt_json_count(off->child->next, &x->end)) return false;
    if (dims == 2 && !x->shape[1]) return false; /* 0 columns stands for a vector */
    int64_t cols = dims == 2 ? x->shape[1] : 1, n;
    return x->end >= x->begin && !__builtin_mul_overflow(x->shape[0], cols, &n) && n <= INT64_MAX / 4 &&
           4 * n == x->end - x->begin;
}

static int by_begin(const void *a, const void *b)
{
    const struct mt_tensor_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct mt_tensor_entry *)a)->name, ((const struct mt_tensor_entry *)b)->name);
}

static mt_status check_cover(struct mt_tensors *t, const char *file, mt_err *e)
{
    int64_t at = 0, data = t->bytes - t->data;
    qsort(t->entry, (size_t)t->n, sizeof *t->entry, by_begin);
    for (int64_t i = 0; i < t->n; i++) {
        const struct mt_tensor_entry *x = &t->entry[i];
        MT_REQUIRE(x->begin == at, e, MT_CKPT,
                   "'%s': the tensors' bytes have %s at offset %" PRId64 ", before tensor '%.100s'", file,
                   x->begin > at ? "a hole" : "an overlap", at, x->name);
        at = x->end;
    }
    MT_REQUIRE(at == data, e, MT_CKPT,
               "'%s': the header describes %" PRId64 " bytes of tensors, the file holds %" PRId64, file, at,
               data);
    return MT_OK;
}

static mt_status read_entries(struct mt_tensors *t, const char *file, mt_err *e)
{
    const cJSON *j;
    int size = cJSON_GetArraySize(t->header);
    t->entry = calloc((size_t)size + 1, sizeof *t->entry);
    MT_REQUIRE(t->entry, e, MT_IO, "no memory to list %d tensors of '%s'", size, file);
    cJSON_ArrayForEach(j, t->header)
    {
        if (!is_tensor(j)) continue;
        MT_REQUIRE(plain(j->string), e, MT_CKPT,
                   "'%s': the name of tensor %" PRId64 " is not printable ASCII", file, t->n);
        MT_REQUIRE(entry_of(j, &t->entry[t->n++]), e, MT_CKPT,
                   "'%s': tensor '%.100s' has no valid dtype (F32), shape (1 or 2 numbers) and data_offsets",
                   file, j->string);
    }
    MT_TRY(check_cover(t, file, e));
    qsort(t->entry, (size_t)t->n, sizeof *t->entry, by_name);
    for (int64_t i = 1; i < t->n; i++)
        MT_REQUIRE(strcmp(t->entry[i - 1].name, t->entry[i].name), e, MT_CKPT,
                   "'%s': tensor '%.100s' is there twice", file, t->entry[i].name);
    return MT_OK;
}

static mt_status read_header(struct mt_tensors *t, const char *name, const unsigned char *head,
                             int64_t head_bytes, mt_err *e)
{
    int64_t length;
    MT_TRY(mt_tensors_length(name, head, head_bytes, t->bytes, &length, e));
    MT_ASSERT(8 + length <= head_bytes);
    t->data = 8 + length;
    t->header = mt_json_object(head + 8, length);
    MT_REQUIRE(t->header, e, MT_CKPT, "'%s': the header is not a JSON object", name);
    return read_entries(t, name, e);
}

mt_status mt_tensors_length(const char *name, const unsigned char *head, int64_t head_bytes,
                            int64_t file_bytes, int64_t *length, mt_err *e)
{
    uint64_t n = 0;
    MT_REQUIRE(head_bytes >= 8, e, MT_CKPT, "'%s' has %" PRId64 " bytes: too few for a safetensors header",
               name, file_bytes);
    memcpy(&n, head, 8);
    MT_REQUIRE(n <= HEADER_MOST && (int64_t)n <= file_bytes - 8, e, MT_CKPT,
               "'%s': the header's length %" PRIu64 " does not fit the file of %" PRId64 " bytes", name, n,
               file_bytes);
    *length = (int64_t)n;
    return MT_OK;
}

mt_status mt_tensors_parse(struct mt_tensors *t, const char *name, const unsigned char *head,
                           int64_t head_bytes, int64_t file_bytes, mt_err *e)
{
    *t = (struct mt_tensors){.bytes = file_bytes};
    mt_status st = read_header(t, name, head, head_bytes, e);
    if (st != MT_OK) mt_tensors_close(t);
    return st;
}

/* The first bytes of a file up to the end of its header, malloc'ed. */
static mt_status read_head(int fd, const char *path, int64_t file_bytes, unsigned char **head, int64_t *n,
                           mt_err *e)
{
    unsigned char first[8];
    int64_t length, have = file_bytes < 8 ? file_bytes : 8;
    MT_TRY(mt_read_at(fd, path, 0, first, have, e));
    MT_TRY(mt_tensors_length(path, first, have, file_bytes, &length, e));
    *n = 8 + length;
    *head = malloc((size_t)*n);
    MT_REQUIRE(*head, e, MT_IO, "no memory for the header of '%s': %" PRId64 " bytes", path, length);
    return mt_read_at(fd, path, 0, *head, *n, e);
}

mt_status mt_tensors_open(struct mt_tensors *t, const char *path, mt_err *e)
{
    unsigned char *head = NULL;
    int64_t n = 0, bytes;
    int fd;
    *t = (struct mt_tensors){0};
    MT_TRY(mt_read_open(&fd, path, &bytes, e));
    mt_status st = read_head(fd, path, bytes, &head, &n, e);
    if (st == MT_OK) st = mt_tensors_parse(t, path, head, n, bytes, e);
    free(head);
    close(fd);
    return st;
}

void mt_tensors_close(struct mt_tensors *t)
{
    cJSON_Delete(t->header);
    free(t->entry);
    *t = (struct mt_tensors){0};
}

const struct mt_tensor_entry *mt_tensors_find(const struct mt_tensors *t, const char *name)
{
    struct mt_tensor_entry key = {.name = name};
    return t->n ? bsearch(&key, t->entry, (size_t)t->n, sizeof key, by_name) : NULL;
}

bool mt_tensors_told(const struct mt_tensors *t, const char *key, const char *value)
{
    const cJSON *j =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(t->header, "__metadata__"), key);
    return cJSON_IsString(j) && !strcmp(j->valuestring, value);
}
