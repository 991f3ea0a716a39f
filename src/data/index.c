#include "data/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t load_i64(const uint8_t *at, int64_t i)
{
    int64_t v;
    memcpy(&v, at + 8 * i, 8);
    return v;
}

static int32_t load_i32(const uint8_t *at, int64_t i)
{
    int32_t v;
    memcpy(&v, at + 4 * i, 4);
    return v;
}

static int64_t type_width(int code)
{
    switch (code) {
    case MT_TOKEN_U8:
    case MT_TOKEN_I8: return 1;
    case MT_TOKEN_I16:
    case MT_TOKEN_U16: return 2;
    case MT_TOKEN_I32: return 4;
    case MT_TOKEN_I64: return 8;
    default: return 0;
    }
}

const char *mt_token_type_name(mt_token_type t)
{
    static const char *const name[] = {"?", "u8", "i8", "i16", "i32", "i64", "f64", "f32", "u16"};
    return (unsigned)t < sizeof name / sizeof *name ? name[t] : "?";
}

static mt_status parse_header(mt_index *x, mt_err *e)
{
    const uint8_t *h = x->idx_file.at;
    const char *path = x->idx_path;
    int64_t bytes = x->idx_file.bytes;
    MT_REQUIRE(bytes >= MT_INDEX_HEADER_BYTES, e, MT_DATA,
               "%s: %" PRId64 " bytes, too short for the header of %d", path, bytes, MT_INDEX_HEADER_BYTES);
    MT_REQUIRE(!memcmp(h, MT_INDEX_MAGIC, 9), e, MT_DATA,
               "%s: does not begin with MMIDIDX: not a token index; make one with `moetitan data pack`",
               path);
    int64_t version = load_i64(h + 9, 0);
    MT_REQUIRE(version == 1, e, MT_DATA, "%s: byte 9: format version %" PRId64 ", expected 1", path, version);
    x->type = (mt_token_type)h[17];
    x->width = type_width(h[17]);
    MT_REQUIRE(
        x->width, e, MT_DATA,
        "%s: byte 17: token type code %d (%s); integer tokens are 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16",
        path, h[17], mt_token_type_name(x->type));
    x->n_sequences = load_i64(h + 18, 0);
    int64_t entries = load_i64(h + 26, 0);
    int64_t body = bytes - MT_INDEX_HEADER_BYTES;
    /* Bounded by what the file could hold before they are multiplied, so no product overflows. */
    MT_REQUIRE(x->n_sequences >= 0 && x->n_sequences <= body / 12, e, MT_DATA,
               "%s: byte 18: %" PRIu64 " sequences do not fit a file of %" PRId64 " bytes", path,
               (uint64_t)x->n_sequences, bytes);
    MT_REQUIRE(entries >= 0 && entries <= body / 8, e, MT_DATA,
               "%s: byte 26: %" PRIu64 " document entries do not fit a file of %" PRId64 " bytes", path,
               (uint64_t)entries, bytes);
    int64_t need = 12 * x->n_sequences + 8 * entries;
    MT_REQUIRE(body == need || body == need + x->n_sequences, e, MT_DATA,
               "%s: %" PRId64 " bytes, but %" PRId64 " sequences and %" PRId64
               " document entries need %" PRId64 ": truncated or damaged",
               path, bytes, x->n_sequences, entries, MT_INDEX_HEADER_BYTES + need);
    MT_REQUIRE(x->n_sequences > 0 && entries >= 2, e, MT_DATA, "%s: holds no documents", path);
    x->n_documents = entries - 1;
    x->lengths = h + MT_INDEX_HEADER_BYTES;
    x->offsets = x->lengths + 4 * x->n_sequences;
    x->documents = x->offsets + 8 * x->n_sequences;
    return MT_OK;
}

static mt_status parse_sequences(mt_index *x, mt_err *e)
{
    int64_t at = 0, bin = x->bin_file.bytes;
    for (int64_t s = 0; s < x->n_sequences; s++) {
        int32_t n = load_i32(x->lengths, s);
        int64_t offset = load_i64(x->offsets, s);
        MT_REQUIRE(n >= 0, e, MT_DATA, "%s: sequence %" PRId64 ": negative length %d", x->idx_path, s, n);
        MT_REQUIRE(offset == at, e, MT_DATA,
                   "%s: sequence %" PRId64 ": offset %" PRId64 ", expected %" PRId64
                   ": sequences must follow each other without gaps",
                   x->idx_path, s, offset, at);
        MT_REQUIRE(n <= (bin - at) / x->width, e, MT_DATA,
                   "%s: sequence %" PRId64 ": %d tokens of %" PRId64 " bytes at offset %" PRId64
                   " reach past the end of %s (%" PRId64 " bytes)",
                   x->idx_path, s, n, x->width, at, x->bin_path, bin);
        at += n * x->width;
    }
    MT_REQUIRE(at == bin, e, MT_DATA,
               "%s: %" PRId64 " bytes, but %s describes %" PRId64 ": the two files do not belong together",
               x->bin_path, bin, x->idx_path, at);
    x->n_tokens = at / x->width;
    MT_REQUIRE(x->n_tokens > 0, e, MT_DATA, "%s: holds no tokens", x->idx_path);
    return MT_OK;
}

static mt_status parse_documents(const mt_index *x, mt_err *e)
{
    int64_t before = 0;
    for (int64_t d = 0; d <= x->n_documents; d++) {
        int64_t s = load_i64(x->documents, d);
        MT_REQUIRE(d || !s, e, MT_DATA, "%s: document entry 0: %" PRId64 ", expected 0", x->idx_path, s);
        MT_REQUIRE(s >= before && s <= x->n_sequences, e, MT_DATA,
                   "%s: document entry %" PRId64 ": sequence %" PRId64 ", expected %" PRId64 " to %" PRId64,
                   x->idx_path, d, s, before, x->n_sequences);
        before = s;
    }
    MT_REQUIRE(before == x->n_sequences, e, MT_DATA,
               "%s: last document entry: %" PRId64 ", expected the number of sequences, %" PRId64,
               x->idx_path, before, x->n_sequences);
    return MT_OK;
}

/* ---- .bin files of llm.c ---- */
enum { LLMC_HEADER_BYTES = 1024, LLMC_U16 = 20240520, LLMC_U32 = 20240801 };

bool mt_index_is_llmc(const mt_mapped *bin)
{
    if (bin->bytes < 4) return false;
    int32_t magic = load_i32(bin->at, 0);
    return magic == LLMC_U16 || magic == LLMC_U32;
}

mt_status mt_index_parse_llmc(mt_index *x, mt_err *e)
{
    static const int64_t offsets[] = {0}, documents[] = {0, 1};
    const mt_mapped *bin = &x->bin_file;
    MT_REQUIRE(bin->bytes >= LLMC_HEADER_BYTES, e, MT_DATA,
               "%s: %" PRId64 " bytes, too short for the header of an llm.c file, %d", x->bin_path,
               bin->bytes, LLMC_HEADER_BYTES);
    bool wide = load_i32(bin->at, 0) == LLMC_U32;
    int32_t version = load_i32(bin->at, 1);
    int64_t n = load_i32(bin->at, 2), width = wide ? 4 : 2;
    MT_REQUIRE(version == (wide ? 7 : 1), e, MT_DATA, "%s: byte 4: version %d of llm.c's format, expected %d",
               x->bin_path, version, wide ? 7 : 1);
    MT_REQUIRE(n > 0 && bin->bytes == LLMC_HEADER_BYTES + n * width, e, MT_DATA,
               "%s: byte 8: %" PRId64 " tokens of %" PRId64 " bytes need a file of %" PRId64
               " bytes, this one has %" PRId64 ": truncated or damaged",
               x->bin_path, n, width, LLMC_HEADER_BYTES + n * width, bin->bytes);
    x->type = wide ? MT_TOKEN_I32 : MT_TOKEN_U16;
    x->width = width;
    x->n_sequences = x->n_documents = 1;
    x->n_tokens = n;
    x->offsets = (const uint8_t *)offsets;
    x->documents = (const uint8_t *)documents;
    x->tokens = bin->at + LLMC_HEADER_BYTES;
    return MT_OK;
}

mt_status mt_index_parse(mt_index *x, mt_err *e)
{
    x->tokens = x->bin_file.at;
    MT_TRY(parse_header(x, e));
    MT_TRY(parse_sequences(x, e));
    return parse_documents(x, e);
}

static mt_status open_files(mt_index *x, mt_err *e)
{
    if (access(x->idx_path, F_OK) && !access(x->bin_path, F_OK)) {
        MT_TRY(mt_mapped_open(&x->bin_file, x->bin_path, e));
        if (mt_index_is_llmc(&x->bin_file)) return mt_index_parse_llmc(x, e);
    }
    MT_TRY(mt_mapped_open(&x->idx_file, x->idx_path, e));
    if (!x->bin_file.at) MT_TRY(mt_mapped_open(&x->bin_file, x->bin_path, e));
    return mt_index_parse(x, e);
}

mt_status mt_index_open(mt_index *x, const char *prefix, mt_err *e)
{
    *x = (mt_index){0};
    size_t n = strlen(prefix);
    if (n > 4 && (!strcmp(prefix + n - 4, ".idx") || !strcmp(prefix + n - 4, ".bin"))) n -= 4;
    if (asprintf(&x->idx_path, "%.*s.idx", (int)n, prefix) < 0) x->idx_path = NULL;
    if (asprintf(&x->bin_path, "%.*s.bin", (int)n, prefix) < 0) x->bin_path = NULL;
    mt_status s = x->idx_path && x->bin_path ? open_files(x, e)
                                             : mt_err_set(e, MT_IO, "opening %s: out of memory", prefix);
    if (s != MT_OK) mt_index_close(x);
    return s;
}

void mt_index_close(mt_index *x)
{
    mt_mapped_close(&x->idx_file);
    mt_mapped_close(&x->bin_file);
    free(x->idx_path);
    free(x->bin_path);
    memset(x, 0, sizeof *x);
}

int64_t mt_index_length(const mt_index *x, int64_t s)
{
    return x->lengths ? load_i32(x->lengths, s) : x->n_tokens;
}

int64_t mt_index_document_start(const mt_index *x, int64_t d)
{
    int64_t s = load_i64(x->documents, d);
    return s == x->n_sequences ? x->n_tokens : load_i64(x->offsets, s) / x->width;
}

int64_t mt_index_document_at(const mt_index *x, int64_t p)
{
    int64_t low = 0, high = x->n_documents; /* start(low) <= p < start(high) */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (mt_index_document_start(x, middle) <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t load_token(const mt_index *x, int64_t p)
{
    const uint8_t *at = x->tokens + p * x->width;
    uint16_t u16;
    int16_t i16;
    switch (x->type) {
    case MT_TOKEN_U8: return *at;
    case MT_TOKEN_I8: return (int8_t)*at;
    case MT_TOKEN_I16: memcpy(&i16, at, 2); return i16;
    case MT_TOKEN_U16: memcpy(&u16, at, 2); return u16;
    case MT_TOKEN_I32: return load_i32(at, 0);
    case MT_TOKEN_I64: break;
    }
    return load_i64(at, 0);
}

static mt_status fail_token(const mt_index *x, int64_t p, int64_t vocab, mt_err *e)
{
    int64_t d = mt_index_document_at(x, p);
    MT_FAIL(e, MT_DATA,
            "%s: token id %" PRId64 " at position %" PRId64 " (document %" PRId64 ", its token %" PRId64
            ") is outside the vocabulary of %" PRId64 ": raise model.vocab or pack the data again",
            x->bin_path, load_token(x, p), p, d, p - mt_index_document_start(x, d), vocab);
}

mt_status mt_index_read(const mt_index *x, int32_t *tokens, int64_t p, int64_t n, int64_t vocab, mt_err *e)
{
    MT_ASSERT(p >= 0 && n >= 0 && n <= x->n_tokens - p && vocab <= INT32_MAX);
    if (x->type == MT_TOKEN_U16) { /* the common type, in a loop the compiler can widen */
        const uint8_t *at = x->tokens + 2 * p;
        for (int64_t i = 0; i < n; i++) {
            uint16_t u;
            memcpy(&u, at + 2 * i, 2);
            tokens[i] = u;
        }
        for (int64_t i = 0; i < n; i++)
            if (tokens[i] >= vocab) return fail_token(x, p + i, vocab, e);
        return MT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t id = load_token(x, p + i);
        if (id < 0 || id >= vocab) return fail_token(x, p + i, vocab, e);
        tokens[i] = (int32_t)id;
    }
    return MT_OK;
}
