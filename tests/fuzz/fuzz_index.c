/* fuzz_index.c: bytes as a token index and as a packing index. Whatever they are, validation must refuse them
 * or leave an index every entry of which can be read.
 *
 * Input: a byte w, then the index; the .bin is as long as w says, or as the index claims when w is 0.
 * Under MT_FUZZ_MAIN a plain program: runs the files it is given, or a built-in sound index, and fixed
 * mutations. */
#include "data/bins.h"
#include "data/index.h"
#include "data/sample.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BIN_BYTES = 4096, SEQ_LEN = 16, VOCAB = 70000 };

/* Bytes that the index says the .bin has: the end of its last sequence. */
static int64_t claimed_bytes(const uint8_t *idx, int64_t n)
{
    int64_t sequences, offset;
    int32_t length;
    if (n < MT_INDEX_HEADER_BYTES) return 0;
    memcpy(&sequences, idx + 18, 8);
    if (sequences < 1 || sequences > (n - MT_INDEX_HEADER_BYTES) / 12) return 0;
    memcpy(&length, idx + MT_INDEX_HEADER_BYTES + 4 * (sequences - 1), 4);
    memcpy(&offset, idx + MT_INDEX_HEADER_BYTES + 4 * sequences + 8 * (sequences - 1), 8);
    int64_t width = idx[17] == 1 || idx[17] == 2 ? 1 : idx[17] == 4 ? 4 : idx[17] == 5 ? 8 : 2;
    return length < 0 || offset < 0 || offset > BIN_BYTES ? 0 : offset + length * width;
}

static void read_samples(const mt_index *x, const mt_bins *bins)
{
    mt_sample_rules rules = {
        .seq_len = SEQ_LEN, .vocab = VOCAB, .eod = 3, .document_mask = true, .reset_positions = true};
    mt_split train, valid;
    mt_err e = {0};
    int32_t out[4][SEQ_LEN];
    mt_sample to = {out[0], out[1], out[2], out[3]};
    int64_t labels = 0;
    if (mt_split_cut(&train, &valid, x, bins, &rules, 0.25, &e) != MT_OK) return;
    for (int64_t u = 0; u < train.count; u++)
        if (mt_sample_fill(&train, &rules, &to, &labels, u, 0, &e) == MT_OK)
            for (int i = 0; i < SEQ_LEN; i++)
                if (out[2][i] < 0 || out[2][i] > i || out[1][i] >= VOCAB || out[3][i] < 0) abort();
}

static void try_index(const uint8_t *idx, int64_t n, int64_t bin_bytes)
{
    static char name[] = "fuzz";
    uint8_t bin[BIN_BYTES] = {0};
    mt_err e = {0};
    if (bin_bytes > BIN_BYTES) bin_bytes = BIN_BYTES;
    mt_index x = {.idx_path = name,
                  .bin_path = name,
                  .idx_file = {.at = idx, .bytes = n},
                  .bin_file = {.at = bin, .bytes = bin_bytes}};
    if (mt_index_parse(&x, &e) != MT_OK) {
        if (!e.msg[0] || strchr(e.msg, '\n')) abort();
        return;
    }
    int64_t total = 0;
    for (int64_t s = 0; s < x.n_sequences; s++) total += mt_index_length(&x, s);
    if (total != x.n_tokens || total * x.width != bin_bytes) abort();
    for (int64_t p = 0; p < x.n_tokens; p++) {
        int64_t d = mt_index_document_at(&x, p);
        if (mt_index_document_start(&x, d) > p || mt_index_document_start(&x, d + 1) <= p) abort();
    }
    read_samples(&x, NULL);
}

static void try_bins(const uint8_t *data, int64_t n)
{
    static char name[] = "fuzz";
    static const int64_t documents[] = {0, 1, 2};
    static const int32_t lengths[] = {40, 24};
    static const int64_t offsets[] = {0, 80};
    uint8_t bin[128] = {0}, *aligned = aligned_alloc(8, (size_t)(n + 7) / 8 * 8 + 8);
    if (!aligned) abort();
    memcpy(aligned, data, (size_t)n);
    mt_index x = {.idx_path = name,
                  .bin_path = name,
                  .bin_file = {.at = bin, .bytes = 128},
                  .type = MT_TOKEN_U16,
                  .width = 2,
                  .n_sequences = 2,
                  .n_documents = 2,
                  .n_tokens = 64,
                  .lengths = (const uint8_t *)lengths,
                  .offsets = (const uint8_t *)offsets,
                  .documents = (const uint8_t *)documents,
                  .tokens = bin};
    mt_bins b = {.path = name, .file = {.at = aligned, .bytes = n}};
    mt_err e = {0};
    if (mt_bins_parse(&b, &x, SEQ_LEN, &e) == MT_OK)
        read_samples(&x, &b);
    else if (!e.msg[0])
        abort();
    free(aligned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    int64_t n = (int64_t)size - 1;
    try_index(data + 1, n, data[0] ? data[0] * 2 : claimed_bytes(data + 1, n));
    try_bins(data + 1, n);
    return 0;
}

#ifdef MT_FUZZ_MAIN
enum { MUTATIONS = 20000, ROOM = 1 << 16 };

/* A sound index of 3 documents in 4 sequences, or a sound packing index of try_bins's corpus. */
static int64_t built_in(uint8_t *to, int which)
{
    static const int64_t bins[] = {0, 1, SEQ_LEN, 5, 5, 64, 2, 0, 1, 2, 3, 4, 5, 0, 16, 40, 32, 56};
    static const int32_t pieces[] = {16, 16, 16, 8, 8}, lengths[] = {30, 20, 0, 14};
    static const int64_t offsets[] = {0, 60, 100, 100}, documents[] = {0, 2, 3, 4}, counts[] = {4, 4};
    uint8_t *at = to;
    *at++ = 0;
    if (which) {
        memcpy(at, bins, sizeof bins);
        memcpy(at, MT_BINS_MAGIC, 8);
        memcpy(at + sizeof bins, pieces, sizeof pieces);
        return 1 + (int64_t)(sizeof bins + sizeof pieces);
    }
    memset(at, 0, MT_INDEX_HEADER_BYTES);
    memcpy(at, MT_INDEX_MAGIC, 9);
    at[9] = 1;
    at[17] = 8;
    memcpy(at + 18, counts, sizeof counts);
    at += MT_INDEX_HEADER_BYTES;
    memcpy(at, lengths, sizeof lengths);
    memcpy(at + sizeof lengths, offsets, sizeof offsets);
    memcpy(at + sizeof lengths + sizeof offsets, documents, sizeof documents);
    return at - to + (int64_t)(sizeof lengths + sizeof offsets + sizeof documents);
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Runs `sound`, then copies of it with a few bytes or a whole field changed, or cut. */
static void run_mutations(const uint8_t *sound, int64_t n)
{
    static const int64_t edges[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_MAX / 12 + 1};
    uint64_t state = 1;
    LLVMFuzzerTestOneInput(sound, (size_t)n);
    for (int m = 0; m < MUTATIONS && n > 9; m++) {
        int64_t size = draw(&state) % 8 ? n : (int64_t)draw(&state) % n;
        uint8_t *copy = malloc((size_t)n); /* of exact size, for the address sanitizer */
        if (!copy) abort();
        memcpy(copy, sound, (size_t)n);
        for (uint64_t k = draw(&state) % 3 + 1; k; k--) {
            int64_t at = (int64_t)(draw(&state) % (uint64_t)(n - 8));
            if (draw(&state) % 2)
                memcpy(copy + at, &edges[draw(&state) % 8], draw(&state) % 2 ? 8 : 4);
            else
                copy[at] ^= (uint8_t)(1u << draw(&state) % 8);
        }
        LLVMFuzzerTestOneInput(copy, (size_t)size);
        free(copy);
    }
}

int main(int argc, char **argv)
{
    static uint8_t data[ROOM];
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            fprintf(stderr, "%s: cannot open\n", argv[i]);
            return 1;
        }
        int64_t n = (int64_t)fread(data, 1, sizeof data, f);
        fclose(f);
        run_mutations(data, n);
    }
    for (int which = 0; which < 2; which++) run_mutations(data, built_in(data, which));
    printf("%d passed, 0 failed\n", argc + 1);
    return 0;
}
#endif
