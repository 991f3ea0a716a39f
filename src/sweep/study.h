/* study.h: a sweep under way. Its points are planned (plan.c), run here or as an array of jobs (run.c, array.c), and read back
 * from their folders (result.c), so that a sweep goes on wherever it was stopped.
 *
 * The sweep's folder:
 *   points/ID/config.yaml    a point's configuration, resolved; ID is a hash of its values
 *   points/ID/plan           what was planned of it
 *   points/ID/run-K/         the run's folder of repeat K
 *   points/ID/run-K.log      what it printed, and run-K.json, how it ended */
#ifndef MT_SWEEP_STUDY_H
#define MT_SWEEP_STUDY_H
#include "config/sweep.h"
#include "device/ledger.h"
#include "launch/cluster.h"

enum {
#define MT_METRIC_ONE(name, text) +1
    MT_N_METRICS = 0 MT_CHOICES_metric(MT_METRIC_ONE)
};
enum mt_point_verdict {
    MT_POINT_RUNS,
    MT_POINT_TWICE,
    MT_POINT_REFUSED,
    MT_POINT_TOO_LARGE,
    MT_POINT_DOMINATED
};
const char *mt_point_verdict_text(enum mt_point_verdict v);

struct mt_study_run {
    enum { MT_RUN_WAITING, MT_RUN_DONE, MT_RUN_FAILED } state; /* DONE: with the steps that are due */
    int64_t steps;                                             /* done so far */
    int exit_code;                                             /* of the last process; -1: none has ended */
    double seconds;                                            /* that it took */
    double value[MT_N_METRICS]; /* over the steps that are due; NaN: not known */
    char why[192];              /* it failed */
};
struct mt_study_point {
    const struct mt_sweep_point *p; /* borrowed from the sweep */
    char id[17];
    enum mt_point_verdict verdict;
    char why[192];      /* it does not run */
    int64_t steps, due; /* train.steps; what its runs are to have by now: less in rounds of halving */
    int64_t seed;       /* train.seed */
    int round;          /* of halving, that it is in or was left out behind; from 0 */
    bool left;          /* it was left out */
    int64_t peak[MT_N_ARENAS];
    double planned;           /* tokens a second of all ranks; 0: not planned */
    struct mt_study_run *run; /* owned together: [repeats] */
    int done, failed;         /* runs */
    double mean[MT_N_METRICS], low[MT_N_METRICS], high[MT_N_METRICS]; /* of the done ones; NaN without */
};
struct mt_study {
    const mt_sweep *sweep; /* borrowed, expanded */
    struct mt_study_point *point;
    struct mt_study_run *runs;
    int n, repeats, baseline; /* points; of a point; a point */
    int rounds;               /* of halving; 1 without */
};

/* Reads every point's configuration. A point that the rules of configurations forbid is REFUSED, not an error. CONFIG, IO.
 * mt_study_close is due whatever came of it. */
MT_MUST_USE mt_status mt_study_open(struct mt_study *t, const mt_sweep *s, mt_err *e);
void mt_study_close(struct mt_study *t);

/* Verdicts: which points fit, and which are dominated. Plans that are in the folder already are taken from there. CONFIG, DATA,
 * IO: the cluster file, or a folder that cannot be written. */
MT_MUST_USE mt_status mt_study_plan(struct mt_study *t, mt_err *e);
/* Which points are dominated, by what is planned; each such one's reason names the one that beats it. */
void mt_study_dominate(struct mt_study *t);

/* What all runs have done, and what is due: with halving, points are left out round by round. */
MT_MUST_USE mt_status mt_study_collect(struct mt_study *t, mt_err *e);
/* The runs that lack steps which are due, [n] in *list, the caller's. */
struct mt_study_item {
    int point, repeat;
};
MT_MUST_USE mt_status mt_study_due(const struct mt_study *t, struct mt_study_item **list, int *n, mt_err *e);
/* Failed runs are to be tried again: forgets how they ended. */
MT_MUST_USE mt_status mt_study_forget_failures(struct mt_study *t, mt_err *e);

/* Is a higher value better? Name: as in the file. */
bool mt_metric_higher(enum mt_choice_metric m);
/* Points best first by the sweep's metric; those without a value last, in their own order. order: [n]. */
void mt_study_order(const struct mt_study *t, int *order);

/* "DIR/points/ID", and with `file` "DIR/points/ID/FILE". False: too long. */
bool mt_study_path(const struct mt_study *t, const struct mt_study_point *p, const char *file, char *out,
                   size_t size);

/* ---- running (run.c) ---- */
/* A run as `moetitan train` gets it: words between tabs, a configuration, run.dir=, and what else differs. */
enum { MT_CALL_BYTES = 3 * MT_CONFIG_PATH };
MT_MUST_USE mt_status mt_study_call(const struct mt_study *t, struct mt_study_item x,
                                    char out[static MT_CALL_BYTES], mt_err *e);

enum { MT_LAUNCH_WORDS = 64 };
struct mt_launcher {
    const char *program;               /* this one */
    const char *word[MT_LAUNCH_WORDS]; /* in front of it: srun and its options; n of them */
    int n;
    int fake_ranks; /* 0: none */
    int64_t at_once;
    double timeout; /* seconds; 0: none */
};
/* Runs the calls in child processes, so many at once. Beside each run.dir: .log, what it printed, and .json, how it ended. A run
 * that fails does not end the others. PREEMPTED: a signal asked to stop; runs were asked to save. IO: no process could be
 * started. */
MT_MUST_USE mt_status mt_calls_run(char *const *call, int n, const struct mt_launcher *l, mt_err *e);
/* Folder and configuration of every point that runs. IO. */
MT_MUST_USE mt_status mt_study_prepare(const struct mt_study *t, mt_err *e);

/* ---- as an array of jobs (array.c) ---- */
struct mt_study_array {
    int jobs;
    char points[MT_CONFIG_PATH], note[MT_CONFIG_PATH]; /* files: a call a line; the job's id */
    char range[48];                                    /* "0-5%2" */
    char *script;                                      /* owned */
    struct mt_request *request;                        /* owned */
};
struct mt_site;
/* Writes the points' file and renders the site's script. mt_array_close is due whatever came of it. CONFIG: the site's tasks are
 * not ranks times at_once, or the template is not usable; IO. */
MT_MUST_USE mt_status mt_array_open(struct mt_study_array *a, const struct mt_study *t,
                                    const struct mt_study_item *item, int n, const struct mt_site *site,
                                    mt_err *e);
/* Queues it. CONFIG: Slurm refuses it, in its words; then no file of it stays behind. */
MT_MUST_USE mt_status mt_array_submit(const struct mt_study_array *a, char job[static 32], mt_err *e);
/* Removes the points' file of an array that is not submitted. */
void mt_array_forget(const struct mt_study_array *a);
void mt_array_close(struct mt_study_array *a);
/* An array of this sweep that Slurm still has: its job's id; "": none. IO: squeue does not answer. */
MT_MUST_USE mt_status mt_array_pending(const struct mt_study *t, char job[static 32], mt_err *e);
/* Lines [from, from + most) of a points' file, less than `most` at its end; *call and its lines are the caller's, also after a
 * failure. CONFIG: there are none. */
MT_MUST_USE mt_status mt_calls_read(const char *path, int64_t from, int64_t most, char ***call, int *n,
                                    mt_err *e);
void mt_calls_free(char **call, int n);

/* ---- results ---- */
/* DIR/results.sqlite: tables points, settings, runs, as they are now. What else is in the file stays. IO. Where the build has no
 * SQLite: nothing, and *written is false. */
MT_MUST_USE mt_status mt_study_store(const struct mt_study *t, const char *path, bool *written, mt_err *e);
#endif
