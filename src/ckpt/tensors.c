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

int64_t mt_tensor_element(enum mt_tensor_type type)
{
    static const int64_t bytes[] = {[MT_TENSOR_F32] = 4, [MT_TENSOR_BF16] = 2, [MT_TENSOR_F16] = 2};
    return type == MT_TENSOR_OTHER ? 0 : bytes[type];
}

static const char *const type_name[] = {[MT_TENSOR_F32] = "F32",
                                        [MT_TENSOR_BF16] = "BF16",
                                        [MT_TENSOR_F16] = "F16",
                                        [MT_TENSOR_OTHER] = "another"};
const char *mt_tensor_type_name(enum mt_tensor_type type)
{
    return type_name[type];
}

static enum mt_tensor_type type_of(const char *dtype)
{
    int t = MT_TENSOR_F32;
    while (t < MT_TENSOR_OTHER && strcmp(dtype, type_name[t])) t++;
    return (enum mt_tensor_type)t;
}

static bool shape_of(const cJSON *shape, struct mt_tensor_entry *x)
{
    const cJSON *j;
    if (!cJSON_IsArray(shape)) return false;
    cJSON_ArrayForEach(j, shape)
    {
        if (x->dims == MT_TENSOR_DIMS || !mt_json_count(j, &x->shape[x->dims++])) return false;
    }
    return true;
}

/* Whether the shape is that of the bytes, where that can be told. */
static bool fits(const struct mt_tensor_entry *x)
{
    int64_t bytes = mt_tensor_element(x->type);
    if (x->end < x->begin) return false;
    for (int i = 0; i < x->dims; i++)
        if (__builtin_mul_overflow(bytes, x->shape[i], &bytes)) return false;
    return x->type == MT_TENSOR_OTHER || bytes == x->end - x->begin;
}

static bool entry_of(const cJSON *j, bool any, struct mt_tensor_entry *x)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(j, "dtype"),
                *off = cJSON_GetObjectItemCaseSensitive(j, "data_offsets");
    *x = (struct mt_tensor_entry){.name = j->string};
    if (!cJSON_IsString(dtype) || !shape_of(cJSON_GetObjectItemCaseSensitive(j, "shape"), x)) return false;
    x->type = type_of(dtype->valuestring);
    if (!cJSON_IsArray(off) || cJSON_GetArraySize(off) != 2) return false;
    if (!mt_json_count(off->child, &x->begin) || !mt_json_count(off->child->next, &x->end)) return false;
    if (!any && (x->type != MT_TENSOR_F32 || x->dims < 1 || x->dims > 2)) return false;
    if (!any && x->dims == 2 && !x->shape[1]) return false; /* 0 columns stands for a vector */
    return fits(x);
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
        MT_REQUIRE(entry_of(j, t->any, &t->entry[t->n++]), e, MT_CKPT,
                   "'%s': tensor '%.100s' has no valid dtype%s, shape (%s numbers) and data_offsets", file,
                   j->string, t->any ? "" : " (F32)", t->any ? "up to 4" : "1 or 2");
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
    int64_t length = 0;
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

static mt_status parse(struct mt_tensors *t, bool any, const char *name, const unsigned char *head,
                       int64_t head_bytes, int64_t file_bytes, mt_err *e)
{
    *t = (struct mt_tensors){.bytes = file_bytes, .any = any};
    mt_status st = read_header(t, name, head, head_bytes, e);
    if (st != MT_OK) mt_tensors_close(t);
    return st;
}

mt_status mt_tensors_parse(struct mt_tensors *t, const char *name, const unsigned char *head,
                           int64_t head_bytes, int64_t file_bytes, mt_err *e)
{
    return parse(t, false, name, head, head_bytes, file_bytes, e);
}

mt_status mt_tensors_parse_any(struct mt_tensors *t, const char *name, const unsigned char *head,
                               int64_t head_bytes, int64_t file_bytes, mt_err *e)
{
    return parse(t, true, name, head, head_bytes, file_bytes, e);
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

static mt_status open_file(struct mt_tensors *t, bool any, const char *path, mt_err *e)
{
    unsigned char *head = NULL;
    int64_t n = 0, bytes;
    int fd;
    *t = (struct mt_tensors){0};
    MT_TRY(mt_read_open(&fd, path, &bytes, e));
    mt_status st = read_head(fd, path, bytes, &head, &n, e);
    if (st == MT_OK) st = parse(t, any, path, head, n, bytes, e);
    free(head);
    close(fd);
    return st;
}

mt_status mt_tensors_open(struct mt_tensors *t, const char *path, mt_err *e)
{
    return open_file(t, false, path, e);
}

mt_status mt_tensors_open_any(struct mt_tensors *t, const char *path, mt_err *e)
{
    return open_file(t, true, path, e);
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
