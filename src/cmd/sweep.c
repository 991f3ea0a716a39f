#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/print.h"
#include "cmd/cmd.h"
#include "cmd/sweep_tell.h"
#include "train/say.h"

#define USAGE "usage: moetitan sweep SWEEP.yaml [--plan | --collect | --slurm [--dry-run]] [--again]"

struct arguments {
    const char *file, *task;
    bool plan, collect, slurm, dry_run, again;
};

static mt_status read_arguments(int argc, char **argv, struct arguments *a, mt_err *e)
{
    *a = (struct arguments){.file = NULL};
    for (int i = 1; i < argc; i++) {
        bool *flag = !strcmp(argv[i], "--plan")      ? &a->plan
                     : !strcmp(argv[i], "--collect") ? &a->collect
                     : !strcmp(argv[i], "--slurm")   ? &a->slurm
                     : !strcmp(argv[i], "--dry-run") ? &a->dry_run
                     : !strcmp(argv[i], "--again")   ? &a->again
                                                     : NULL;
        if (flag) {
            *flag = true;
        } else if (!strcmp(argv[i], "--task")) {
            MT_REQUIRE(i + 1 < argc, e, MT_CONFIG, "sweep: --task needs FILE:NUMBER");
            a->task = argv[++i];
        } else {
            MT_REQUIRE(argv[i][0] != '-' && !a->file, e, MT_CONFIG,
                       "sweep: '%.40s' is not understood; " USAGE, argv[i]);
            a->file = argv[i];
        }
    }
    MT_REQUIRE(a->file, e, MT_CONFIG, USAGE);
    MT_REQUIRE(a->plan + a->collect + a->slurm + (a->task != NULL) <= 1, e, MT_CONFIG,
               "sweep: give one of --plan, --collect, --slurm");
    MT_REQUIRE(!a->dry_run || a->slurm, e, MT_CONFIG, "sweep: --dry-run goes with --slurm");
    return MT_OK;
}

/* ---- what comes out ---- */
static mt_status tell(const struct mt_study *t, mt_err *e)
{
    char path[MT_CONFIG_PATH + 32];
    bool stored;
    mt_sweep_table(t, stdout);
    fflush(stdout);
    snprintf(path, sizeof path, "%s/results.csv", t->sweep->o.dir);
    MT_TRY(mt_sweep_csv(t, path, e));
    snprintf(path, sizeof path, "%s/results.sqlite", t->sweep->o.dir);
    MT_TRY(mt_study_store(t, path, &stored, e));
    MT_TRY(mt_sweep_pictures(t, e));
    mt_say("results   %s/: results.csv, %s, pictures *.svg\n", t->sweep->o.dir,
           stored ? "results.sqlite" : "no results.sqlite (this moetitan was built without SQLite)");
    return MT_OK;
}

static mt_status path_of_program(char out[static MT_CONFIG_PATH], mt_err *e)
{
    ssize_t n = readlink("/proc/self/exe", out, MT_CONFIG_PATH - 1);
    MT_REQUIRE(n > 0 && n < MT_CONFIG_PATH - 1, e, MT_IO, "cannot find this program's own file: %s",
               strerror(errno));
    out[n] = 0;
    return MT_OK;
}

/* ---- on this machine ---- */
/* Steps that all runs have done: a round in which none is added would come again for ever. */
static int64_t steps_done(const struct mt_study *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->repeats; k++)
            n += t->point[i].run[k].steps + (t->point[i].run[k].state != MT_RUN_WAITING);
    return n;
}
static mt_status run_here(struct mt_study *t, mt_err *e)
{
    char program[MT_CONFIG_PATH];
    const mt_sweep_options *o = &t->sweep->o;
    struct mt_study_launcher l = {
        .program = program, .fake_ranks = o->ranks > 1 ? (int)o->ranks : 0, .at_once = o->at_once};
    MT_TRY(path_of_program(program, e));
    MT_TRY(mt_study_prepare(t, e));
    for (;;) {
        struct mt_study_item *list;
        int n;
        int64_t before = steps_done(t);
        mt_status st = mt_study_due(t, &list, &n, e);
        if (st == MT_OK && n) st = mt_study_execute(t, list, n, &l, e);
        free(list);
        mt_err ignored = {0};
        mt_status read = mt_study_collect(t, st == MT_OK ? e : &ignored);
        MT_TRY(st);
        MT_TRY(read);
        if (!n) return MT_OK;
        MT_REQUIRE(steps_done(t) > before, e, MT_IO,
                   "%d runs were started, and none has done a step: see %s/points/*/run-*.log", n, o->dir);
    }
}

/* ---- as an array of jobs ---- */
static mt_status submit(struct mt_study *t, const struct mt_study_item *list, int n, bool dry_run, mt_err *e)
{
    struct mt_study_array a;
    char program[MT_CONFIG_PATH], job[32];
    MT_TRY(path_of_program(program, e));
    MT_TRY(mt_array_write(&a, t, list, n, program, e));
    if (dry_run) {
        mt_say("array     %d jobs of %d runs: %s; not submitted\n", a.jobs, n, a.script);
        return MT_OK;
    }
    MT_TRY(mt_array_submit(&a, job, e));
    mt_say("array     %d jobs of %d runs: %s, job %s; --collect shows what has come in, --slurm goes on\n",
           a.jobs, n, a.script, job);
    return MT_OK;
}
static mt_status run_array(struct mt_study *t, bool dry_run, mt_err *e)
{
    struct mt_study_item *list;
    char job[32] = "";
    int n;
    if (!dry_run) MT_TRY(mt_array_pending(t, job, e));
    if (*job) {
        mt_say("array     job %s of this sweep is still there: nothing is submitted\n", job);
        return MT_OK;
    }
    MT_TRY(mt_study_prepare(t, e));
    mt_status st = mt_study_due(t, &list, &n, e);
    if (st == MT_OK && !n) mt_say("array     no run is due\n");
    if (st == MT_OK && n) st = submit(t, list, n, dry_run, e);
    free(list);
    return st;
}

/* slurm.srun as words, and how many ranks. */
static int srun_words(char *text, struct mt_study_launcher *l, char ntasks[static 40], int64_t ranks)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word && l->n < MT_LAUNCH_WORDS - 2;
         word = strtok_r(NULL, " ", &rest))
        l->word[l->n++] = word;
    snprintf(ntasks, 40, "--ntasks=%lld", (long long)ranks);
    if (l->n) l->word[l->n++] = ntasks;
    return l->n;
}
/* The runs of one job of the array; what came out is read by --collect. */
static mt_status run_task(struct mt_study *t, const char *task, mt_err *e)
{
    char program[MT_CONFIG_PATH], text[MT_CONFIG_STR], ntasks[40];
    const mt_sweep_options *o = &t->sweep->o;
    struct mt_study_launcher l = {.program = program, .at_once = o->at_once};
    struct mt_study_item *list, *due;
    int n, kept = 0;
    MT_TRY(path_of_program(program, e));
    snprintf(text, sizeof text, "%s", o->slurm_srun);
    srun_words(text, &l, ntasks, o->ranks);
    MT_TRY(mt_study_collect(t, e));
    mt_status st = mt_array_task(t, task, &list, &n, e);
    for (int i = 0; i < n; i++) {
        due = &list[i];
        if (t->point[due->point].run[due->repeat].state == MT_RUN_WAITING) list[kept++] = *due;
    }
    if (st == MT_OK) st = mt_study_execute(t, list, kept, &l, e);
    free(list);
    return st;
}

/* ---- the command ---- */
/* A sweep without a run is a mistake; the table says which. */
static mt_status check_any(const struct mt_study *t, mt_err *e)
{
    bool large = false;
    for (int i = 0; i < t->n; i++) {
        if (t->point[i].verdict == MT_POINT_RUNS) return MT_OK;
        large = large || t->point[i].verdict == MT_POINT_TOO_LARGE;
    }
    MT_FAIL(e, large ? MT_NOFIT : MT_CONFIG, "none of %d points can run: the table above says why", t->n);
}
static mt_status act(const struct arguments *a, struct mt_study *t, mt_err *e)
{
    MT_TRY(mt_study_plan(t, e));
    if (a->task) return run_task(t, a->task, e);
    MT_TRY(mt_study_collect(t, e));
    if (a->again) MT_TRY(mt_study_forget_failures(t, e));
    mt_status st = a->slurm ? run_array(t, a->dry_run, e) : a->plan || a->collect ? MT_OK : run_here(t, e);
    mt_err second = {0};
    mt_status told = tell(t, st == MT_OK ? e : &second);
    if (st == MT_OK) st = told;
    return st == MT_OK ? check_any(t, e) : st;
}

mt_status mt_cmd_sweep(int argc, char **argv, mt_err *e)
{
    struct arguments a;
    struct mt_study t = {.n = 0};
    mt_sweep *s = calloc(1, sizeof *s);
    mt_status st = s ? MT_OK : mt_err_set(e, MT_IO, "no memory for a sweep");
    if (st == MT_OK) st = read_arguments(argc, argv, &a, e);
    if (st == MT_OK) st = mt_sweep_open(s, a.file, e);
    if (st == MT_OK) st = mt_sweep_expand(s, e);
    if (st == MT_OK) st = mt_study_open(&t, s, e);
    if (st == MT_OK) st = act(&a, &t, e);
    mt_study_close(&t);
    if (s) mt_sweep_close(s);
    free(s);
    return st;
}
