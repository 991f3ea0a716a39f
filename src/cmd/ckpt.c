#include "ckpt/ckpt.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/held.h"
#include "ckpt/reshard.h"
#include "cmd/ckpt_diff.h"
#include "cmd/ckpt_hf.h"
#include "cmd/ckpt_local.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"

static const char usage[] =
    "usage: moetitan ckpt ls [--verify] RUN_DIR|LOCAL_DIR | show CHECKPOINT | verify CHECKPOINT | "
    "diff CHECKPOINT CHECKPOINT | reshard CHECKPOINT NEW_FOLDER --ranks N | prune RUN_DIR --keep N | "
    "export CHECKPOINT NEW_FOLDER [--dtype f32|bf16] [--shard-bytes N] [--tokenizer FILE ... | "
    "--no-tokenizer] | "
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
static mt_status verify_held(const struct mt_held *h, mt_err *e)
{
    struct mt_bar bar;
    mt_bar_open(&bar, "verify");
    mt_status st = mt_source_verify(&h->s, &bar.work, e);
    mt_bar_close(&bar);
    return st;
}

/* ---- ls ---- */
static mt_status examine(const struct mt_held *h, int64_t step, bool verify, int64_t *bytes, mt_err *e)
{
    MT_TRY(mt_ckpt_named(h->s.path, step, &h->s.manifest.meta, e));
    MT_TRY(mt_source_sizes(&h->s, bytes, e));
    return verify ? verify_held(h, e) : MT_OK;
}

/* Of a node's folder, which of all ranks' files it has. */
static const char *whose(const struct mt_held *h, char text[96])
{
    text[0] = 0;
    if (h->local)
        snprintf(text, 96, "files of %d ranks of this node and copies of %d, of %d", h->n_own,
                 h->s.n - h->n_own, h->world);
    return text;
}

static bool list_one(const char *path, int64_t step, bool verify)
{
    struct mt_held h;
    int64_t bytes = 0;
    char text[96];
    mt_err why = {0};
    mt_status opened = mt_held_open(&h, path, &why), st = opened;
    if (st == MT_OK) st = examine(&h, step, verify, &bytes, &why);
    if (st == MT_OK)
        printf("%s  step %" PRId64 "  %" PRId64 " tokens  %.1f MiB  %s%s%s\n", path, h.s.manifest.meta.step,
               h.s.manifest.meta.tokens, (double)bytes / (1 << 20), verify ? "valid" : "complete",
               h.local ? ": " : "", whose(&h, text));
    else
        printf("%s  NOT VALID: %s\n", path, why.msg);
    if (opened == MT_OK) mt_held_close(&h);
    return st == MT_OK;
}

struct counts {
    int64_t bad, all;
};
static mt_status list_folder(const char *run, bool verify, struct counts *x, mt_err *e)
{
    int64_t *step, n;
    MT_TRY(mt_ckpt_list(run, &step, &n, e));
    for (int64_t i = 0; i < n; i++) {
        char path[MT_CKPT_PATH];
        mt_ckpt_folder(run, step[i], path);
        x->bad += !list_one(path, step[i], verify);
    }
    free(step);
    x->all += n;
    return MT_OK;
}

static mt_status list_nodes(const char *dir, bool verify, struct counts *x, mt_err *e)
{
    struct mt_local_nodes nodes;
    mt_status st = mt_local_nodes_find(&nodes, dir, e);
    for (int i = 0; i < nodes.n && st == MT_OK; i++) st = list_folder(nodes.path[i], verify, x, e);
    mt_local_nodes_close(&nodes);
    return st;
}

static mt_status list(const struct request *q, mt_err *e)
{
    struct counts x = {0};
    MT_TRY(list_folder(q->arg[0], q->verify, &x, e));
    if (!x.all) MT_TRY(list_nodes(q->arg[0], q->verify, &x, e));
    MT_REQUIRE(x.all, e, MT_CKPT, "'%s/ckpt' holds no checkpoint; give the run's folder, or ckpt.local_dir",
               q->arg[0]);
    MT_REQUIRE(!x.bad || !q->verify, e, MT_CKPT, "%" PRId64 " of %" PRId64 " checkpoints are not valid",
               x.bad, x.all);
    return MT_OK;
}

/* ---- show, verify ---- */
static mt_status show_tensors(const struct mt_held *h, mt_err *e)
{
    const struct mt_source *s = &h->s;
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
           "%s, of them parameters and router biases: %" PRId64 " numbers\n",
           s->path, s->manifest.meta.step, s->manifest.meta.tokens, s->manifest.version, s->manifest.world,
           s->manifest.world > 1 ? "s" : "", tensors, s->part ? ", rows of which are here" : "", numbers);
    return MT_OK;
}

/* Of a node's folder: whose it is. */
static const char *owner_of(const struct mt_held *h, const char *name)
{
    if (!h->local || !mt_source_of_rank(name)) return "";
    for (int f = 0; f < h->s.n; f++)
        if (h->s.rank[f] == strtol(name + 5, NULL, 10))
            return h->own[f] ? "  this node's" : "  copy of another node's";
    return "  on other nodes";
}

static mt_status show_held(const struct mt_held *h, mt_err *e)
{
    int64_t bytes;
    char text[96];
    MT_TRY(mt_source_sizes(&h->s, &bytes, e));
    MT_TRY(show_tensors(h, e));
    if (h->local) printf("  here     %s\n", whose(h, text));
    for (int64_t i = 0; i < h->s.manifest.n; i++) {
        const struct mt_manifest_file *f = &h->s.manifest.file[i];
        printf("  file     %-24s %12" PRId64 " bytes  %016" PRIx64 "%s\n", f->name, f->bytes, f->xxh3,
               owner_of(h, f->name));
    }
    return MT_OK;
}

static mt_status show(const struct request *q, mt_err *e)
{
    struct mt_held h;
    MT_TRY(mt_held_open(&h, q->arg[0], e));
    mt_status st = show_held(&h, e);
    mt_held_close(&h);
    return st;
}

static mt_status verify(const struct request *q, mt_err *e)
{
    struct mt_held h;
    char text[96];
    MT_TRY(mt_held_open(&h, q->arg[0], e));
    mt_status st = verify_held(&h, e);
    if (st == MT_OK)
        printf("%s: valid, step %" PRId64 "%s%s%s\n", q->arg[0], h.s.manifest.meta.step, h.local ? "; " : "",
               whose(&h, text), h.s.part ? ": whether the others are sound, their nodes know" : "");
    mt_held_close(&h);
    return st;
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

/* ---- prune ---- */
/* A person who prunes relies on what is kept: all of it is verified first. Damaged ones are kept too, and count for none. */
static mt_status check_kept(const char *run, const int64_t *step, int64_t n, struct mt_ckpt_keep *keep,
                            mt_err *e)
{
    int64_t good = 0;
    for (int64_t i = n - 1; i >= 0 && good < keep->last; i--) {
        char path[MT_CKPT_PATH];
        mt_err why = {0};
        struct mt_held h;
        int64_t bytes;
        mt_ckpt_folder(run, step[i], path);
        mt_status opened = mt_held_open(&h, path, &why), st = opened, look = st;
        if (st == MT_OK) look = mt_ckpt_named(path, step[i], &h.s.manifest.meta, &why);
        if (look == MT_OK) look = mt_source_sizes(&h.s, &bytes, &why);
        if (look == MT_OK) st = verify_held(&h, &why);
        if (opened == MT_OK) mt_held_close(&h);
        if (look != MT_OK) continue;
        good += st == MT_OK;
        if (st == MT_OK) continue;
        MT_REQUIRE(st == MT_CKPT && keep->damaged.n < MT_CKPT_STEPS, e, st,
                   "nothing was removed, as what is to be kept cannot all be verified: %s", why.msg);
        fprintf(stderr, "moetitan: counts for none of the %" PRId64 ": %s\n", keep->last, why.msg);
        mt_ckpt_steps_add(&keep->damaged, step[i]);
    }
    MT_REQUIRE(good, e, MT_CKPT, "nothing was removed, as no checkpoint of '%s' is valid", run);
    return MT_OK;
}

static mt_status prune(const struct request *q, mt_err *e)
{
    int64_t *step, n, before;
    struct mt_ckpt_keep keep = {.last = q->number, .step = -1};
    char damaged[64] = "";
    MT_REQUIRE(q->number, e, MT_CONFIG, "ckpt prune: say how many to keep: --keep N");
    MT_TRY(steps_of(q->arg[0], &step, &before, e));
    mt_status st = check_kept(q->arg[0], step, before, &keep, e);
    free(step);
    MT_TRY(st);
    MT_TRY(mt_ckpt_prune(q->arg[0], &keep, e));
    MT_TRY(mt_ckpt_list(q->arg[0], &step, &n, e));
    free(step);
    if (keep.damaged.n) snprintf(damaged, sizeof damaged, ", of which %" PRId64 " damaged", keep.damaged.n);
    printf("%" PRId64 " removed, %" PRId64 " left%s\n", before - n, n, damaged);
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
