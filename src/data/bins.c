#include "data/bins.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mt_status parse_header(mt_bins *b, const mt_index *x, int64_t seq_len, mt_err *e)
{
    int64_t h[MT_BINS_HEADER_BYTES / 8] = {0}, bytes = b->file.bytes, most = bytes / 8;
    MT_REQUIRE(bytes >= MT_BINS_HEADER_BYTES && !memcmp(b->file.at, MT_BINS_MAGIC, 8), e, MT_DATA,
               "%s: does not begin with MTPACK: not a packing index", b->path);
    memcpy(h, b->file.at, sizeof h);
    MT_REQUIRE(h[1] == 1, e, MT_DATA, "%s: format version %" PRId64 ", expected 1", b->path, h[1]);
    MT_REQUIRE(h[2] >= 1 && h[2] <= MT_BINS_MAX_LENGTH, e, MT_DATA, "%s: bins of %" PRId64 " tokens", b->path,
               h[2]);
    MT_REQUIRE(!seq_len || h[2] == seq_len, e, MT_DATA,
               "%s: packed for samples of %" PRId64 " tokens, train.seq_len is %" PRId64
               ": run `moetitan data pack %s --pack-length %" PRId64 "`",
               b->path, h[2], seq_len, x->idx_path, seq_len);
    MT_REQUIRE(h[5] == x->n_tokens && h[6] == x->n_documents, e, MT_DATA,
               "%s: made for %" PRId64 " tokens in %" PRId64 " documents, %s has %" PRId64 " in %" PRId64
               ": pack it again",
               b->path, h[5], h[6], x->idx_path, x->n_tokens, x->n_documents);
    MT_REQUIRE(h[3] >= 1 && h[3] <= most && h[4] >= 1 && h[4] <= most &&
                   bytes == MT_BINS_HEADER_BYTES + 8 * (h[3] + 1) + 12 * h[4],
               e, MT_DATA,
               "%s: %" PRId64 " bytes do not hold %" PRId64 " bins and %" PRId64 " pieces: damaged", b->path,
               bytes, h[3], h[4]);
    b->seq_len = h[2];
    b->n_bins = h[3];
    b->n_pieces = h[4];
    b->first = (const int64_t *)(const void *)(b->file.at + MT_BINS_HEADER_BYTES);
    b->start = b->first + b->n_bins + 1;
    b->length = (const int32_t *)(const void *)(b->start + b->n_pieces);
    return MT_OK;
}

static mt_status check_bin(const mt_bins *b, const mt_index *x, int64_t i, mt_err *e)
{
    int64_t begin = b->first[i], end = b->first[i + 1], used = 0;
    MT_REQUIRE(begin < end && end <= b->n_pieces, e, MT_DATA,
               "%s: bin %" PRId64 ": pieces %" PRId64 " to %" PRId64 " of %" PRId64, b->path, i, begin, end,
               b->n_pieces);
    for (int64_t p = begin; p < end; p++) {
        MT_REQUIRE(b->length[p] >= 1 && b->start[p] >= 0 && b->start[p] <= x->n_tokens - b->length[p], e,
                   MT_DATA, "%s: piece %" PRId64 ": %d tokens at position %" PRId64 " of %" PRId64, b->path,
                   p, b->length[p], b->start[p], x->n_tokens);
        used += b->length[p];
    }
    MT_REQUIRE(used <= b->seq_len, e, MT_DATA, "%s: bin %" PRId64 ": %" PRId64 " tokens, room for %" PRId64,
               b->path, i, used, b->seq_len);
    return MT_OK;
}

mt_status mt_bins_parse(mt_bins *b, const mt_index *x, int64_t seq_len, mt_err *e)
{
    MT_TRY(parse_header(b, x, seq_len, e));
    MT_REQUIRE(!b->first[0] && b->first[b->n_bins] == b->n_pieces, e, MT_DATA,
               "%s: bins cover pieces %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64, b->path,
               b->first[0], b->first[b->n_bins], b->n_pieces);
    for (int64_t i = 0; i < b->n_bins; i++) MT_TRY(check_bin(b, x, i, e));
    return MT_OK;
}

mt_status mt_bins_open(mt_bins *b, const mt_index *x, const char *prefix, int64_t seq_len, mt_err *e)
{
    *b = (mt_bins){0};
    size_t n = strlen(prefix);
    if (n > 4 && (!strcmp(prefix + n - 4, ".idx") || !strcmp(prefix + n - 4, ".bin"))) n -= 4;
    MT_REQUIRE(asprintf(&b->path, "%.*s.pack", (int)n, prefix) >= 0, e, MT_IO, "opening %s: out of memory",
               prefix);
    mt_status s = mt_mapped_open(&b->file, b->path, e);
    if (s == MT_DATA)
        mt_err_while(e, "packed samples need an index made with `moetitan data pack --pack-length`");
    if (s == MT_OK) s = mt_bins_parse(b, x, seq_len, e);
    if (s != MT_OK) mt_bins_close(b);
    return s;
}

void mt_bins_close(mt_bins *b)
{
    mt_mapped_close(&b->file);
    free(b->path);
    memset(b, 0, sizeof *b);
}
