#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/sweep_tell.h"
#include "launch/site.h"
#include "train/say.h"

#define USAGE                                                                                                \
    "usage: moetitan sweep SWEEP.yaml [--plan | --collect | --slurm [--site NAME|FILE] [--nodes N] [--time " \
    "T] "                                                                                                    \
    "[--dry-run] ...] [--again]"

struct arguments {
    const char *file;
    bool plan, collect, slurm, dry_run, again;
    struct mt_site site;
    /* --task: what a job of the array does. */
    const char *task;
    int64_t pack, at_once, ranks;
    char **words; /* behind --: in front of each run */
    int n_words;
};

/* ---- the command line ---- */
/* Flags win over the site's file wherever they stand, so the file is read first. */
static mt_status read_site(int argc, char **argv, struct arguments *a, mt_err *e)
{
    const char *site = "generic";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--site") != 0) continue;
        MT_REQUIRE(i + 1 < argc, e, MT_CONFIG, "sweep: --site needs a name or a file; " USAGE);
        site = argv[i + 1];
    }
    return mt_site_load(&a->site, site, e);
}
static bool bare(struct arguments *a, const char *flag)
{
    bool *is = !strcmp(flag, "--plan")      ? &a->plan
               : !strcmp(flag, "--collect") ? &a->collect
               : !strcmp(flag, "--slurm")   ? &a->slurm
               : !strcmp(flag, "--dry-run") ? &a->dry_run
               : !strcmp(flag, "--again")   ? &a->again
                                            : NULL;
    if (is) *is = true;
    return is != NULL;
}
static mt_status whole(const char *flag, const char *text, int64_t *out, mt_err *e)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    MT_REQUIRE(end != text && !*end && v >= 1 && v <= 1 << 20, e, MT_CONFIG,
               "sweep: %s needs a whole number from 1 on, not '%.40s'", flag, text);
    *out = v;
    return MT_OK;
}
static mt_status valued(struct arguments *a, const char *flag, const char *value, mt_err *e)
{
    bool known = false;
    char meant[96];
    MT_REQUIRE(value, e, MT_CONFIG, "sweep: %.40s needs a value; " USAGE, flag);
    if (!strcmp(flag, "--task")) {
        a->task = value;
        return MT_OK;
    }
    if (!strcmp(flag, "--pack")) return whole(flag, value, &a->pack, e);
    if (!strcmp(flag, "--at-once")) return whole(flag, value, &a->at_once, e);
    if (!strcmp(flag, "--ranks")) return whole(flag, value, &a->ranks, e);
    if (!strcmp(flag, "--site")) return MT_OK;
    if (a->slurm) MT_TRY(mt_site_flag(&a->site, flag, value, &known, e));
    MT_REQUIRE(known, e, MT_CONFIG, "sweep: no flag '%.40s'%s%s " USAGE, flag,
               a->slurm ? "" : " (of a site: behind --slurm)", mt_site_meant(flag, meant));
    return MT_OK;
}
static mt_status read_arguments(int argc, char **argv, struct arguments *a, mt_err *e)
{
    a->pack = a->at_once = a->ranks = 1;
    for (int i = 1; i < argc; i++) a->slurm = a->slurm || !strcmp(argv[i], "--slurm");
    if (a->slurm) MT_TRY(read_site(argc, argv, a, e));
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            a->words = argv + i + 1;
            a->n_words = argc - i - 1;
            break;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            MT_REQUIRE(!a->file, e, MT_CONFIG, "sweep: one file at a time, and '%.40s' is a second; " USAGE,
                       argv[i]);
            a->file = argv[i];
        } else if (!bare(a, argv[i])) {
            MT_TRY(valued(a, argv[i], i + 1 < argc ? argv[i + 1] : NULL, e));
            i++;
        }
    }
    MT_REQUIRE(!a->file != !a->task, e, MT_CONFIG, USAGE);
    MT_REQUIRE(a->plan + a->collect + a->slurm <= 1, e, MT_CONFIG,
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
/* Grows with every step that a run does: a round in which it does not would come again for ever. */
static int64_t progress(const struct mt_study *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->repeats; k++)
            n += t->point[i].run[k].steps + (t->point[i].run[k].state != MT_RUN_WAITING);
    return n;
}
static mt_status run_items(const struct mt_study *t, const struct mt_study_item *item, int n, mt_err *e)
{
    char program[MT_CONFIG_PATH], call[MT_CALL_BYTES], **calls = calloc((size_t)n + 1, sizeof *calls);
    const mt_sweep_options *o = &t->sweep->o;
    struct mt_launcher l = {.program = program,
                            .fake_ranks = o->ranks > 1 ? (int)o->ranks : 0,
                            .at_once = o->at_once,
                            .timeout = o->timeout};
    mt_status st = calls ? path_of_program(program, e) : mt_err_set(e, MT_IO, "no memory for %d runs", n);
    for (int i = 0; i < n && st == MT_OK; i++) {
        st = mt_study_call(t, item[i], call, e);
        if (st == MT_OK && !(calls[i] = strdup(call))) st = mt_err_set(e, MT_IO, "no memory for %d runs", n);
    }
    if (st == MT_OK) st = mt_calls_run(calls, n, &l, e);
    if (calls) mt_calls_free(calls, n);
    return st;
}
static mt_status run_rounds(struct mt_study *t, mt_err *e)
{
    MT_TRY(mt_study_prepare(t, e));
    for (;;) {
        struct mt_study_item *list;
        int n;
        int64_t before = progress(t);
        mt_status st = mt_study_due(t, &list, &n, e);
        if (st == MT_OK && n) st = run_items(t, list, n, e);
        free(list);
        mt_err ignored = {0};
        mt_status read = mt_study_collect(t, st == MT_OK ? e : &ignored);
        MT_TRY(st);
        MT_TRY(read);
        if (!n) return MT_OK;
        MT_REQUIRE(progress(t) > before, e, MT_IO,
                   "%d runs were started, and none has done a step: see %s/points/*/run-*.log", n,
                   t->sweep->o.dir);
    }
}

/* Two of them would start the same runs. The system drops the lock with the process. */
static mt_status run_here(struct mt_study *t, mt_err *e)
{
    const char *dir = t->sweep->o.dir;
    int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MT_REQUIRE(lock >= 0, e, MT_IO, "cannot open the folder '%s': %s", dir, strerror(errno));
    bool taken = flock(lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    mt_status st =
        taken
            ? mt_err_set(e, MT_IO,
                         "another process runs the sweep in '%s': wait for its end, or set another dir", dir)
            : run_rounds(t, e);
    close(lock);
    return st;
}

/* ---- as an array of jobs ---- */
static mt_status submit(const struct mt_study_array *a, int n, bool dry_run, mt_err *e)
{
    char job[32];
    if (dry_run) {
        fputs(a->script, stdout);
        mt_array_forget(a);
        return MT_OK;
    }
    MT_TRY(mt_array_submit(a, job, e));
    mt_say("array     job %s: %d jobs for %d runs; --collect shows what has come in, --slurm goes on when it "
           "is over\n",
           job, a->jobs, n);
    return MT_OK;
}
static mt_status run_array(const struct arguments *a, struct mt_study *t, mt_err *e)
{
    struct mt_study_array array = {.jobs = 0};
    struct mt_study_item *list;
    char job[32] = "";
    int n;
    if (!a->dry_run) MT_TRY(mt_array_pending(t, job, e));
    if (*job) {
        mt_say("array     job %s of this sweep is still there: nothing is submitted\n", job);
        return MT_OK;
    }
    MT_TRY(mt_study_prepare(t, e));
    mt_status st = mt_study_due(t, &list, &n, e);
    if (st == MT_OK && !n) mt_say("array     no run is due\n");
    if (st == MT_OK && n) st = mt_array_open(&array, t, list, n, &a->site, e);
    if (st == MT_OK && n) st = submit(&array, n, a->dry_run, e);
    mt_array_close(&array);
    free(list);
    return st;
}

/* One job of the array: some lines of the points' file. What came out is read by --collect. */
static mt_status run_task(const struct arguments *a, mt_err *e)
{
    char program[MT_CONFIG_PATH], path[MT_CONFIG_PATH], ntasks[40], *end = NULL, **calls;
    const char *colon = strrchr(a->task, ':');
    long number = colon ? strtol(colon + 1, &end, 10) : -1;
    struct mt_launcher l = {.program = program, .at_once = a->at_once};
    int n;
    MT_REQUIRE(colon && end != colon + 1 && !*end && number >= 0 && colon - a->task < MT_CONFIG_PATH, e,
               MT_CONFIG, "sweep: --task needs FILE:NUMBER, not '%.60s'", a->task);
    MT_REQUIRE(a->n_words < MT_LAUNCH_WORDS - 2, e, MT_CONFIG, "sweep: more than %d words behind --",
               MT_LAUNCH_WORDS - 2);
    snprintf(path, sizeof path, "%.*s", (int)(colon - a->task), a->task);
    for (; l.n < a->n_words; l.n++) l.word[l.n] = a->words[l.n];
    snprintf(ntasks, sizeof ntasks, "--ntasks=%lld", (long long)a->ranks);
    if (l.n && a->at_once > 1) {
        l.word[l.n++] = "--exact";
        l.word[l.n++] = ntasks;
    }
    MT_TRY(path_of_program(program, e));
    mt_status st = mt_calls_read(path, number * a->pack, a->pack, &calls, &n, e);
    if (st == MT_OK) st = mt_calls_run(calls, n, &l, e);
    mt_calls_free(calls, n);
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
    MT_TRY(mt_study_collect(t, e));
    if (a->again) MT_TRY(mt_study_forget_failures(t, e));
    mt_status st = a->slurm ? run_array(a, t, e) : a->plan || a->collect ? MT_OK : run_here(t, e);
    if (a->dry_run) return st;
    mt_err second = {0};
    mt_status told = tell(t, st == MT_OK ? e : &second);
    if (st == MT_OK) st = told;
    return st == MT_OK ? check_any(t, e) : st;
}
static mt_status sweep(const struct arguments *a, mt_sweep *s, mt_err *e)
{
    struct mt_study t = {.n = 0};
    mt_status st = mt_sweep_open(s, a->file, e);
    if (st == MT_OK) st = mt_sweep_expand(s, e);
    if (st == MT_OK) st = mt_study_open(&t, s, e);
    if (st == MT_OK) st = act(a, &t, e);
    mt_study_close(&t);
    mt_sweep_close(s);
    return st;
}

mt_status mt_cmd_sweep(int argc, char **argv, mt_err *e)
{
    struct arguments *a = calloc(1, sizeof *a);
    mt_sweep *s = calloc(1, sizeof *s);
    char **words = mt_site_words(&argc, argv);
    mt_status st = s && a && words ? MT_OK : mt_err_set(e, MT_IO, "no memory for a sweep");
    if (st == MT_OK) st = read_arguments(argc, words, a, e);
    if (st == MT_OK) st = a->task ? run_task(a, e) : sweep(a, s, e);
    free(words);
    free(a);
    free(s);
    return st;
}
