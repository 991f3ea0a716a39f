#include "cmd/cmd.h"

#include "cmd/progress.h"
#include "data/bins.h"
#include "data/index.h"
#include "data/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEE "; see `moetitan data --help`"

static const char usage[] =
    "usage:\n"
    "  moetitan data pack INPUT... -o PREFIX [--document file|line|blank] [--jsonl KEY]\n"
    "                     [--tokenizer tokenizer.json [--specials parse|text] | --bytes] [--eod ID|TOKEN]\n"
    "                     [--threads N] [--pack-length T]\n"
    "      writes PREFIX.idx and PREFIX.bin from text files or JSON lines (*.jsonl, key \"text\"; either "
    "also as *.zst),\n"
    "      a token a byte, or by a byte-level BPE tokenizer of the Hugging Face hub, with N threads (all "
    "cores);\n"
    "      a document is a file, a line or a paragraph; ID or TOKEN is put behind each; with T also writes "
    "PREFIX.pack;\n"
    "      text that spells a special token is that token (parse), or text like any other (text)\n"
    "  moetitan data pack PREFIX.idx --pack-length T\n"
    "      writes PREFIX.pack: the documents of token files packed into samples of T tokens\n"
    "  moetitan data info PREFIX\n"
    "      tokens, documents and how long they are\n"
    "  moetitan data check PREFIX [--vocab V]\n"
    "      reads every token; with V each id must be below it\n";

typedef struct arguments {
    const char *verb, *prefix, *jsonl_key, *document, *tokenizer, *specials, *eod;
    int64_t pack_length, vocab, threads; /* -1: not given */
    bool bytes;
    int n_inputs;
    char **inputs; /* in argv, moved to its front */
} arguments;

static mt_status parse_number(int64_t *out, const char *option, const char *text, int64_t least, mt_err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    MT_REQUIRE(*text && !*end && !errno && v >= least && v <= INT32_MAX, e, MT_CONFIG,
               "data: %s %s: expected a whole number from %" PRId64 " to %d", option, text, least, INT32_MAX);
    *out = v;
    return MT_OK;
}

static mt_status parse_option(arguments *a, const char *option, const char *value, mt_err *e)
{
    if (!strcmp(option, "-o"))
        a->prefix = value;
    else if (!strcmp(option, "--jsonl"))
        a->jsonl_key = value;
    else if (!strcmp(option, "--document"))
        a->document = value;
    else if (!strcmp(option, "--tokenizer"))
        a->tokenizer = value;
    else if (!strcmp(option, "--specials"))
        a->specials = value;
    else if (!strcmp(option, "--eod"))
        a->eod = value;
    else if (!strcmp(option, "--threads"))
        return parse_number(&a->threads, option, value, 1, e);
    else if (!strcmp(option, "--pack-length"))
        return parse_number(&a->pack_length, option, value, 1, e);
    else if (!strcmp(option, "--vocab"))
        return parse_number(&a->vocab, option, value, 1, e);
    else
        MT_FAIL(e, MT_CONFIG, "data %s: unknown option %s" SEE, a->verb, option);
    return MT_OK;
}

static mt_status parse_arguments(arguments *a, int argc, char **argv, mt_err *e)
{
    *a = (arguments){.pack_length = -1, .vocab = -1, .threads = -1, .inputs = argv};
    MT_REQUIRE(argc >= 2, e, MT_CONFIG, "data: expected pack, info or check" SEE);
    a->verb = argv[1];
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--bytes")) {
            a->bytes = true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            MT_REQUIRE(i + 1 < argc, e, MT_CONFIG, "data %s: %s needs a value" SEE, a->verb, argv[i]);
            MT_TRY(parse_option(a, argv[i], argv[i + 1], e));
            i++;
        } else {
            a->inputs[a->n_inputs++] = argv[i];
        }
    }
    return MT_OK;
}

static mt_status refuse_options(const arguments *a, bool only_vocab, mt_err *e)
{
    bool others = a->prefix || a->jsonl_key || a->document || a->tokenizer || a->specials || a->bytes ||
                  a->eod || a->threads >= 0 || a->pack_length >= 0;
    MT_REQUIRE(!others && (only_vocab || a->vocab < 0) && a->n_inputs == 1, e, MT_CONFIG,
               "data %s: expected one PREFIX%s" SEE, a->verb, only_vocab ? " and at most --vocab V" : "");
    return MT_OK;
}

static mt_status report_bins(const mt_index *x, const char *prefix, mt_err *e)
{
    mt_bins b;
    MT_TRY(mt_bins_open(&b, x, prefix, 0, e));
    printf("  packed     %" PRId64 " samples of %" PRId64 " tokens, %.2f%% filled, %" PRId64 " pieces\n",
           b.n_bins, b.seq_len, 100.0 * (double)x->n_tokens / ((double)b.n_bins * (double)b.seq_len),
           b.n_pieces);
    mt_bins_close(&b);
    return MT_OK;
}

static mt_status pack_bins(const char *prefix, int64_t seq_len, mt_err *e)
{
    mt_index x;
    MT_TRY(mt_index_open(&x, prefix, e));
    char *stem = strndup(x.idx_path, strlen(x.idx_path) - 4); /* without .idx */
    mt_status s = stem ? mt_bins_write(&x, stem, seq_len, e)
                       : mt_err_set(e, MT_IO, "data pack: out of memory");
    if (s == MT_OK) s = report_bins(&x, stem, e);
    free(stem);
    mt_index_close(&x);
    return s;
}

static mt_status parse_unit(mt_document_unit *unit, const char *name, mt_err *e)
{
    static const char *const names[] = {"file", "line", "blank"};
    *unit = MT_DOCUMENT_FILE;
    if (!name) return MT_OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) {
            *unit = (mt_document_unit)i;
            return MT_OK;
        }
    MT_FAIL(e, MT_CONFIG, "data pack: --document %s: expected file, line or blank", name);
}

/* --eod: an id, or a token of the tokenizer. */
static mt_status parse_eod(const arguments *a, const mt_tokenizer *t, int64_t *id, mt_err *e)
{
    *id = a->eod && t ? mt_tokenizer_id(t, a->eod) : -1;
    if (!a->eod || *id >= 0) return MT_OK;
    MT_REQUIRE(!t || strspn(a->eod, "0123456789") == strlen(a->eod), e, MT_CONFIG,
               "data pack: --eod %s: %s has no such token, and it is no number", a->eod, a->tokenizer);
    return parse_number(id, "--eod", a->eod, 0, e);
}

static mt_status pack_text(const arguments *a, const mt_tokenizer *tokenizer, mt_text_counts *counts,
                           mt_err *e)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct mt_bar bar;
    mt_text_options o = {.inputs = (const char *const *)a->inputs,
                         .n_inputs = a->n_inputs,
                         .prefix = a->prefix,
                         .jsonl_key = a->jsonl_key,
                         .tokenizer = tokenizer,
                         .specials_are_text = a->specials && !strcmp(a->specials, "text"),
                         .threads = (int)(a->threads > 0           ? a->threads
                                          : tokenizer && cores > 0 ? cores
                                                                   : 1),
                         .progress = &bar.work};
    MT_TRY(parse_eod(a, tokenizer, &o.eod, e));
    MT_TRY(parse_unit(&o.unit, a->document, e));
    mt_bar_open(&bar, "pack");
    mt_status st = mt_text_pack(&o, counts, e);
    mt_bar_close(&bar);
    return st;
}

static mt_status check_pack(const arguments *a, mt_err *e)
{
    MT_REQUIRE(a->prefix && *a->prefix, e, MT_CONFIG, "data pack: -o PREFIX names the files to write" SEE);
    MT_REQUIRE(!a->bytes || !a->tokenizer, e, MT_CONFIG, "data pack: --bytes or --tokenizer, not both");
    MT_REQUIRE(!a->specials || a->tokenizer, e, MT_CONFIG, "data pack: --specials is for --tokenizer");
    MT_REQUIRE(!a->specials || !strcmp(a->specials, "parse") || !strcmp(a->specials, "text"), e, MT_CONFIG,
               "data pack: --specials %s: expected parse or text", a->specials);
    MT_REQUIRE(a->threads <= 1024, e, MT_CONFIG, "data pack: --threads %" PRId64 ": more than 1024",
               a->threads);
    return MT_OK;
}

static mt_status run_pack(const arguments *a, mt_err *e)
{
    MT_REQUIRE(a->n_inputs && a->vocab < 0, e, MT_CONFIG, "data pack: expected INPUT... -o PREFIX" SEE);
    size_t n = strlen(a->inputs[0]);
    bool text_options = a->prefix || a->jsonl_key || a->document || a->tokenizer || a->bytes || a->eod ||
                        a->threads > 0;
    if (a->n_inputs == 1 && !text_options && a->pack_length > 0 && n > 4 &&
        !strcmp(a->inputs[0] + n - 4, ".idx"))
        return pack_bins(a->inputs[0], a->pack_length, e);
    MT_TRY(check_pack(a, e));
    mt_text_counts counts;
    mt_tokenizer *tokenizer = NULL;
    if (a->tokenizer) MT_TRY(mt_tokenizer_open(&tokenizer, a->tokenizer, e));
    mt_status st = pack_text(a, tokenizer, &counts, e);
    mt_tokenizer_close(tokenizer);
    MT_TRY(st);
    printf("%s: %" PRId64 " tokens in %" PRId64 " documents, vocabulary %" PRId64, a->prefix, counts.tokens,
           counts.documents, counts.vocab);
    if (tokenizer) printf(", %.2f bytes a token", (double)counts.bytes / (double)counts.tokens);
    if (counts.empty) printf(", %" PRId64 " empty documents left out", counts.empty);
    printf("\n");
    return a->pack_length > 0 ? pack_bins(a->prefix, a->pack_length, e) : MT_OK;
}

static int compare_lengths(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static mt_status report_lengths(const mt_index *x, mt_err *e)
{
    int64_t n = x->n_documents, *length = malloc((size_t)n * sizeof *length);
    MT_REQUIRE(length, e, MT_IO, "data info: no memory for %" PRId64 " lengths", n);
    for (int64_t d = 0; d < n; d++)
        length[d] = mt_index_document_start(x, d + 1) - mt_index_document_start(x, d);
    qsort(length, (size_t)n, sizeof *length, compare_lengths);
    printf("  lengths    least %" PRId64 ", 10%% %" PRId64 ", median %" PRId64 ", 90%% %" PRId64
           ", most %" PRId64 ", mean %.1f tokens\n",
           length[0], length[(n - 1) / 10], length[(n - 1) / 2], length[(n - 1) - (n - 1) / 10],
           length[n - 1], (double)x->n_tokens / (double)n);
    free(length);
    return MT_OK;
}

static mt_status report_pack_file(const mt_index *x, const char *prefix, mt_err *e)
{
    char *path;
    MT_REQUIRE(asprintf(&path, "%.*s.pack", (int)strlen(x->idx_path) - 4, x->idx_path) >= 0, e, MT_IO,
               "data: out of memory");
    bool there = !access(path, F_OK);
    free(path);
    return there ? report_bins(x, prefix, e) : MT_OK;
}

static mt_status run_info(const mt_index *x, const char *prefix, mt_err *e)
{
    printf("%s\n", x->idx_path);
    printf("  tokens     %" PRId64 " of type %s, %" PRId64 " bytes\n", x->n_tokens,
           mt_token_type_name(x->type), x->bin_file.bytes);
    printf("  documents  %" PRId64 " in %" PRId64 " sequences\n", x->n_documents, x->n_sequences);
    MT_TRY(report_lengths(x, e));
    return report_pack_file(x, prefix, e);
}

/* Reads every token as training would, so that a wrong one is named. */
static mt_status run_check(const mt_index *x, const char *prefix, int64_t vocab, mt_err *e)
{
    enum { CHUNK = 4096 };
    int32_t tokens[CHUNK], least = INT32_MAX, most = 0;
    for (int64_t p = 0; p < x->n_tokens; p += CHUNK) {
        int64_t n = x->n_tokens - p < CHUNK ? x->n_tokens - p : CHUNK;
        MT_TRY(mt_index_read(x, tokens, p, n, vocab > 0 ? vocab : INT32_MAX, e));
        for (int64_t i = 0; i < n; i++) {
            if (tokens[i] < least) least = tokens[i];
            if (tokens[i] > most) most = tokens[i];
        }
    }
    printf("%s: %" PRId64 " tokens in %" PRId64 " documents, ids %d to %d%s\n", x->idx_path, x->n_tokens,
           x->n_documents, least, most, vocab > 0 ? ", all in the vocabulary" : "");
    return report_pack_file(x, prefix, e);
}

static mt_status run_verb(const arguments *a, mt_err *e)
{
    if (!strcmp(a->verb, "pack")) return run_pack(a, e);
    bool info = !strcmp(a->verb, "info"), check = !strcmp(a->verb, "check");
    MT_REQUIRE(info || check, e, MT_CONFIG, "data: unknown command %s" SEE, a->verb);
    MT_TRY(refuse_options(a, check, e));
    mt_index x;
    MT_TRY(mt_index_open(&x, a->inputs[0], e));
    mt_status s = info ? run_info(&x, a->inputs[0], e) : run_check(&x, a->inputs[0], a->vocab, e);
    mt_index_close(&x);
    return s;
}

/* data pack|info|check ... */
mt_status mt_cmd_data(int argc, char **argv, mt_err *e)
{
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(usage, stdout);
        return MT_OK;
    }
    arguments a;
    MT_TRY(parse_arguments(&a, argc, argv, e));
    MT_TRY(run_verb(&a, e));
    MT_REQUIRE(!fflush(stdout), e, MT_IO, "data %s: cannot write to standard output: %s", a.verb,
               strerror(errno));
    return MT_OK;
}
