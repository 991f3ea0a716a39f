#include "data/writer.h"

#include "data/index.h"
#include "data/outfile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STAGED_TOKENS = 4096, WIDE_VOCAB = 65500 };

struct mt_index_writer {
    mt_outfile bin, idx;
    bool wide;
    int64_t open_tokens; /* of the document being written */
    int64_t n_documents, capacity;
    int32_t *lengths;
};

mt_status mt_index_writer_open(mt_index_writer **out, const char *prefix, int64_t vocab, mt_err *e)
{
    *out = NULL;
    mt_index_writer *w = calloc(1, sizeof *w);
    MT_REQUIRE(w, e, MT_IO, "writing %s: out of memory", prefix);
    w->wide = vocab >= WIDE_VOCAB;
    mt_status s = mt_outfile_open(&w->bin, prefix, ".bin", e);
    if (s == MT_OK) s = mt_outfile_open(&w->idx, prefix, ".idx", e);
    if (s != MT_OK) {
        mt_index_writer_discard(w);
        return s;
    }
    *out = w;
    return MT_OK;
}

mt_status mt_index_writer_tokens(mt_index_writer *w, const int32_t *tokens, int64_t n, mt_err *e)
{
    w->open_tokens += n;
    if (w->wide) return mt_outfile_write(&w->bin, tokens, 4 * n, e);
    uint16_t narrow[STAGED_TOKENS];
    for (int64_t at = 0; at < n;) {
        int64_t m = n - at < STAGED_TOKENS ? n - at : STAGED_TOKENS;
        for (int64_t i = 0; i < m; i++) narrow[i] = (uint16_t)tokens[at + i];
        MT_TRY(mt_outfile_write(&w->bin, narrow, 2 * m, e));
        at += m;
    }
    return MT_OK;
}

mt_status mt_index_writer_end_document(mt_index_writer *w, mt_err *e)
{
    MT_REQUIRE(w->open_tokens <= INT32_MAX, e, MT_DATA,
               "%s: document %" PRId64 " has %" PRId64
               " tokens, the format's limit is %d: cut it into smaller documents",
               w->bin.path, w->n_documents, w->open_tokens, INT32_MAX);
    if (w->n_documents == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 1024;
        int32_t *lengths = realloc(w->lengths, (size_t)capacity * sizeof *lengths);
        MT_REQUIRE(lengths, e, MT_IO, "%s: out of memory after %" PRId64 " documents", w->bin.path,
                   w->n_documents);
        w->lengths = lengths;
        w->capacity = capacity;
    }
    w->lengths[w->n_documents++] = (int32_t)w->open_tokens;
    w->open_tokens = 0;
    return MT_OK;
}

static mt_status write_index(mt_index_writer *w, mt_err *e)
{
    int64_t n = w->n_documents, width = w->wide ? 4 : 2, version = 1, entries = n + 1, offset = 0;
    uint8_t header[MT_INDEX_HEADER_BYTES] = MT_INDEX_MAGIC;
    memcpy(header + 9, &version, 8);
    header[17] = w->wide ? MT_TOKEN_I32 : MT_TOKEN_U16;
    memcpy(header + 18, &n, 8);
    memcpy(header + 26, &entries, 8);
    MT_TRY(mt_outfile_write(&w->idx, header, sizeof header, e));
    MT_TRY(mt_outfile_write(&w->idx, w->lengths, 4 * n, e));
    for (int64_t d = 0; d < n; d++) {
        MT_TRY(mt_outfile_write(&w->idx, &offset, 8, e));
        offset += w->lengths[d] * width;
    }
    for (int64_t d = 0; d <= n; d++) MT_TRY(mt_outfile_write(&w->idx, &d, 8, e));
    return MT_OK;
}

static mt_status finish(mt_index_writer *w, mt_err *e)
{
    MT_ASSERT(!w->open_tokens);
    MT_TRY(write_index(w, e));
    MT_TRY(mt_outfile_finish(&w->bin, e));
    MT_TRY(mt_outfile_finish(&w->idx, e));
    MT_TRY(mt_outfile_place(&w->bin, e));
    return mt_outfile_place(&w->idx, e);
}

mt_status mt_index_writer_close(mt_index_writer *w, mt_err *e)
{
    mt_status s = finish(w, e);
    mt_index_writer_discard(w);
    return s;
}

void mt_index_writer_discard(mt_index_writer *w)
{
    if (!w) return;
    mt_outfile_release(&w->bin);
    mt_outfile_release(&w->idx);
    free(w->lengths);
    free(w);
}
