/* test: timeout=60 variants=release,asan */
/* Files that megatron-core wrote, and the blends it built, against what it reads from them (tests/oracle/megatron_files.py). */
#include "data/corpus.h"
#include "files.h"
#include "golden.h"

enum { MOST = 512, PARTS = 200, VOCAB = 200000 };

static const int32_t *part_of(const struct golden *g, const char *file, const char *what, int64_t *n)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%s", file, what);
    const struct golden_tensor *t = golden_find(g, name);
    *n = t ? t->n : 0;
    return t && !strcmp(t->dtype, "I32") ? t->data : NULL;
}

/* ---- files ---- */
static void content(const struct golden *g, const char *file, const mt_index *x)
{
    int64_t n_tokens, n_lengths, n_starts;
    int32_t got[MOST];
    mt_err e = {0};
    const int32_t *tokens = part_of(g, file, "tokens", &n_tokens),
                  *lengths = part_of(g, file, "lengths", &n_lengths),
                  *starts = part_of(g, file, "starts", &n_starts);
    if (!CHECK(tokens && lengths && starts && n_tokens <= MOST)) return;
    CHECK_INT(x->n_tokens, n_tokens);
    CHECK_INT(x->n_sequences, n_lengths);
    if (!CHECK_INT(x->n_documents, n_starts - 1)) return;
    for (int64_t s = 0; s < n_lengths; s++) CHECK_INT(mt_index_length(x, s), lengths[s]);
    for (int64_t d = 0; d < n_starts; d++) CHECK_INT(mt_index_document_start(x, d), starts[d]);
    if (CHECK_INT(mt_index_read(x, got, 0, n_tokens, VOCAB, &e), MT_OK))
        CHECK(!memcmp(got, tokens, (size_t)n_tokens * sizeof *got));
}

/* Windows in order are GPTDataset's samples in order; where we have no label, the token ends a document. */
static void samples(const struct golden *g, const char *file, const mt_index *x)
{
    const int64_t seq_len = golden_meta_int(g, "seq_len");
    mt_sample_rules rules = {.seq_len = seq_len, .vocab = VOCAB, .eod = -1};
    mt_split train, valid;
    mt_err e = {0};
    int32_t out[4][MOST];
    const mt_sample to = {out[0], out[1], out[2], out[3]};
    int64_t n, n_labels, all = 0, without = 0;
    const int32_t *inputs = part_of(g, file, "inputs", &n), *labels = part_of(g, file, "labels", &n_labels);
    if (!inputs) return; /* not made of this file */
    if (!CHECK(labels && seq_len > 0 && seq_len <= MOST && n_labels == n)) return;
    if (!CHECK_INT(mt_split_cut(&train, &valid, x, NULL, &rules, 0, &e), MT_OK)) return;
    CHECK_INT(train.count, n / seq_len);
    for (int64_t u = 0; u < train.count; u++) {
        if (!CHECK_INT(mt_sample_fill(&train, &rules, &to, &all, u, 0, &e), MT_OK)) return;
        CHECK(!memcmp(out[0], inputs + u * seq_len, (size_t)seq_len * sizeof **out));
        for (int64_t i = 0; i < seq_len; i++) {
            int64_t p = u * seq_len + i, d = mt_index_document_at(x, p);
            bool last = mt_index_document_start(x, d + 1) == p + 1;
            CHECK_INT(out[1][i], last ? -1 : labels[p]);
            without += last;
        }
    }
    CHECK(without > 0 && all == n - without);
}

TEST(files_it_wrote)
{
    static const char *const file[] = {"items", "wide", "bytes", "long", "documents", "modes", "merged"};
    struct golden g;
    if (!CHECK(golden_open(&g, "megatron.safetensors"))) return;
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char prefix[128];
        mt_index x;
        mt_err e = {0};
        snprintf(prefix, sizeof prefix, GOLDEN_DIR "/megatron/%s", file[i]);
        if (!CHECK_INT(mt_index_open(&x, prefix, &e), MT_OK)) {
            printf("  %s\n", e.msg);
            continue;
        }
        content(&g, file[i], &x);
        samples(&g, file[i], &x);
        mt_index_close(&x);
    }
    golden_close(&g);
}

/* ---- blends ---- */
static int numbers(const char *text, double *to)
{
    int n = 0;
    for (char *end; text && n < PARTS; text = end, n++) {
        to[n] = strtod(text, &end);
        if (end == text) break;
    }
    return n;
}
TEST(blends_it_built)
{
    static const char *const name[] = {"two",    "three", "small", "equal",
                                       "thirds", "many",  "files", "files_many"};
    struct golden g;
    if (!CHECK(golden_open(&g, "megatron.safetensors"))) return;
    for (size_t k = 0; k < sizeof name / sizeof *name; k++) {
        double weight[PARTS];
        int64_t n, within, wrong = 0;
        mt_blend b;
        mt_err e = {0};
        const int parts = numbers(golden_meta(&g, name[k]), weight);
        const int32_t *source = part_of(&g, "blend", name[k], &n);
        if (!CHECK(parts > 1 && source)) continue;
        n /= 2;
        CHECK_INT(mt_blend_open(&b, parts, weight, !strncmp(name[k], "files", 5), n, &e), MT_OK);
        for (int64_t s = 0; s < n; s++)
            wrong += mt_blend_at(&b, s, &within) != source[s] || within != source[n + s];
        if (!CHECK_INT(wrong, 0)) printf("  %s: of %lld samples\n", name[k], (long long)n);
        mt_blend_close(&b);
    }
    golden_close(&g);
}

int main(void)
{
    RUN(files_it_wrote);
    RUN(blends_it_built);
    return DONE();
}
