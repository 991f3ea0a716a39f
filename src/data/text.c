#include "data/text.h"

#include "data/writer.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_IDS = 256, CHUNK = 1 << 16 };

typedef struct packer {
    const mt_text_options *o;
    mt_text_counts *counts;
    mt_index_writer *writer;
    int64_t open_tokens; /* of the document being written */
    char *line;          /* getline's */
    size_t line_room;
} packer;

static mt_status add_bytes(packer *k, const char *bytes, int64_t n, mt_err *e)
{
    int32_t ids[1024];
    k->open_tokens += n;
    while (n > 0) {
        int64_t m = n < 1024 ? n : 1024;
        for (int64_t i = 0; i < m; i++) ids[i] = (unsigned char)bytes[i];
        MT_TRY(mt_index_writer_tokens(k->writer, ids, m, e));
        bytes += m;
        n -= m;
    }
    return MT_OK;
}

static mt_status end_document(packer *k, mt_err *e)
{
    if (!k->open_tokens) {
        k->counts->empty++;
        return MT_OK;
    }
    if (k->o->eod >= 0) {
        int32_t eod = (int32_t)k->o->eod;
        MT_TRY(mt_index_writer_tokens(k->writer, &eod, 1, e));
        k->open_tokens++;
    }
    k->counts->documents++;
    k->counts->tokens += k->open_tokens;
    k->open_tokens = 0;
    return mt_index_writer_end_document(k->writer, e);
}

static mt_status pack_whole(packer *k, FILE *f, mt_err *e)
{
    char chunk[CHUNK];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) MT_TRY(add_bytes(k, chunk, (int64_t)n, e));
    return end_document(k, e);
}

static bool is_blank(const char *line, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isspace((unsigned char)line[i])) return false;
    return true;
}

/* Lines keep their newline inside a paragraph and lose it when they are documents of their own. */
static mt_status pack_lines(packer *k, FILE *f, mt_err *e)
{
    int64_t n;
    bool paragraphs = k->o->unit == MT_DOCUMENT_BLANK;
    while ((n = getline(&k->line, &k->line_room, f)) >= 0) {
        if (!paragraphs) {
            while (n && (k->line[n - 1] == '\n' || k->line[n - 1] == '\r')) n--;
            MT_TRY(add_bytes(k, k->line, n, e));
            MT_TRY(end_document(k, e));
        } else if (!is_blank(k->line, n)) {
            MT_TRY(add_bytes(k, k->line, n, e));
        } else if (k->open_tokens) {
            MT_TRY(end_document(k, e));
        }
    }
    return paragraphs && k->open_tokens ? end_document(k, e) : MT_OK;
}

/* Whether a JSON text has the escape of a NUL, at which cJSON's strings end. */
static bool has_nul_escape(const char *line, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i++) {
        if (line[i] != '\\') continue;
        if (n - i >= 6 && !memcmp(line + i + 1, "u0000", 5)) return true;
        i++; /* the escaped character, maybe a backslash */
    }
    return false;
}

static mt_status pack_object(packer *k, const char *path, int64_t number, int64_t n, mt_err *e)
{
    const char *key = k->o->jsonl_key ? k->o->jsonl_key : "text", *end = k->line;
    MT_REQUIRE(!memchr(k->line, 0, (size_t)n) && !has_nul_escape(k->line, n), e, MT_DATA,
               "%s:%" PRId64 ": holds a NUL character, which text may not", path, number);
    cJSON *object = cJSON_ParseWithLengthOpts(k->line, (size_t)n + 1, &end, 1);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, key);
    mt_status s = MT_OK;
    if (!object)
        s = mt_err_set(e, MT_DATA, "%s:%" PRId64 ":%lld: not valid JSON; expected one object a line", path,
                       number, (long long)(end - k->line) + 1);
    else if (!cJSON_IsString(text))
        s = mt_err_set(e, MT_DATA,
                       "%s:%" PRId64 ": no string under the key \"%s\"; choose the key with --jsonl KEY",
                       path, number, key);
    else
        s = add_bytes(k, text->valuestring, (int64_t)strlen(text->valuestring), e);
    cJSON_Delete(object);
    return s == MT_OK ? end_document(k, e) : s;
}

static mt_status pack_jsonl(packer *k, FILE *f, const char *path, mt_err *e)
{
    int64_t n;
    for (int64_t number = 1; (n = getline(&k->line, &k->line_room, f)) >= 0; number++)
        if (!is_blank(k->line, n)) MT_TRY(pack_object(k, path, number, n, e));
    return MT_OK;
}

static mt_status pack_file(packer *k, const char *path, mt_err *e)
{
    size_t n = strlen(path);
    bool json = k->o->jsonl_key || (n > 6 && !strcmp(path + n - 6, ".jsonl"));
    FILE *f = fopen(path, "rbe");
    MT_REQUIRE(f, e, MT_DATA, "%s: cannot open: %s", path, strerror(errno));
    mt_status s = json                             ? pack_jsonl(k, f, path, e)
                  : k->o->unit == MT_DOCUMENT_FILE ? pack_whole(k, f, e)
                                                   : pack_lines(k, f, e);
    if (s == MT_OK && ferror(f)) s = mt_err_set(e, MT_IO, "%s: cannot read: %s", path, strerror(errno));
    fclose(f);
    return s;
}

static mt_status pack_all(packer *k, mt_err *e)
{
    for (int64_t i = 0; i < k->o->n_inputs; i++) MT_TRY(pack_file(k, k->o->inputs[i], e));
    MT_REQUIRE(k->counts->documents, e, MT_DATA, "%s: the inputs hold no text", k->o->prefix);
    mt_index_writer *w = k->writer;
    k->writer = NULL; /* closing frees it */
    return mt_index_writer_close(w, e);
}

mt_status mt_text_pack(const mt_text_options *o, mt_text_counts *counts, mt_err *e)
{
    MT_REQUIRE(o->eod >= -1 && o->eod < INT32_MAX, e, MT_CONFIG,
               "--eod %" PRId64 ": expected an id from 0 to 2^31 - 2", o->eod);
    *counts = (mt_text_counts){.vocab = o->eod >= BYTE_IDS ? o->eod + 1 : BYTE_IDS};
    packer k = {.o = o, .counts = counts};
    MT_TRY(mt_index_writer_open(&k.writer, o->prefix, counts->vocab, e));
    mt_status s = pack_all(&k, e);
    mt_index_writer_discard(k.writer);
    free(k.line);
    return s;
}
