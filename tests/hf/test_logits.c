/* test: timeout=120 variants=release,asan,aarch64
 *
 * Models of the transformers library, imported: the same f32 logits and the same loss (tests/oracle/huggingface.py). Of the folders
 * in the arguments, or of tests/golden/huggingface. */
#define GOLDEN_DIR "" /* folders are given by their whole paths */
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "ckpt/file.h"
#include "golden.h"
#include "hf/import.h"
#include "train/generate.h"
#include "train/session.h"

enum { TOKENS = 24, VOCAB = 40 };
#define BOUND 1e-4

struct expected {
    struct golden g;
    const int32_t *tokens;
    const float *logits, *loss;
};

static bool expected_open(struct expected *x, const char *folder)
{
    char path[200];
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    if (!CHECK(golden_open(&x->g, path))) return false;
    x->tokens = golden_i32(&x->g, "tokens", TOKENS);
    x->logits = golden_f32(&x->g, "logits", TOKENS * VOCAB);
    x->loss = golden_f32(&x->g, "loss", 1);
    return CHECK(x->tokens && x->logits && x->loss);
}

static bool ok(mt_status st, const mt_err *e)
{
    if (st != MT_OK) printf("  %s\n", e->msg);
    return CHECK(st == MT_OK);
}

/* A session of one rank with the checkpoint's weights and the oracle's tokens. */
static bool session_open(struct mt_session *s, mt_config *cfg, const char *checkpoint, bool inference,
                         const struct expected *x)
{
    struct mt_ckpt_items items = {0};
    struct mt_ckpt_loaded loaded;
    struct mt_job alone = mt_job_alone(1);
    mt_err e = {0};
    if (!ok(mt_ckpt_config(checkpoint, cfg, &e), &e)) return false;
    cfg->train_dtype = MT_F32;
    cfg->train_seq_len = TOKENS;
    cfg->train_global_batch = 1;
    cfg->train_loss_chunk = 10; /* which does not divide */
    cfg->data_valid_fraction = 0.1;
    if (!ok(mt_session_open(s, cfg, 1, inference, &e), &e)) return false;
    mt_status st = mt_session_items(s, &items, &e);
    if (st == MT_OK) st = mt_ckpt_load(checkpoint, &items, &alone, true, &loaded, &e);
    if (st == MT_OK) st = mt_session_run(s, mt_pack_step, &e);
    mt_ckpt_items_close(&items);
    const struct mt_batch *h = &s->rank[0].model.host;
    const struct mt_ctx *c = &s->rank[0].ctx;
    for (int i = 0; i < TOKENS && st == MT_OK; i++) {
        ((int32_t *)mt_address(c, h->tokens))[i] = x->tokens[i];
        ((int32_t *)mt_address(c, h->labels))[i] = i + 1 < TOKENS ? x->tokens[i + 1] : -1;
        ((int32_t *)mt_address(c, h->begin))[i] = 0;
        ((int32_t *)mt_address(c, h->pos))[i] = i;
    }
    return ok(st, &e);
}

static void check_logits(const char *checkpoint, const struct expected *x)
{
    mt_config cfg;
    struct mt_session s = {0};
    mt_err e = {0};
    bool good = session_open(&s, &cfg, checkpoint, true, x);
    double worst = 0;
    for (int i = 0; i < TOKENS && good; i++) {
        s.rank[0].step.step = i;
        good = ok(mt_session_run(&s, mt_generate_step, &e), &e);
        const float *got = mt_address(&s.rank[0].ctx, s.rank[0].model.chunk_logits);
        for (int v = 0; v < VOCAB && good; v++) {
            double d = fabs((double)got[v] - (double)x->logits[i * VOCAB + v]);
            if (!(d <= worst)) worst = d;
        }
    }
    if (good) CHECK_CLOSE(worst, 0, BOUND);
    mt_session_close(&s);
}

static void check_loss(const char *checkpoint, const struct expected *x)
{
    mt_config cfg;
    struct mt_session s = {0};
    mt_err e = {0};
    if (session_open(&s, &cfg, checkpoint, false, x)) {
        s.rank[0].step.micro = 1;
        if (ok(mt_session_run(&s, mt_eval_step, &e), &e)) {
            CHECK_INT(s.rank[0].step.valid, TOKENS - 1);
            CHECK_CLOSE(s.rank[0].step.loss / (TOKENS - 1), *x->loss, BOUND);
        }
    }
    mt_session_close(&s);
}

static void check_folder(const char *folder)
{
    char dir[] = "/tmp/moetitan-logits-XXXXXX", checkpoint[64], *whole = realpath(folder, NULL);
    struct expected x = {0};
    mt_err e = {0};
    FILE *told = tmpfile();
    if (!CHECK(whole && told && mkdtemp(dir))) return;
    snprintf(checkpoint, sizeof checkpoint, "%s/imported", dir);
    if (expected_open(&x, whole) && ok(mt_hf_import(whole, checkpoint, false, told, NULL, &e), &e)) {
        check_logits(checkpoint, &x);
        check_loss(checkpoint, &x);
        CHECK(mt_remove_folder(checkpoint, NULL, &e) == MT_OK);
    }
    CHECK(!rmdir(dir));
    golden_close(&x.g);
    fclose(told);
    free(whole);
}

#define FAMILY(name)                                     \
    TEST(name)                                           \
    {                                                    \
        check_folder("tests/golden/huggingface/" #name); \
    }
FAMILY(qwen3_moe)
FAMILY(mixtral)
FAMILY(glm4_moe)
FAMILY(qwen3)
FAMILY(qwen2)
FAMILY(llama)
FAMILY(deepseek_v3)
FAMILY(deepseek_v3_plain)
FAMILY(qwen3_window)

static char *const *given;
TEST(given_folder)
{
    check_folder(*given);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        given = &argv[i];
        printf("%s\n", argv[i]);
        RUN(given_folder);
    }
    if (argc > 1) return DONE();
    RUN(qwen3_moe);
    RUN(mixtral);
    RUN(glm4_moe);
    RUN(qwen3);
    RUN(qwen2);
    RUN(llama);
    RUN(deepseek_v3);
    RUN(deepseek_v3_plain);
    RUN(qwen3_window);
    return DONE();
}
