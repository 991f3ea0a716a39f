#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "cmd/ckpt_hf.h"
#include "cmd/progress.h"
#include "config/value.h"
#include "hf/export.h"
#include "hf/tokenizer.h"

static const char usage[] = "usage: moetitan ckpt export CHECKPOINT NEW_FOLDER [--dtype f32|bf16] "
                            "[--shard-bytes N] [--tokenizer FILE ... | --no-tokenizer]";

struct request {
    const char *dtype; /* NULL: not given */
    struct mt_hf_export how;
    const char *tokenizer[MT_HF_TOKENIZER_FILES]; /* files that were named, or else */
    struct mt_hf_tokenizer known;                 /* of data.tokenizer */
    bool no_tokenizer;
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
                                           {"no-tokenizer", 0, NULL, 'n'},
                                           {NULL, 0, NULL, 0}};
    opterr = 0;
    optind = 1;
    for (int o; (o = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        if (o == 'd')
            q->dtype = optarg;
        else if (o == 's')
            MT_TRY(read_bytes(optarg, &q->how.shard_bytes, e));
        else if (o == 't' && q->how.n_tokenizer < MT_HF_TOKENIZER_FILES)
            q->tokenizer[q->how.n_tokenizer++] = optarg;
        else if (o == 'n')
            q->no_tokenizer = true;
        else
            MT_FAIL(e, MT_CONFIG, "%s", usage);
    }
    MT_REQUIRE(argc - optind == 2 && !(q->no_tokenizer && q->how.n_tokenizer) &&
                   (!q->dtype || !strcmp(q->dtype, "f32") || !strcmp(q->dtype, "bf16")),
               e, MT_CONFIG, "%s", usage);
    return MT_OK;
}

static mt_status known_tokenizer(struct request *q, const char *folder, mt_err *e)
{
    mt_status st = mt_hf_tokenizer_find(&q->known, folder, e);
    if (st != MT_OK)
        mt_err_while(e, "taking data.tokenizer of the checkpoint (--tokenizer names other files, "
                        "--no-tokenizer leaves them out)");
    MT_TRY(st);
    for (int i = 0; i < q->known.n; i++) q->tokenizer[i] = q->known.path[i];
    q->how.n_tokenizer = q->known.n;
    return MT_OK;
}

/* What is not said is as the run had it: the dtype that its weights worked in, its tokenizer. */
static mt_status as_the_run(struct request *q, const char *checkpoint, mt_err *e)
{
    static mt_config const zero;
    mt_config c = zero;
    bool files = !q->how.n_tokenizer && !q->no_tokenizer;
    q->how.bf16 = q->dtype && !strcmp(q->dtype, "bf16");
    if (q->dtype && !files) return MT_OK;
    MT_TRY(mt_ckpt_config(checkpoint, &c, e));
    if (!q->dtype) q->how.bf16 = c.train_dtype == MT_BF16;
    return files && c.data_tokenizer[0] ? known_tokenizer(q, c.data_tokenizer, e) : MT_OK;
}

mt_status mt_cmd_ckpt_export(int argc, char **argv, mt_err *e)
{
    struct request q = {.how.shard_bytes = INT64_C(5) << 30};
    struct mt_bar bar;
    int files = 0;
    MT_TRY(read_options(argc, argv, &q, e));
    char *const *arg = argv + optind;
    MT_TRY(as_the_run(&q, arg[0], e));
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
