/* job.c: `moetitan job`: what a batch script does around its run. The scripts in slurm/ call it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/job_record.h"
#include "launch/site.h"

#define USAGE                                                                                             \
    "usage: moetitan job begin [--chain self|dependency|none] [--stalled N] [--script FILE] CONFIG.yaml " \
    "[key=value ...]; "                                                                                   \
    "moetitan job end --code N CONFIG.yaml [key=value ...]; moetitan job list RUN_DIR"

struct around {
    mt_config cfg;
    const char *id, *run; /* of this job */
    const char *chain, *script;
    int stalled, code;
    char **args;
    int n_args;
    struct mt_chain jobs;
    int place; /* among them */
};

static mt_status read_number(const char *text, const char *flag, int low, int *out, mt_err *e)
{
    char *end;
    long v = strtol(text, &end, 10);
    MT_REQUIRE(*text && !*end && v >= low && v <= 1000, e, MT_CONFIG,
               "%s needs a number from %d to 1000, not '%.40s'", flag, low, text);
    *out = (int)v;
    return MT_OK;
}

static mt_status read_arguments(int argc, char **argv, struct around *a, mt_err *e)
{
    for (int i = 2; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (!strcmp(argv[i], "--chain") && has_value)
            a->chain = argv[++i];
        else if (!strcmp(argv[i], "--script") && has_value)
            a->script = argv[++i];
        else if (!strcmp(argv[i], "--stalled") && has_value)
            MT_TRY(read_number(argv[++i], "--stalled", 1, &a->stalled, e));
        else if (!strcmp(argv[i], "--code") && has_value)
            MT_TRY(read_number(argv[++i], "--code", 0, &a->code, e));
        else if (!strncmp(argv[i], "--", 2))
            MT_FAIL(e, MT_CONFIG, "job: '%.40s' is not understood; " USAGE, argv[i]);
        else
            a->args[a->n_args++] = argv[i];
    }
    MT_REQUIRE(a->n_args > 0, e, MT_CONFIG, USAGE);
    return MT_OK;
}

static mt_status find_job(struct around *a, mt_err *e)
{
    a->id = getenv("SLURM_JOB_ID");
    MT_REQUIRE(a->id && *a->id && strlen(a->id) < MT_SLURM_ID, e, MT_CONFIG,
               "no job of Slurm here (no SLURM_JOB_ID): `moetitan job` is for its batch scripts");
    MT_TRY(mt_config_load(&a->cfg, a->args[0], a->n_args - 1, a->args + 1, e));
    a->run = a->cfg.run_dir;
    return MT_OK;
}

/* A job that a person queued by hand is a chain of its own until it queues another. */
static mt_status find_place(struct around *a, mt_err *e)
{
    int made;
    char path[MT_CHAIN_PATH], log[64];
    MT_TRY(mt_chain_make(a->run, &made, e));
    snprintf(path, sizeof path, "%s/jobs/%s", a->run, a->id);
    MT_REQUIRE(!mkdir(path, 0777) || errno == EEXIST, e, MT_IO, "cannot make the folder '%s': %s", path,
               strerror(errno));
    snprintf(path, sizeof path, "%s/jobs/%s/log", a->run, a->id);
    snprintf(log, sizeof log, "../%s.log", a->id);
    MT_REQUIRE(!symlink(log, path) || errno == EEXIST, e, MT_IO, "cannot make the link '%s': %s", path,
               strerror(errno));
    MT_TRY(mt_chain_enter(a->run, a->id, true, e));
    MT_TRY(mt_chain_read(&a->jobs, a->run, e));
    a->place = mt_chain_find(&a->jobs, a->id);
    return MT_OK;
}

/* What the job before, or an earlier start of this one, wrote and did not live to put away. */
static mt_status put_away(struct around *a, mt_err *e)
{
    char from[MT_CHAIN_PATH], to[MT_CHAIN_PATH];
    struct mt_job_end x;
    const char *restart = getenv("SLURM_RESTART_COUNT");
    if (mt_job_exit_read(a->run, a->id, &x))
        (void)mt_job_exit_keep(a->run, a->id);
    else if (a->place > 0 && mt_job_exit_read(a->run, a->jobs.id[a->place - 1], &x))
        (void)mt_job_exit_keep(a->run, a->jobs.id[a->place - 1]);
    snprintf(from, sizeof from, "%s/jobs/%s/end.json", a->run, a->id);
    snprintf(to, sizeof to, "%s/jobs/%s/end-%.16s.json", a->run, a->id, restart ? restart : "0");
    MT_REQUIRE(!rename(from, to) || errno == ENOENT, e, MT_IO, "cannot rename '%s': %s", from,
               strerror(errno));
    return MT_OK;
}

static mt_status check_cancelled(const struct around *a, mt_err *e)
{
    char state[64] = "";
    if (a->place > 0) mt_slurm_state(a->jobs.id[a->place - 1], state);
    if (!mt_slurm_by_person(state)) return MT_OK;
    bool cut = mt_chain_cut(&a->jobs, a->place);
    MT_FAIL(e, MT_PREEMPTED,
            "job %s, before this one, is %s: the chain ends here%s; `moetitan submit` goes on from the "
            "newest checkpoint",
            a->jobs.id[a->place - 1], state,
            cut ? "" : ", but for jobs that could not be taken from the queue");
}

static mt_status check_stopped(const struct around *a, mt_err *e)
{
    if (!mt_chain_stopped(a->run)) return MT_OK;
    bool cut = mt_chain_cut(&a->jobs, a->place);
    MT_FAIL(e, MT_PREEMPTED, "'%s/jobs/stop' is there: the chain ends here%s", a->run,
            cut ? "" : ", but for jobs that could not be taken from the queue");
}

/* As many jobs as --stalled, one after another up to this, began where this one begins. */
static mt_status check_stalled(const struct around *a, mt_err *e)
{
    struct mt_job_end last = {.code = MT_RANKS, .message = "it left no reason"};
    int64_t now = mt_chain_saved(a->run);
    int same = 0;
    while (same < a->place && mt_job_began_at(a->run, a->jobs.id[a->place - 1 - same]) == now) same++;
    if (same < a->stalled) return MT_OK;
    (void)mt_job_end_read(a->run, a->jobs.id[a->place - 1], &last);
    bool cut = mt_chain_cut(&a->jobs, a->place);
    MT_FAIL(
        e, (mt_status)(last.code ? last.code : MT_RANKS),
        "the last %d jobs of the chain saved nothing new, so it ends here%s; job %s ended with %d: %.1000s",
        same, cut ? "" : ", but for jobs that could not be taken from the queue", a->jobs.id[a->place - 1],
        last.code, last.message);
}

/* Queued before the run, not after it: a job that is lost with its node has then a successor. */
static mt_status queue_next(struct around *a, const char *script, mt_err *e)
{
    char after[64], nodes[MT_CHAIN_NODES], exclude[MT_CHAIN_NODES + 16], id[MT_SLURM_ID];
    if (strcmp(a->chain, "self") != 0) return MT_OK;
    if (a->place + 1 < a->jobs.n) return MT_OK; /* an earlier start of this job did */
    MT_TRY(mt_chain_excluded(a->run, NULL, "", nodes, e));
    snprintf(after, sizeof after, "--dependency=afterany:%s", a->id);
    snprintf(exclude, sizeof exclude, "--exclude=%s", nodes);
    unsetenv("SLURM_RESTART_COUNT"); /* the next job would inherit it */
    MT_TRY(mt_slurm_submit(script, (const char *const[]){after, nodes[0] ? exclude : NULL, NULL}, id, e));
    MT_TRY(mt_chain_enter(a->run, id, false, e));
    printf("job %s, next of the chain, waits for the end of job %s\n", id, a->id);
    return MT_OK;
}

static mt_status keep_script(const struct around *a, const char *text, mt_err *e)
{
    char path[MT_CHAIN_PATH];
    snprintf(path, sizeof path, "%s/jobs/%s/script", a->run, a->id);
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f)) ok = false;
    MT_REQUIRE(ok, e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    return MT_OK;
}

static mt_status begin(struct around *a, mt_err *e)
{
    enum { MOST = 1 << 18 };
    mt_err why = {0};
    struct mt_text text = {0};
    MT_TRY(find_job(a, e));
    MT_TRY(find_place(a, e));
    MT_TRY(put_away(a, e));
    MT_TRY(check_cancelled(a, e));
    MT_TRY(check_stopped(a, e));
    MT_TRY(check_stalled(a, e));
    MT_TRY(mt_job_record_begin(&a->cfg, a->run, a->id, e));
    if (!a->script) return MT_OK;
    mt_status st = mt_text_read(&text, a->script, MOST, MT_IO, e);
    if (st == MT_OK) st = keep_script(a, text.at, e);
    /* The run is worth having without a next job. */
    if (st == MT_OK && queue_next(a, text.at, &why) != MT_OK)
        printf("no next job for the chain: %s\n", why.msg);
    mt_text_release(&text);
    return st;
}

/* Would another try end otherwise? */
static bool worth_another(int code)
{
    switch (code) {
    case MT_IO:
    case MT_DEVICE:
    case MT_RANKS:
    case MT_HANG:
    case MT_PREEMPTED: return true;
    default: return false;
    }
}

/* What the ranks wrote; else what is to be made of srun's code. */
static mt_status find_end(const struct around *a, struct mt_job_end *x, mt_err *e)
{
    if (mt_job_exit_read(a->run, a->id, x)) {
        (void)mt_job_exit_keep(a->run, a->id);
        return MT_OK;
    }
    *x = (struct mt_job_end){.code = a->code, .step = -1};
    if (!strcmp(mt_status_name((mt_status)a->code), "?")) {
        x->code = MT_RANKS;
        snprintf(x->message, sizeof x->message,
                 "srun ended with %d, and no rank wrote why: a process or a node was lost or killed",
                 a->code);
    } else {
        snprintf(x->message, sizeof x->message, "%s", mt_status_text((mt_status)a->code));
    }
    return mt_job_end_write(a->run, a->id, x, e);
}

/* The next job was queued before this one found its bad nodes. */
static void tell_next(const struct around *a, const char *next)
{
    char nodes[MT_CHAIN_NODES];
    mt_err e = {0};
    if (mt_chain_excluded(a->run, NULL, "", nodes, &e) != MT_OK || !nodes[0]) return;
    if (!mt_slurm_exclude(next, nodes))
        printf("job %s could not be told to stay away from %s\n", next, nodes);
}

static mt_status end(struct around *a, mt_err *e)
{
    struct mt_job_end x;
    char state[64], next[MT_SLURM_ID + 96] = "the chain ends here";
    MT_TRY(find_job(a, e));
    MT_TRY(find_place(a, e));
    MT_TRY(find_end(a, &x, e));
    mt_slurm_state(a->id, state);
    bool person = mt_slurm_by_person(state), last = a->place + 1 >= a->jobs.n;
    if (person || mt_chain_stopped(a->run) || !worth_another(x.code)) {
        if (!last && !mt_chain_cut(&a->jobs, a->place))
            snprintf(next, sizeof next, "jobs behind it could not be taken from the queue");
    } else if (!last) { /* by whom, Slurm says only when it is over */
        bool ending = !strcmp(state, "COMPLETING");
        tell_next(a, a->jobs.id[a->place + 1]);
        snprintf(next, sizeof next, "job %s goes on%s", a->jobs.id[a->place + 1],
                 ending ? ", unless a person cancelled this one" : "");
    }
    if (x.code == MT_OK) {
        printf("job %s ended: %s; %s\n", a->id, x.message[0] ? x.message : mt_status_text(MT_OK), next);
        return MT_OK;
    }
    MT_FAIL(e, (mt_status)x.code, "job %s ended with %d, %s%s%s: %s; %s", a->id, x.code,
            mt_status_name((mt_status)x.code), person ? ", and is " : "", person ? state : "", x.message,
            next);
}

static mt_status list(struct around *a, mt_err *e)
{
    MT_REQUIRE(a->n_args == 1, e, MT_CONFIG, USAGE);
    a->run = a->args[0];
    MT_REQUIRE(strlen(a->run) < MT_CONFIG_PATH, e, MT_CONFIG, "the path of the run is too long");
    char path[MT_CHAIN_PATH];
    snprintf(path, sizeof path, "%s/jobs/chain", a->run);
    MT_REQUIRE(!access(path, R_OK), e, MT_CONFIG, "'%s' has no jobs/chain: no job has trained there", a->run);
    MT_TRY(mt_chain_read(&a->jobs, a->run, e));
    printf("%-10s %10s  %s\n", "job", "from step", "end");
    for (int i = 0; i < a->jobs.n; i++) {
        struct mt_job_end x;
        char from[24] = "", state[64] = "";
        int64_t began = mt_job_began_at(a->run, a->jobs.id[i]);
        if (began >= -1) snprintf(from, sizeof from, "%lld", (long long)(began < 0 ? 0 : began));
        if (mt_job_end_read(a->run, a->jobs.id[i], &x))
            printf("%-10s %10s  %d %s: %.200s\n", a->jobs.id[i], from, x.code,
                   mt_status_name((mt_status)x.code), x.message);
        else {
            mt_slurm_state(a->jobs.id[i], state);
            printf("%-10s %10s  %s\n", a->jobs.id[i], from, state[0] ? state : "not known to Slurm");
        }
    }
    return MT_OK;
}

mt_status mt_cmd_job(int argc, char **argv, mt_err *e)
{
    static const struct {
        const char *name;
        mt_status (*run)(struct around *a, mt_err *e);
    } verbs[] = {{"begin", begin}, {"end", end}, {"list", list}};
    size_t v = 0, n = sizeof verbs / sizeof *verbs;
    while (v < n && (argc < 2 || strcmp(argv[1], verbs[v].name) != 0)) v++;
    MT_REQUIRE(v < n, e, MT_CONFIG, USAGE);
    struct around *a = calloc(1, sizeof *a + (size_t)argc * sizeof *a->args);
    MT_REQUIRE(a, e, MT_IO, "no memory for a configuration");
    a->args = (char **)(a + 1);
    a->chain = "none";
    a->stalled = 3;
    mt_status st = read_arguments(argc, argv, a, e);
    if (st == MT_OK) st = verbs[v].run(a, e);
    free(a);
    return st;
}
