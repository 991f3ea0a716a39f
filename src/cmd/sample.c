#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "ckpt/ckpt.h"
#include "cmd/cmd.h"
#include "train/generate.h"
#include "train/session.h"

struct request {
    const char *prompt;
    int64_t tokens, top_k;
    double temperature;
    uint64_t seed;
};

/* A checkpoint's folder as given, or the newest valid one of a run's. */
static mt_status find(const char *arg, char path[MT_CKPT_PATH], mt_err *e)
{
    char manifest[MT_CKPT_PATH + 32];
    struct stat st;
    MT_REQUIRE(strlen(arg) + 32 < MT_CKPT_PATH, e, MT_CONFIG,
               "the path of the checkpoint is too long: '%.60s...'", arg);
    snprintf(path, MT_CKPT_PATH, "%s", arg);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", arg);
    if (!stat(manifest, &st)) return MT_OK;
    MT_TRY(mt_ckpt_newest(arg, path, e));
    MT_REQUIRE(path[0], e, MT_CKPT,
               "'%s' is neither a checkpoint nor the folder of a run that has a valid one", arg);
    return MT_OK;
}

static void window(struct mt_session *s, const int32_t *text, int64_t n)
{
    const struct mt_batch *h = &s->rank[0].model.host;
    int64_t S = s->rank[0].model.shape.S, used = n < S ? n : S;
    int32_t *tok = mt_address(&s->rank[0].ctx, h->tokens), *begin = mt_address(&s->rank[0].ctx, h->begin),
            *pos = mt_address(&s->rank[0].ctx, h->pos);
    for (int64_t i = 0; i < S;
         i++) { /* behind the text: a document a token, which costs nothing and is seen by none */
        tok[i] = i < used ? text[n - used + i] : 0;
        begin[i] = i < used ? 0 : (int32_t)i;
        pos[i] = i < used ? (int32_t)i : 0;
    }
    s->rank[0].step.step = used - 1;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* A token by softmax(logits / temperature) over the top_k best; temperature 0: the best. */
static int32_t choose(const float *logits, float *sorted, int64_t V, const struct request *q, int64_t index)
{
    memcpy(sorted, logits, (size_t)V * sizeof *sorted);
    qsort(sorted, (size_t)V, sizeof *sorted, descending);
    float least = sorted[q->top_k > 0 && q->top_k < V && q->temperature > 0 ? q->top_k - 1
                         : q->temperature > 0                               ? V - 1
                                                                            : 0];
    double t = q->temperature > 0 ? q->temperature : 1, sum = 0, at = 0;
    for (int64_t i = 0; i < V; i++)
        if (logits[i] >= least) sum += exp(((double)logits[i] - (double)sorted[0]) / t);
    uint32_t r[4];
    mt_philox4x32(r, (uint32_t[]){(uint32_t)index, 0, 0, 0},
                  (uint32_t[]){(uint32_t)q->seed, (uint32_t)(q->seed >> 32)});
    double want = ((double)r[0] + 0.5) * 0x1p-32 * sum;
    int32_t last = 0;
    for (int64_t i = 0; i < V; i++) {
        if (!(logits[i] >= least)) continue;
        last = (int32_t)i;
        at += exp(((double)logits[i] - (double)sorted[0]) / t);
        if (at >= want) break;
    }
    return last;
}

static void print_token(int32_t token, bool bytes)
{
    if (!bytes)
        printf("%d ", token);
    else if (token < 256)
        putchar(token);
    fflush(stdout);
}

/* A prompt is its bytes, as `data pack` makes tokens; a smaller vocabulary may not have them all. */
static mt_status check_prompt(const char *prompt, int64_t V, mt_err *e)
{
    for (const char *p = prompt; *p; p++)
        MT_REQUIRE((unsigned char)*p < V, e, MT_CONFIG,
                   "sample: byte %d of the prompt is token %d, and the model's vocabulary has %lld",
                   (int)(p - prompt) + 1, (unsigned char)*p, (long long)V);
    return MT_OK;
}

static mt_status generate(struct mt_session *s, const struct request *q, mt_err *e)
{
    int64_t V = s->rank[0].model.shape.V, n = (int64_t)strlen(q->prompt);
    MT_TRY(check_prompt(q->prompt, V, e));
    bool bytes = V >= 256 && V <= 512; /* the byte tokenizer: 256 ids and a few special ones */
    int32_t *text = malloc((size_t)(n + q->tokens) * sizeof *text);
    float *sorted = malloc((size_t)V * sizeof *sorted);
    mt_status st = text && sorted
                       ? MT_OK
                       : mt_err_set(e, MT_IO, "no memory for %lld tokens", (long long)(n + q->tokens));
    for (int64_t i = 0; i < n && st == MT_OK; i++) {
        text[i] = (unsigned char)q->prompt[i];
        print_token(text[i], bytes);
    }
    for (int64_t i = 0; i < q->tokens && st == MT_OK; i++, n++) {
        window(s, text, n);
        st = mt_session_run(s, mt_generate_step, e);
        if (st != MT_OK) break;
        text[n] = choose(mt_address(&s->rank[0].ctx, s->rank[0].model.chunk_logits), sorted, V, q, i);
        print_token(text[n], bytes);
    }
    printf("\n");
    free(text);
    free(sorted);
    return st;
}

static mt_status sample(const char *arg, const struct request *q, mt_err *e)
{
    static mt_config const zero;
    char path[MT_CKPT_PATH];
    mt_config cfg = zero;
    struct mt_session s = {0};
    struct mt_ckpt_items items = {0};
    struct mt_ckpt_loaded loaded;
    struct mt_job alone = mt_job_alone(1);
    MT_TRY(find(arg, path, e));
    MT_TRY(mt_ckpt_config(path, &cfg, e));
    cfg.train_micro_batch = 1;
    cfg.mesh_ep = 1; /* one rank has all experts */
    cfg.device_isa = MT_DEVICE_ISA_AUTO;
    cfg.device_type = MT_DEVICE_TYPE_CPU;
    mt_status st = mt_session_open(&s, &cfg, 1, true, e);
    if (st == MT_OK) st = mt_session_items(&s, &items, e);
    if (st == MT_OK) st = mt_ckpt_load(path, &items, &alone, true, &loaded, e);
    if (st == MT_OK) st = mt_session_run(&s, mt_pack_step, e);
    if (st == MT_OK) {
        fprintf(stderr, "from %s, step %lld:\n", path, (long long)loaded.meta.step);
        st = generate(&s, q, e);
    }
    mt_ckpt_items_close(&items);
    mt_session_close(&s);
    return st;
}

static bool number(const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return !errno && end != text && !*end && isfinite(*out) && *out >= 0;
}

mt_status mt_cmd_sample(int argc, char **argv, mt_err *e)
{
    static const struct option option[] = {{"prompt", 1, NULL, 'p'},      {"tokens", 1, NULL, 'n'},
                                           {"temperature", 1, NULL, 't'}, {"top-k", 1, NULL, 'k'},
                                           {"seed", 1, NULL, 's'},        {NULL, 0, NULL, 0}};
    struct request q = {
        .prompt = "In the beginning ", .tokens = 200, .temperature = 0.8, .top_k = 40, .seed = 1};
    opterr = 0;
    for (int o; (o = getopt_long(argc, argv, "p:n:t:k:s:", option, NULL)) != -1;) {
        double v = 0;
        MT_REQUIRE(o != '?', e, MT_CONFIG,
                   "usage: moetitan sample CHECKPOINT|RUN_DIR [--prompt TEXT] [--tokens N] [--temperature T] "
                   "[--top-k K] [--seed S]");
        if (o == 'p')
            q.prompt = optarg;
        else
            MT_REQUIRE(number(optarg, &v) && v <= 1e15, e, MT_CONFIG,
                       "sample: '%s' is not a number that can be used here", optarg);
        if (o == 'n') q.tokens = (int64_t)v;
        if (o == 't') q.temperature = v;
        if (o == 'k') q.top_k = (int64_t)v;
        if (o == 's') q.seed = (uint64_t)v;
    }
    MT_REQUIRE(optind == argc - 1, e, MT_CONFIG,
               "usage: moetitan sample CHECKPOINT|RUN_DIR [--prompt TEXT] [--tokens N] [--temperature T] "
               "[--top-k K] [--seed S]");
    MT_REQUIRE(q.prompt[0], e, MT_CONFIG, "sample: the prompt is empty; give at least one byte");
    return sample(argv[optind], &q, e);
}
