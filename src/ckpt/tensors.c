#include "ckpt/tensors.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { HEADER_MOST = 100000000 }; /* the format's own limit */

/* ---- writing ---- */
struct text {
    char *p;
    size_t n, cap;
};
static void text_add(struct text *t, const char *fmt, ...) MT_PRINTF(2, 3);
static void text_add(struct text *t, const char *fmt, ...)
{
    if (t->cap - t->n < 512) {
        t->cap = t->cap ? 2 * t->cap : 1 << 16;
        t->p = realloc(t->p, t->cap);
        MT_ASSERT(t->p);
    }
    va_list ap;
    va_start(ap, fmt);
    t->n += (size_t)vsnprintf(t->p + t->n, t->cap - t->n, fmt, ap);
    va_end(ap);
}

static struct text header_of(const struct mt_ckpt_items *x, int rank, int world)
{
    struct text t = {0};
    int64_t at = 0;
    text_add(&t, "{\"__metadata__\":{\"format\":\"pt\",\"moetitan\":\"1\",\"rank\":\"%d\",\"world\":\"%d\"}", rank, world);
    for (int64_t i = 0; i < x->n; i++) {
        const struct mt_ckpt_item *p = &x->item[i];
        int64_t end = at + mt_ckpt_item_bytes(p);
        text_add(&t, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRId64, p->name, p->rows);
        if (p->cols) text_add(&t, ",%" PRId64, p->cols);
        text_add(&t, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
        at = end;
    }
    text_add(&t, "}");
    while (t.n % 8) text_add(&t, " ");
    return t;
}

/* A tensor's pieces, one behind the other. */
static mt_status write_item(struct mt_out *o, const struct mt_ckpt_items *x, const struct mt_ckpt_item *i, uint64_t *sum, mt_err *e)
{
    XXH3_state_t h;
    int64_t row = 0;
    XXH3_64bits_reset(&h);
    for (const struct mt_ckpt_piece *p = &x->piece[i->first], *end = p + i->n; p < end; p++) {
        int64_t bytes = p->rows * mt_ckpt_row_bytes(i);
        if (p->copy) continue;
        MT_ASSERT(p->row0 == row);
        row += p->rows;
        XXH3_64bits_update(&h, p->data, (size_t)bytes);
        MT_TRY(mt_out_write(o, p->data, bytes, e));
    }
    MT_ASSERT(row == i->rows);
    *sum = XXH3_64bits_digest(&h);
    return MT_OK;
}

static mt_status write_all(struct mt_out *o, const struct mt_ckpt_items *x, const struct text *header, struct text *sums, mt_err *e)
{
    uint64_t length = header->n;
    MT_TRY(mt_out_write(o, &length, 8, e));
    MT_TRY(mt_out_write(o, header->p, (int64_t)header->n, e));
    text_add(sums, "{\"tensors\":{");
    for (int64_t i = 0; i < x->n; i++) {
        const struct mt_ckpt_item *p = &x->item[i];
        uint64_t sum;
        MT_TRY(write_item(o, x, p, &sum, e));
        text_add(sums, "%s\"%s\":\"%016" PRIx64 "\"", i ? ",\n" : "\n", p->name, sum);
    }
    text_add(sums, "}}\n");
    return MT_OK;
}

mt_status mt_tensors_write(const char *path, const struct mt_ckpt_items *x, int rank, int world, int64_t *bytes, uint64_t *xxh3, char **sums, mt_err *e)
{
    struct mt_out o;
    struct text header = header_of(x, rank, world), s = {0};
    mt_status st = mt_out_open(&o, path, e);
    if (st == MT_OK) {
        st = write_all(&o, x, &header, &s, e);
        *bytes = o.bytes;
        if (st == MT_OK) st = mt_out_close(&o, xxh3, e);
        else mt_out_abandon(&o);
    }
    free(header.p);
    if (st != MT_OK) {
        free(s.p);
        s.p = NULL;
    }
    *sums = s.p;
    return st;
}

/* ---- reading ---- */
/* A whole number that a JSON number can hold exactly. */
static bool whole(const cJSON *j, int64_t *out)
{
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0) || j->valuedouble > 9007199254740992.0) return false;
    *out = (int64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

struct entry {
    int64_t begin, end, shape[2];
};
static bool entry_of(const cJSON *j, struct entry *x)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(j, "dtype"), *shape = cJSON_GetObjectItemCaseSensitive(j, "shape"),
                *off = cJSON_GetObjectItemCaseSensitive(j, "data_offsets");
    int dims = cJSON_GetArraySize(shape);
    if (!cJSON_IsString(dtype) || strcmp(dtype->valuestring, "F32") || !cJSON_IsArray(shape) || !cJSON_IsArray(off)) return false;
    if (dims < 1 || dims > 2 || cJSON_GetArraySize(off) != 2) return false;
    x->shape[1] = 0;
    for (int i = 0; i < dims; i++)
        if (!whole(cJSON_GetArrayItem(shape, i), &x->shape[i])) return false;
    if (!whole(cJSON_GetArrayItem(off, 0), &x->begin) || !whole(cJSON_GetArrayItem(off, 1), &x->end)) return false;
    int64_t cols = dims == 2 ? x->shape[1] : 1, n;
    return x->end >= x->begin && !__builtin_mul_overflow(x->shape[0], cols, &n) && n <= (INT64_MAX >> 3) && 4 * n == x->end - x->begin;
}

static int by_begin(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static mt_status check_names(const char **names, int64_t n, const char *file, mt_err *e)
{
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int64_t i = 1; i < n; i++) MT_REQUIRE(strcmp(names[i - 1], names[i]), e, MT_CKPT, "'%s': tensor '%s' is there twice", file, names[i]);
    return MT_OK;
}

static mt_status check_cover(struct entry *x, int64_t n, int64_t data, const char *file, mt_err *e)
{
    int64_t at = 0;
    qsort(x, (size_t)n, sizeof *x, by_begin);
    for (int64_t i = 0; i < n; i++) {
        MT_REQUIRE(x[i].begin == at, e, MT_CKPT, "'%s': the tensors' bytes have a hole or an overlap at offset %lld", file, (long long)at);
        at = x[i].end;
    }
    MT_REQUIRE(at == data, e, MT_CKPT, "'%s': the header describes %lld bytes of tensors, the file holds %lld", file, (long long)at, (long long)data);
    return MT_OK;
}

static mt_status check_entries(const struct mt_tensors *t, const char *file, struct entry *x, const char **names, mt_err *e)
{
    const cJSON *j;
    int64_t n = 0;
    cJSON_ArrayForEach(j, t->header)
    {
        if (!strcmp(j->string, "__metadata__")) continue;
        names[n] = j->string;
        MT_REQUIRE(entry_of(j, &x[n++]), e, MT_CKPT, "'%s': tensor '%.100s' has no valid dtype (F32), shape (1 or 2 numbers) and data_offsets", file, j->string);
    }
    MT_TRY(check_names(names, n, file, e));
    return check_cover(x, n, t->file.bytes - t->data, file, e);
}

mt_status mt_tensors_parse(struct mt_tensors *t, const char *name, const unsigned char *data, int64_t bytes, mt_err *e)
{
    uint64_t length = 0;
    *t = (struct mt_tensors){.file = {data, bytes}};
    MT_REQUIRE(bytes >= 8, e, MT_CKPT, "'%s' has %lld bytes: too few for a safetensors header", name, (long long)bytes);
    memcpy(&length, data, 8);
    MT_REQUIRE(length <= HEADER_MOST && (int64_t)length <= bytes - 8, e, MT_CKPT, "'%s': the header's length %llu does not fit the file of %lld bytes",
               name, (unsigned long long)length, (long long)bytes);
    t->data = 8 + (int64_t)length;
    t->header = cJSON_ParseWithLength((const char *)data + 8, (size_t)length);
    MT_REQUIRE(cJSON_IsObject(t->header), e, MT_CKPT, "'%s': the header is not a JSON object", name);
    size_t n = (size_t)cJSON_GetArraySize(t->header) + 1;
    struct entry *x = calloc(n, sizeof *x);
    const char **names = calloc(n, sizeof *names);
    mt_status st = x && names ? check_entries(t, name, x, names, e) : mt_err_set(e, MT_IO, "no memory to check %zu tensors", n);
    free(x);
    free(names);
    return st;
}

mt_status mt_tensors_open(struct mt_tensors *t, const char *path, mt_err *e)
{
    struct mt_in f;
    *t = (struct mt_tensors){0};
    MT_TRY(mt_in_open(&f, path, e));
    mt_status st = mt_tensors_parse(t, path, f.data, f.bytes, e);
    t->mapped = true;
    return st;
}

void mt_tensors_close(struct mt_tensors *t)
{
    cJSON_Delete(t->header);
    if (t->mapped) mt_in_close(&t->file);
    *t = (struct mt_tensors){0};
}

int64_t mt_tensors_count(const struct mt_tensors *t)
{
    return cJSON_GetArraySize(t->header) - (cJSON_GetObjectItemCaseSensitive(t->header, "__metadata__") ? 1 : 0);
}

static const unsigned char *bytes_of(const struct mt_tensors *t, const cJSON *j, int64_t shape[2], int64_t *bytes)
{
    struct entry x;
    if (!j || !entry_of(j, &x)) return NULL;
    shape[0] = x.shape[0];
    shape[1] = x.shape[1];
    *bytes = x.end - x.begin;
    return t->file.data + t->data + x.begin;
}

const unsigned char *mt_tensors_find(struct mt_tensors *t, const char *name, int64_t shape[2], int64_t *bytes)
{
    const cJSON *j = t->next && !strcmp(t->next->string, name) ? t->next : cJSON_GetObjectItemCaseSensitive(t->header, name);
    t->next = j ? j->next : NULL;
    return bytes_of(t, j, shape, bytes);
}

mt_status mt_tensors_verify(const struct mt_tensors *t, const char *path, const char *sums_path, mt_err *e)
{
    struct mt_in f;
    MT_TRY(mt_in_open(&f, sums_path, e));
    cJSON *sums = f.data ? cJSON_ParseWithLength((const char *)f.data, (size_t)f.bytes) : NULL;
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(sums, "tensors"), *j, *sum = cJSON_IsObject(of) ? of->child : NULL;
    mt_status st = MT_OK;
    if (!cJSON_IsObject(of)) st = mt_err_set(e, MT_CKPT, "'%s' holds no checksums of tensors", sums_path);
    cJSON_ArrayForEach(j, t->header)
    {
        int64_t shape[2], bytes;
        char want[17];
        if (st != MT_OK || !strcmp(j->string, "__metadata__")) continue;
        const unsigned char *p = bytes_of(t, j, shape, &bytes);
        snprintf(want, sizeof want, "%016" PRIx64, p ? mt_xxh3(p, bytes) : 0);
        /* Both files list the tensors in one order: no search, which would be quadratic. */
        if (!sum || strcmp(sum->string, j->string) || !cJSON_IsString(sum) || strcmp(sum->valuestring, want))
            st = mt_err_set(e, MT_CKPT, "'%s': tensor '%s' is damaged: its checksum is %s, written was %s", path, j->string, want,
                            sum && cJSON_IsString(sum) ? sum->valuestring : "nothing");
        if (sum) sum = sum->next;
    }
    cJSON_Delete(sums);
    mt_in_close(&f);
    return st;
}
