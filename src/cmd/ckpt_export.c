#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "cmd/ckpt_hf.h"
#include "cmd/progress.h"
#include "config/value.h"
#include "hf/export.h"

enum { TOKENIZER_FILES = 16 };

static const char usage[] = "usage: moetitan ckpt export CHECKPOINT NEW_FOLDER [--dtype f32|bf16] "
                            "[--shard-bytes N] [--tokenizer FILE ...]";

struct request {
    const char *dtype; /* NULL: not given */
    struct mt_hf_export how;
    const char *tokenizer[TOKENIZER_FILES];
};

static mt_status read_bytes(const char *text, int64_t *bytes, mt_err *e)
{
    static const mt_option o = {
        .key = "--shard-bytes", .limit = "[1, 1PiB]", .type = MT_VALUE_BYTES, .size = sizeof *bytes};
    char why[MT_VALUE_WHY];
    MT_REQUIRE(mt_value_set(&o, bytes, text, why), e, MT_CONFIG, "ckpt export: --shard-bytes %.40s: %s", text,
               why);
    return MT_OK;
}

static mt_status read_options(int argc, char **argv, struct request *q, mt_err *e)
{
    static const struct option option[] = {{"dtype", 1, NULL, 'd'},
                                           {"shard-bytes", 1, NULL, 's'},
                                           {"tokenizer", 1, NULL, 't'},
                                           {NULL, 0, NULL, 0}};
    opterr = 0;
    optind = 1;
    for (int o; (o = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        if (o == 'd')
            q->dtype = optarg;
        else if (o == 's')
            MT_TRY(read_bytes(optarg, &q->how.shard_bytes, e));
        else if (o == 't' && q->how.n_tokenizer < TOKENIZER_FILES)
            q->tokenizer[q->how.n_tokenizer++] = optarg;
        else
            MT_FAIL(e, MT_CONFIG, "%s", usage);
    }
    MT_REQUIRE(argc - optind == 2 && (!q->dtype || !strcmp(q->dtype, "f32") || !strcmp(q->dtype, "bf16")), e,
               MT_CONFIG, "%s", usage);
    return MT_OK;
}

/* What is not said is the dtype that the run's weights worked in. */
static mt_status is_bf16(const char *checkpoint, const char *dtype, bool *bf16, mt_err *e)
{
    static mt_config const zero;
    mt_config c = zero;
    *bf16 = dtype && !strcmp(dtype, "bf16");
    if (dtype) return MT_OK;
    MT_TRY(mt_ckpt_config(checkpoint, &c, e));
    *bf16 = c.train_dtype == MT_BF16;
    return MT_OK;
}

mt_status mt_cmd_ckpt_export(int argc, char **argv, mt_err *e)
{
    struct request q = {.how.shard_bytes = INT64_C(5) << 30};
    struct mt_bar bar;
    int files = 0;
    MT_TRY(read_options(argc, argv, &q, e));
    char *const *arg = argv + optind;
    MT_TRY(is_bf16(arg[0], q.dtype, &q.how.bf16, e));
    mt_bar_open(&bar, "export");
    q.how.tokenizer = q.tokenizer;
    q.how.progress = &bar.work;
    q.how.told = stdout;
    mt_status st = mt_hf_export(arg[0], arg[1], &q.how, &files, e);
    mt_bar_close(&bar);
    if (st == MT_OK)
        printf("%s: %d file%s of weights, %s\n", arg[1], files, files > 1 ? "s" : "",
               q.how.bf16 ? "bf16" : "f32");
    return st;
}
