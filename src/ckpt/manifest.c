#include "ckpt/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file.h"
#include "ckpt/json.h"

/* The file ends with its own checksum: 16 digits, and this. All bytes before the digits are what it is of. */
static const char tail[] = "\"}\n";
enum { DIGITS = 16, TAIL = 3 };

mt_status mt_manifest_add(struct mt_manifest *m, const char *name, int64_t bytes, uint64_t xxh3, mt_err *e)
{
    struct mt_manifest_file *p = realloc(m->file, (size_t)(m->n + 1) * sizeof *p);
    MT_REQUIRE(p, e, MT_IO, "no memory for a manifest of %lld files", (long long)m->n + 1);
    m->file = p;
    m->file[m->n] = (struct mt_manifest_file){.bytes = bytes, .xxh3 = xxh3};
    snprintf(m->file[m->n++].name, sizeof p->name, "%s", name);
    return MT_OK;
}

const struct mt_manifest_file *mt_manifest_find(const struct mt_manifest *m, const char *name)
{
    for (int64_t i = 0; i < m->n; i++)
        if (!strcmp(m->file[i].name, name)) return &m->file[i];
    return NULL;
}

void mt_manifest_release(struct mt_manifest *m)
{
    free(m->file);
    *m = (struct mt_manifest){0};
}

/* ---- writing ---- */
static mt_status text_of(const struct mt_manifest *m, char **text, size_t *bytes, mt_err *e)
{
    FILE *f = open_memstream(text, bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for a manifest of %" PRId64 " files", m->n);
    fprintf(f,
            "{\"format\": \"moetitan checkpoint\", \"version\": 2, \"step\": %" PRId64
            ", \"tokens\": %" PRId64 ", \"world\": %d, \"files\": [",
            m->meta.step, m->meta.tokens, m->world);
    for (int64_t i = 0; i < m->n; i++)
        fprintf(f, "%s\n  {\"name\": \"%s\", \"bytes\": %" PRId64 ", \"xxh3\": \"%016" PRIx64 "\"}",
                i ? "," : "", m->file[i].name, m->file[i].bytes, m->file[i].xxh3);
    fprintf(f, "\n], \"xxh3\": \"");
    if (!fflush(f)) fprintf(f, "%016" PRIx64 "%s", mt_xxh3(*text, (int64_t)*bytes), tail);
    bool ok = !ferror(f);
    MT_REQUIRE(!fclose(f) && ok, e, MT_IO, "no memory for a manifest of %" PRId64 " files", m->n);
    return MT_OK;
}

mt_status mt_manifest_write(const struct mt_manifest *m, const char *folder, mt_err *e)
{
    char tmp[MT_CKPT_PATH + 32], path[MT_CKPT_PATH + 32], *text = NULL;
    size_t bytes = 0;
    uint64_t sum;
    snprintf(tmp, sizeof tmp, "%s/manifest.json.tmp", folder);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    mt_status st = text_of(m, &text, &bytes, e);
    if (st == MT_OK)
        st = mt_sync_folder(folder, e); /* every file's name is on the disk before the manifest says so */
    if (st == MT_OK) st = mt_write_file(tmp, text, (int64_t)bytes, &sum, e);
    free(text);
    MT_TRY(st);
    if (rename(tmp, path)) {
        mt_err_set(e, MT_IO, "cannot rename '%s': %s", tmp, strerror(errno));
        unlink(tmp);
        return e->code;
    }
    return mt_sync_folder(folder, e);
}

/* ---- reading ---- */
static bool count(const cJSON *o, const char *key, int64_t *out)
{
    return mt_json_count(cJSON_GetObjectItemCaseSensitive(o, key), out);
}

static bool file_of(const cJSON *j, struct mt_manifest_file *f)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(j, "name");
    if (!cJSON_IsString(name) || !count(j, "bytes", &f->bytes)) return false;
    size_t n = strlen(name->valuestring);
    /* A plain name: nothing outside the folder, nothing hidden, nothing that a terminal obeys. */
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (!n || n >= sizeof f->name || strspn(name->valuestring, plain) != n || name->valuestring[0] == '.')
        return false;
    memcpy(f->name, name->valuestring, n + 1);
    return mt_json_hash(cJSON_GetObjectItemCaseSensitive(j, "xxh3"), &f->xxh3);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct mt_manifest_file *)a)->name, ((const struct mt_manifest_file *)b)->name);
}

static mt_status refuse_twice(const struct mt_manifest *m, const char *name, mt_err *e)
{
    struct mt_manifest_file *sorted = malloc((size_t)m->n * sizeof *sorted);
    MT_REQUIRE(sorted, e, MT_IO, "no memory for a manifest of %" PRId64 " files", m->n);
    memcpy(sorted, m->file, (size_t)m->n * sizeof *sorted);
    qsort(sorted, (size_t)m->n, sizeof *sorted, by_name);
    mt_status st = MT_OK;
    for (int64_t i = 1; i < m->n && st == MT_OK; i++)
        if (!strcmp(sorted[i - 1].name, sorted[i].name))
            st = mt_err_set(e, MT_CKPT, "'%s' lists the file %s twice", name, sorted[i].name);
    free(sorted);
    return st;
}

static mt_status read_files(struct mt_manifest *m, const cJSON *files, const char *name, mt_err *e)
{
    const cJSON *j;
    int n = cJSON_GetArraySize(files);
    MT_REQUIRE(cJSON_IsArray(files) && n > 0 && n <= MT_MANIFEST_FILES, e, MT_CKPT,
               "'%s': the list of files is missing", name);
    m->file = calloc((size_t)n, sizeof *m->file);
    MT_REQUIRE(m->file, e, MT_IO, "no memory for a manifest of %d files", n);
    cJSON_ArrayForEach(j, files)
    {
        MT_REQUIRE(file_of(j, &m->file[m->n]), e, MT_CKPT,
                   "'%s': entry %" PRId64 " of the files has no valid name, bytes and xxh3", name, m->n);
        m->n++;
    }
    return refuse_twice(m, name, e);
}

static mt_status read_object(struct mt_manifest *m, const cJSON *o, const char *name, mt_err *e)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(o, "format");
    int64_t version, world;
    MT_REQUIRE(cJSON_IsString(format) && !strcmp(format->valuestring, "moetitan checkpoint") &&
                   count(o, "version", &version) && (version == 1 || version == 2),
               e, MT_CKPT, "'%s' is no manifest of a moetitan checkpoint, version 1 or 2", name);
    MT_REQUIRE(count(o, "step", &m->meta.step) && count(o, "tokens", &m->meta.tokens) &&
                   count(o, "world", &world) && world >= 1 && world < 1 << 24,
               e, MT_CKPT, "'%s': step, tokens or world is missing or no count", name);
    m->version = (int)version;
    m->world = (int)world;
    MT_REQUIRE(version > 1 || world == 1, e, MT_CKPT, "'%s': version 1 is of one rank, and this of %d", name,
               m->world);
    return read_files(m, cJSON_GetObjectItemCaseSensitive(o, "files"), name, e);
}

static mt_status check_own_sum(const cJSON *o, const char *name, const char *text, int64_t bytes, mt_err *e)
{
    uint64_t written, now = mt_xxh3(text, bytes > DIGITS + TAIL ? bytes - DIGITS - TAIL : 0);
    MT_REQUIRE(mt_json_hash(cJSON_GetObjectItemCaseSensitive(o, "xxh3"), &written), e, MT_CKPT,
               "'%s' does not end with a checksum of itself", name);
    MT_REQUIRE(now == written && !memcmp(text + bytes - TAIL, tail, TAIL), e, MT_CKPT,
               "'%s' is damaged: its checksum is %016" PRIx64 ", written was %016" PRIx64, name, now,
               written);
    return MT_OK;
}

mt_status mt_manifest_parse(struct mt_manifest *m, const char *name, const char *text, int64_t bytes,
                            mt_err *e)
{
    *m = (struct mt_manifest){0};
    cJSON *o = mt_json_object(text, bytes);
    mt_status st = o ? read_object(m, o, name, e) : mt_err_set(e, MT_CKPT, "'%s' is not a JSON object", name);
    if (st == MT_OK) st = check_own_sum(o, name, text, bytes, e);
    cJSON_Delete(o);
    if (st != MT_OK) mt_manifest_release(m);
    return st;
}
