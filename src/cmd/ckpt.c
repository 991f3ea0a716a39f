#include "ckpt/ckpt.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/reshard.h"
#include "ckpt/source.h"
#include "cmd/ckpt_diff.h"
#include "cmd/ckpt_hf.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"

static const char usage[] =
    "usage: moetitan ckpt ls [--verify] RUN_DIR | show CHECKPOINT | verify CHECKPOINT | "
    "diff CHECKPOINT CHECKPOINT | reshard CHECKPOINT NEW_FOLDER --ranks N | prune RUN_DIR --keep N | "
    "export CHECKPOINT NEW_FOLDER [--dtype f32|bf16] [--shard-bytes N] [--tokenizer FILE ...] | "
    "import FOLDER NEW_CHECKPOINT [--mtp]";

struct request {
    char *const *arg; /* what is not an option */
    bool verify;
    int64_t number; /* of --keep or --ranks; 0: not given */
};

/* The steps of a run that has some. */
static mt_status steps_of(const char *run, int64_t **step, int64_t *n, mt_err *e)
{
    MT_TRY(mt_ckpt_list(run, step, n, e));
    MT_REQUIRE(*n, e, MT_CKPT, "'%s/ckpt' holds no checkpoint; give the run's folder", run);
    return MT_OK;
}

/* With a bar, where there is a terminal. */
static mt_status verify_one(const char *path, struct mt_ckpt_meta *meta, mt_err *e)
{
    struct mt_bar bar;
    mt_bar_open(&bar, "verify");
    mt_status st = mt_ckpt_verify_told(path, meta, &bar.work, e);
    mt_bar_close(&bar);
    return st;
}

static bool list_one(const char *path, bool verify)
{
    struct mt_ckpt_meta meta;
    int64_t bytes;
    mt_err why = {0};
    mt_status st = mt_ckpt_look(path, &meta, &bytes, &why);
    if (st == MT_OK && verify) st = verify_one(path, &meta, &why);
    if (st == MT_OK)
        printf("%s  step %" PRId64 "  %" PRId64 " tokens  %.1f MiB  %s\n", path, meta.step, meta.tokens,
               (double)bytes / (1 << 20), verify ? "valid" : "complete");
    else
        printf("%s  NOT VALID: %s\n", path, why.msg);
    return st == MT_OK;
}

static mt_status list(const struct request *q, mt_err *e)
{
    int64_t *step, n, bad = 0;
    MT_TRY(steps_of(q->arg[0], &step, &n, e));
    for (int64_t i = 0; i < n; i++) {
        char path[MT_CKPT_PATH];
        mt_ckpt_folder(q->arg[0], step[i], path);
        bad += !list_one(path, q->verify);
    }
    free(step);
    MT_REQUIRE(!bad || !q->verify, e, MT_CKPT, "%" PRId64 " of %" PRId64 " checkpoints are not valid", bad,
               n);
    return MT_OK;
}

static mt_status show_tensors(const struct mt_source *s, mt_err *e)
{
    struct mt_stored_list l;
    int64_t tensors = 0, numbers = 0;
    MT_TRY(mt_source_list_all(s, &l, e));
    for (int64_t i = 0; i < l.n; i++) {
        tensors += !i || strcmp(l.x[i - 1].name, l.x[i].name);
        if (strncmp(l.x[i].name, "optim.", 6)) numbers += l.x[i].n * mt_stored_row_bytes(&l.x[i]) / 4;
    }
    free(l.x);
    printf("%s\n  step     %" PRId64 "\n  tokens   %" PRId64
           "\n  format   version %d, written by %d rank%s\n  tensors  %" PRId64
           ", of them parameters and router biases: %" PRId64 " numbers\n",
           s->path, s->manifest.meta.step, s->manifest.meta.tokens, s->manifest.version, s->manifest.world,
           s->manifest.world > 1 ? "s" : "", tensors, numbers);
    return MT_OK;
}

static mt_status show(const struct request *q, mt_err *e)
{
    struct mt_source s;
    struct mt_ckpt_meta meta;
    int64_t bytes;
    MT_TRY(mt_ckpt_look(q->arg[0], &meta, &bytes, e));
    MT_TRY(mt_source_open(&s, q->arg[0], e));
    mt_status st = show_tensors(&s, e);
    for (int64_t i = 0; i < s.manifest.n && st == MT_OK; i++)
        printf("  file     %-24s %12" PRId64 " bytes  %016" PRIx64 "\n", s.manifest.file[i].name,
               s.manifest.file[i].bytes, s.manifest.file[i].xxh3);
    mt_source_close(&s);
    return st;
}

static mt_status verify(const struct request *q, mt_err *e)
{
    struct mt_ckpt_meta meta;
    MT_TRY(verify_one(q->arg[0], &meta, e));
    printf("%s: valid, step %" PRId64 "\n", q->arg[0], meta.step);
    return MT_OK;
}

static mt_status reshard(const struct request *q, mt_err *e)
{
    struct mt_bar bar;
    MT_REQUIRE(q->number, e, MT_CONFIG, "ckpt reshard: say for how many ranks: --ranks N");
    MT_REQUIRE(q->number <= MT_RESHARD_MOST, e, MT_CONFIG,
               "ckpt reshard: --ranks %" PRId64 " is more than %d", q->number, MT_RESHARD_MOST);
    mt_bar_open(&bar, "reshard");
    mt_status st = mt_ckpt_reshard(q->arg[0], q->arg[1], (int)q->number, &bar.work, e);
    mt_bar_close(&bar);
    if (st == MT_OK)
        printf("%s: files of %" PRId64 " rank%s\n", q->arg[1], q->number, q->number > 1 ? "s" : "");
    return st;
}

static mt_status diff(const struct request *q, mt_err *e)
{
    return mt_ckpt_diff(q->arg[0], q->arg[1], e);
}

/* A person who prunes relies on what is kept: all of it is verified first. */
static mt_status check_kept(const char *run, const int64_t *step, int64_t n, int64_t keep, mt_err *e)
{
    for (int64_t i = n - 1, good = 0; i >= 0 && good < keep; i--) {
        char path[MT_CKPT_PATH];
        struct mt_ckpt_meta meta;
        int64_t bytes;
        mt_err why = {0};
        mt_ckpt_folder(run, step[i], path);
        if (mt_ckpt_look(path, &meta, &bytes, &why) != MT_OK) continue;
        mt_status st = verify_one(path, &meta, e);
        if (st != MT_OK)
            mt_err_while(e, "nothing was removed, as a checkpoint to be kept is damaged; remove it first");
        MT_TRY(st);
        good++;
    }
    return MT_OK;
}

static mt_status prune(const struct request *q, mt_err *e)
{
    int64_t *step, n, before;
    MT_REQUIRE(q->number, e, MT_CONFIG, "ckpt prune: say how many to keep: --keep N");
    MT_TRY(steps_of(q->arg[0], &step, &before, e));
    mt_status st = check_kept(q->arg[0], step, before, q->number, e);
    free(step);
    MT_TRY(st);
    MT_TRY(mt_ckpt_prune(q->arg[0], &(struct mt_ckpt_keep){.last = q->number, .step = -1}, e));
    MT_TRY(mt_ckpt_list(q->arg[0], &step, &n, e));
    free(step);
    printf("%" PRId64 " removed, %" PRId64 " left\n", before - n, n);
    return MT_OK;
}

static mt_status read_number(const char *option, const char *text, int64_t *number, mt_err *e)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    MT_REQUIRE(!errno && end != text && !*end && *number >= 1, e, MT_CONFIG,
               "ckpt: %s '%.40s' is not a whole number of 1 or more", option, text);
    return MT_OK;
}

/* Those with words of their own. */
static mt_status (*other_verb(const char *name))(int, char **, mt_err *)
{
    return !strcmp(name, "export") ? mt_cmd_ckpt_export : !strcmp(name, "import") ? mt_cmd_ckpt_import : NULL;
}

mt_status mt_cmd_ckpt(int argc, char **argv, mt_err *e)
{
    static const struct {
        const char *name;
        mt_status (*run)(const struct request *, mt_err *);
        int args;
        char option; /* the one it takes */
    } verb[] = {{"ls", list, 1, 'v'}, {"show", show, 1, 0},         {"verify", verify, 1, 0},
                {"diff", diff, 2, 0}, {"reshard", reshard, 2, 'r'}, {"prune", prune, 1, 'k'}};
    static const struct option option[] = {
        {"verify", 0, NULL, 'v'}, {"keep", 1, NULL, 'k'}, {"ranks", 1, NULL, 'r'}, {NULL, 0, NULL, 0}};
    struct request q = {0};
    size_t v = 0;
    if (argc > 1 && other_verb(argv[1])) return other_verb(argv[1])(argc - 1, argv + 1, e);
    while (argc > 1 && v < sizeof verb / sizeof *verb && strcmp(argv[1], verb[v].name)) v++;
    MT_REQUIRE(argc > 1 && v < sizeof verb / sizeof *verb, e, MT_CONFIG, "%s", usage);
    opterr = 0;
    for (int o; (o = getopt_long(argc - 1, argv + 1, "", option, NULL)) != -1;) {
        MT_REQUIRE(o == verb[v].option, e, MT_CONFIG, "%s", usage);
        if (o == 'v')
            q.verify = true;
        else
            MT_TRY(read_number(o == 'k' ? "--keep" : "--ranks", optarg, &q.number, e));
    }
    MT_REQUIRE(argc - 1 - optind == verb[v].args, e, MT_CONFIG, "%s", usage);
    q.arg = argv + 1 + optind;
    for (int i = 0; i < verb[v].args; i++)
        MT_REQUIRE(strlen(q.arg[i]) + MT_CKPT_ROOM < MT_CKPT_PATH, e, MT_CONFIG,
                   "ckpt: the path is too long: '%.60s...'", q.arg[i]);
    return verb[v].run(&q, e);
}
