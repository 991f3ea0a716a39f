#include "ckpt/manifest.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/file.h"

mt_status mt_manifest_add(struct mt_manifest *m, const char *name, int64_t bytes, uint64_t xxh3, mt_err *e)
{
    struct mt_manifest_file *p = realloc(m->file, (size_t)(m->n + 1) * sizeof *p);
    MT_REQUIRE(p, e, MT_IO, "no memory for a manifest of %lld files", (long long)m->n + 1);
    m->file = p;
    m->file[m->n] = (struct mt_manifest_file){.bytes = bytes, .xxh3 = xxh3};
    snprintf(m->file[m->n++].name, sizeof p->name, "%s", name);
    return MT_OK;
}

void mt_manifest_release(struct mt_manifest *m)
{
    free(m->file);
    *m = (struct mt_manifest){0};
}

static mt_status put(struct mt_out *o, const struct mt_manifest *m, mt_err *e)
{
    char line[320];
    int n = snprintf(line, sizeof line, "{\"format\": \"moetitan checkpoint\", \"version\": 1, \"step\": %" PRId64 ", \"tokens\": %" PRId64
                     ", \"world\": %d, \"files\": [", m->meta.step, m->meta.tokens, m->world);
    MT_TRY(mt_out_write(o, line, n, e));
    for (int64_t i = 0; i < m->n; i++) {
        n = snprintf(line, sizeof line, "%s\n  {\"name\": \"%s\", \"bytes\": %" PRId64 ", \"xxh3\": \"%016" PRIx64 "\"}", i ? "," : "",
                     m->file[i].name, m->file[i].bytes, m->file[i].xxh3);
        MT_TRY(mt_out_write(o, line, n, e));
    }
    return mt_out_write(o, "\n]}\n", 4, e);
}

mt_status mt_manifest_write(const struct mt_manifest *m, const char *folder, mt_err *e)
{
    char tmp[MT_CKPT_PATH + 32], path[MT_CKPT_PATH + 32];
    struct mt_out o;
    uint64_t sum;
    snprintf(tmp, sizeof tmp, "%s/manifest.json.tmp", folder);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    MT_TRY(mt_sync_folder(folder, e)); /* every file's name is on the disk before the manifest says so */
    MT_TRY(mt_out_open(&o, tmp, e));
    mt_status st = put(&o, m, e);
    if (st != MT_OK) {
        mt_out_abandon(&o);
        return st;
    }
    MT_TRY(mt_out_close(&o, &sum, e));
    MT_REQUIRE(!rename(tmp, path), e, MT_IO, "cannot rename '%s': %s", tmp, strerror(errno));
    return mt_sync_folder(folder, e);
}

static bool number(const cJSON *o, const char *key, int64_t *out)
{
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0) || j->valuedouble > 9007199254740992.0) return false;
    *out = (int64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

static bool file_of(const cJSON *j, struct mt_manifest_file *f)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(j, "name"), *sum = cJSON_GetObjectItemCaseSensitive(j, "xxh3");
    char *end;
    if (!cJSON_IsString(name) || !cJSON_IsString(sum) || !number(j, "bytes", &f->bytes)) return false;
    size_t n = strlen(name->valuestring);
    if (!n || n >= sizeof f->name || strchr(name->valuestring, '/') || name->valuestring[0] == '.') return false;
    memcpy(f->name, name->valuestring, n + 1);
    f->xxh3 = strtoull(sum->valuestring, &end, 16);
    return strlen(sum->valuestring) == 16 && !*end;
}

static mt_status read_object(struct mt_manifest *m, const cJSON *o, const char *name, mt_err *e)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(o, "format"), *files = cJSON_GetObjectItemCaseSensitive(o, "files"), *j;
    int64_t version, world;
    MT_REQUIRE(cJSON_IsString(format) && !strcmp(format->valuestring, "moetitan checkpoint") && number(o, "version", &version) && version == 1, e,
               MT_CKPT, "'%s' is no manifest of a moetitan checkpoint, version 1", name);
    MT_REQUIRE(number(o, "step", &m->meta.step) && number(o, "tokens", &m->meta.tokens) && number(o, "world", &world) && world >= 1 && world < 1 << 24, e,
               MT_CKPT, "'%s': step, tokens or world is missing or no count", name);
    m->world = (int)world;
    int count = cJSON_GetArraySize(files);
    MT_REQUIRE(cJSON_IsArray(files) && count > 0 && count <= MT_MANIFEST_FILES, e, MT_CKPT, "'%s': the list of files is missing", name);
    m->file = calloc((size_t)count, sizeof *m->file);
    MT_REQUIRE(m->file, e, MT_IO, "no memory for a manifest of %d files", count);
    cJSON_ArrayForEach(j, files)
    {
        MT_REQUIRE(file_of(j, &m->file[m->n]), e, MT_CKPT, "'%s': entry %lld of the files has no valid name, bytes and xxh3", name, (long long)m->n);
        m->n++;
    }
    return MT_OK;
}

mt_status mt_manifest_parse(struct mt_manifest *m, const char *name, const char *text, int64_t bytes, mt_err *e)
{
    *m = (struct mt_manifest){0};
    cJSON *o = bytes > 0 ? cJSON_ParseWithLength(text, (size_t)bytes) : NULL;
    mt_status st = cJSON_IsObject(o) ? read_object(m, o, name, e) : mt_err_set(e, MT_CKPT, "'%s' is not a JSON object", name);
    cJSON_Delete(o);
    if (st != MT_OK) mt_manifest_release(m);
    return st;
}

mt_status mt_manifest_read(struct mt_manifest *m, const char *folder, mt_err *e)
{
    char path[MT_CKPT_PATH + 32];
    struct mt_in f;
    *m = (struct mt_manifest){0};
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    MT_TRY(mt_in_open(&f, path, e));
    mt_status st = mt_manifest_parse(m, path, (const char *)f.data, f.bytes, e);
    mt_in_close(&f);
    return st;
}
