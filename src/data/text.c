#include "data/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/packer.h"
#include "data/writer.h"
#include "data/zst.h"

enum { BYTE_IDS = 256, CHUNK = 1 << 16 };

struct reading {
    const mt_text_options *o;
    struct mt_packer *packer;
    struct mt_input in;
    int64_t before; /* bytes of the inputs that were read whole */
    char *line;     /* getline's */
    size_t room;
};

/* How far it is, by the inputs' bytes. */
static void begin_progress(const mt_text_options *o)
{
    struct stat st;
    for (int64_t i = 0; i < o->n_inputs && o->progress; i++)
        if (!stat(o->inputs[i], &st)) atomic_fetch_add(&o->progress->total, st.st_size);
}
static void tell_progress(const struct reading *k)
{
    if (k->o->progress) atomic_store(&k->o->progress->done, k->before + mt_input_bytes(&k->in));
}

static mt_status end_document(struct reading *k, bool json, int64_t line, mt_err *e)
{
    MT_TRY(mt_packer_end(k->packer, json, k->in.path, line, e));
    tell_progress(k);
    return MT_OK;
}

static mt_status read_whole(struct reading *k, mt_err *e)
{
    char chunk[CHUNK];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, k->in.file)) > 0)
        MT_TRY(mt_packer_add(k->packer, chunk, (int64_t)n, e));
    return end_document(k, false, 1, e);
}

static bool is_blank(const char *line, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isspace((unsigned char)line[i])) return false;
    return true;
}

/* Lines keep their newline inside a paragraph and lose it when they are documents of their own. */
static mt_status read_lines(struct reading *k, mt_err *e)
{
    int64_t n, first = 1;
    bool paragraphs = k->o->unit == MT_DOCUMENT_BLANK;
    for (int64_t number = 1; (n = getline(&k->line, &k->room, k->in.file)) >= 0; number++) {
        if (!mt_packer_open_bytes(k->packer)) first = number;
        if (!paragraphs) {
            while (n && (k->line[n - 1] == '\n' || k->line[n - 1] == '\r')) n--;
            MT_TRY(mt_packer_add(k->packer, k->line, n, e));
            MT_TRY(end_document(k, false, first, e));
        } else if (!is_blank(k->line, n)) {
            MT_TRY(mt_packer_add(k->packer, k->line, n, e));
        } else if (mt_packer_open_bytes(k->packer)) {
            MT_TRY(end_document(k, false, first, e));
        }
    }
    return paragraphs && mt_packer_open_bytes(k->packer) ? end_document(k, false, first, e) : MT_OK;
}

static mt_status read_objects(struct reading *k, mt_err *e)
{
    int64_t n;
    for (int64_t number = 1; (n = getline(&k->line, &k->room, k->in.file)) >= 0; number++) {
        if (is_blank(k->line, n)) continue;
        MT_TRY(mt_packer_add(k->packer, k->line, n, e));
        MT_TRY(end_document(k, true, number, e));
    }
    return MT_OK;
}

static bool is_json(const mt_text_options *o, const char *path)
{
    int64_t n = mt_input_stem(path);
    return o->jsonl_key || (n > 6 && !strncmp(path + n - 6, ".jsonl", 6));
}

static mt_status read_file(struct reading *k, const char *path, mt_err *e)
{
    MT_TRY(mt_input_open(&k->in, path, e));
    mt_status st = is_json(k->o, path)              ? read_objects(k, e)
                   : k->o->unit == MT_DOCUMENT_FILE ? read_whole(k, e)
                                                    : read_lines(k, e);
    if (st == MT_OK) st = mt_input_check(&k->in, e);
    k->before += mt_input_bytes(&k->in);
    mt_input_close(&k->in);
    return st;
}

static mt_status read_all(struct reading *k, mt_text_counts *counts, mt_err *e)
{
    struct mt_packer_counts c;
    for (int64_t i = 0; i < k->o->n_inputs; i++) MT_TRY(read_file(k, k->o->inputs[i], e));
    MT_TRY(mt_packer_finish(k->packer, &c, e));
    counts->documents = c.documents;
    counts->tokens = c.tokens;
    counts->empty = c.empty;
    counts->bytes = c.bytes;
    MT_REQUIRE(c.documents, e, MT_DATA, "%s: the inputs hold no text", k->o->prefix);
    return MT_OK;
}

static mt_status pack(const mt_text_options *o, mt_index_writer *writer, mt_text_counts *counts, mt_err *e)
{
    struct reading k = {.o = o};
    struct mt_packer_options options = {.tokenizer = o->tokenizer,
                                        .specials = !o->specials_are_text,
                                        .eod = o->eod,
                                        .json_key = o->jsonl_key ? o->jsonl_key : "text",
                                        .threads = o->threads ? o->threads : 1};
    begin_progress(o);
    mt_status st = mt_packer_open(&k.packer, writer, &options, e);
    if (st == MT_OK) st = read_all(&k, counts, e);
    mt_packer_close(k.packer);
    free(k.line);
    return st;
}

mt_status mt_text_pack(const mt_text_options *o, mt_text_counts *counts, mt_err *e)
{
    int64_t vocab = o->tokenizer ? mt_tokenizer_vocab(o->tokenizer) : BYTE_IDS;
    mt_index_writer *writer;
    MT_REQUIRE(o->eod >= -1 && o->eod < INT32_MAX, e, MT_CONFIG,
               "--eod %" PRId64 ": expected an id from 0 to 2^31 - 2", o->eod);
    *counts = (mt_text_counts){.vocab = o->eod >= vocab ? o->eod + 1 : vocab};
    MT_TRY(mt_index_writer_open(&writer, o->prefix, counts->vocab, e));
    mt_status st = pack(o, writer, counts, e);
    if (st == MT_OK) return mt_index_writer_close(writer, e); /* frees it */
    mt_index_writer_discard(writer);
    return st;
}
