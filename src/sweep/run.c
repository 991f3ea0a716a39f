/* run.c: the runs of a sweep as child processes of this one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/print.h"
#include "ckpt/file.h"
#include "config/table.h"
#include "sweep/study.h"
#include "train/metrics.h"
#include "train/say.h"

/* ---- folders ---- */
/* Checkpoints are not what a sweep is for, unless it says so. */
static mt_status point_config(const struct mt_study *t, const struct mt_study_point *p, mt_config *c,
                              mt_err *e)
{
    MT_TRY(mt_sweep_config(t->sweep, p->p, true, c, e));
    if (!mt_sweep_value(p->p, MT_OPTION_ckpt_interval)) c->ckpt_interval = 0;
    if (!mt_sweep_value(p->p, MT_OPTION_ckpt_at_end)) c->ckpt_at_end = false;
    if (!mt_sweep_value(p->p, MT_OPTION_ckpt_keep_last)) c->ckpt_keep_last = 1;
    return MT_OK;
}
static mt_status prepare_point(const struct mt_study *t, const struct mt_study_point *p, mt_config *c,
                               mt_err *e)
{
    char path[MT_CONFIG_PATH];
    FILE *f;
    MT_REQUIRE(mt_study_path(t, p, "", path, sizeof path), e, MT_CONFIG, "the sweep's dir is too long");
    MT_TRY(mt_make_folders(path, e));
    MT_REQUIRE(mt_study_path(t, p, "config.yaml", path, sizeof path), e, MT_CONFIG,
               "the sweep's dir is too long");
    MT_TRY(point_config(t, p, c, e));
    MT_TRY(mt_print_open(&f, path, e));
    mt_config_dump(c, f);
    return mt_print_close(f, path, e);
}
mt_status mt_study_prepare(const struct mt_study *t, mt_err *e)
{
    mt_config *c = malloc(sizeof *c);
    mt_status st = c ? MT_OK : mt_err_set(e, MT_IO, "no memory for a configuration");
    for (int i = 0; i < t->n && st == MT_OK; i++)
        if (t->point[i].verdict == MT_POINT_RUNS) st = prepare_point(t, &t->point[i], c, e);
    free(c);
    return st;
}

/* ---- one process ---- */
struct child {
    pid_t pid; /* 0: none */
    struct mt_study_item item;
    double began;
    bool late;
};
struct pool {
    struct mt_study *t;
    const struct mt_study_launcher *l;
    struct child *child; /* owned: [at_once] */
    int running, begun, ended, all;
    bool stopping;
    sigset_t signals, before;
};

enum { WORDS = MT_LAUNCH_WORDS + 16, TEXT = MT_CONFIG_PATH + 32 };
/* Words of a run's command line. */
struct call {
    char *word[WORDS];
    char config[TEXT], dir[TEXT], log[TEXT], seed[64], stop[64], ranks[32];
    int n;
};
static void add(struct call *c, const char *word)
{
    MT_ASSERT(c->n < WORDS - 1);
    c->word[c->n++] = (char *)word;
}
static mt_status write_call(const struct pool *q, struct mt_study_item x, struct call *c, mt_err *e)
{
    const struct mt_study_point *p = &q->t->point[x.point];
    const mt_sweep *s = q->t->sweep;
    char file[64], dir[64];
    c->n = 0;
    snprintf(file, sizeof file, "run-%d.log", x.repeat + 1);
    snprintf(dir, sizeof dir, "run-%d", x.repeat + 1);
    memcpy(c->dir, "run.dir=", 9);
    MT_REQUIRE(mt_study_path(q->t, p, file, c->log, MT_CONFIG_PATH) &&
                   mt_study_path(q->t, p, dir, c->dir + 8, MT_CONFIG_PATH) &&
                   mt_study_path(q->t, p, "config.yaml", c->config, MT_CONFIG_PATH),
               e, MT_CONFIG, "the sweep's dir is too long");
    for (int i = 0; i < q->l->n; i++) add(c, q->l->word[i]);
    add(c, q->l->program);
    add(c, "train");
    add(c, c->config);
    add(c, c->dir);
    if (s->o.seeds == MT_SEEDS_DIFFERENT && x.repeat) {
        snprintf(c->seed, sizeof c->seed, "train.seed=%" PRId64, p->seed + x.repeat);
        add(c, c->seed);
    }
    if (p->due < p->steps) {
        snprintf(c->stop, sizeof c->stop, "run.stop_after=%" PRId64, p->due - p->run[x.repeat].steps);
        add(c, c->stop);
    }
    if (q->l->fake_ranks) {
        snprintf(c->ranks, sizeof c->ranks, "--fake-ranks=%d", q->l->fake_ranks);
        add(c, c->ranks);
    }
    c->word[c->n] = NULL;
    return MT_OK;
}

/* In the child: never returns. */
static void become(const struct pool *q, const struct call *c, pid_t parent)
{
    int log = open(c->log, O_WRONLY | O_CREAT | O_APPEND, 0644), nothing = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    if (log < 0 || nothing < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || dup2(nothing, 0) < 0) _exit(127);
    sigprocmask(SIG_SETMASK, &q->before, NULL);
    execvp(c->word[0], c->word);
    dprintf(2, "moetitan: cannot start %s: %s\n", c->word[0], strerror(errno));
    _exit(127);
}
static mt_status begin(struct pool *q, struct child *k, struct mt_study_item x, mt_err *e)
{
    struct call *c = malloc(sizeof *c);
    pid_t parent = getpid();
    MT_REQUIRE(c, e, MT_IO, "no memory for a command line");
    mt_status st = write_call(q, x, c, e);
    if (st == MT_OK) {
        fflush(NULL);
        *k = (struct child){.pid = fork(), .item = x, .began = mt_now()};
        if (!k->pid) become(q, c, parent);
        if (k->pid < 0) {
            k->pid = 0;
            st = mt_err_set(e, MT_IO, "cannot start a process for a run: %s", strerror(errno));
        } else {
            q->running++;
        }
    }
    free(c);
    return st;
}

/* ---- its end ---- */
/* The last line of a log that says something. */
static void last_line(const char *path, char *out, size_t size)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    *out = 0;
    if (!f) return;
    if (!fseek(f, -4096, SEEK_END))
        (void)fgets(line, sizeof line, f);
    else
        rewind(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line) snprintf(out, size, "%.*s", (int)size - 1, line);
    }
    fclose(f);
}
/* As a JSON string. */
static void put_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < ' ')
            fprintf(f, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static mt_status note_end(const struct pool *q, const struct child *k, int code, const char *why, mt_err *e)
{
    char path[TEXT], tmp[TEXT + 8], file[64], host[64] = "";
    const struct mt_study_point *p = &q->t->point[k->item.point];
    FILE *f;
    snprintf(file, sizeof file, "run-%d.json", k->item.repeat + 1);
    MT_REQUIRE(mt_study_path(q->t, p, file, path, MT_CONFIG_PATH), e, MT_CONFIG,
               "the sweep's dir is too long");
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    gethostname(host, sizeof host - 1);
    MT_TRY(mt_print_open(&f, tmp, e));
    fprintf(f, "{\"exit_code\": %d, \"seconds\": %.3f, \"host\": ", code, mt_now() - k->began);
    put_string(f, host);
    fprintf(f, ", \"why\": ");
    put_string(f, why);
    fprintf(f, "}\n");
    MT_TRY(mt_print_close(f, tmp, e));
    MT_REQUIRE(!rename(tmp, path), e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    return MT_OK;
}

static mt_status end(struct pool *q, struct child *k, int status, mt_err *e)
{
    const struct mt_study_point *p = &q->t->point[k->item.point];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    char why[192] = "", log[MT_CONFIG_PATH], file[64], words[512];
    snprintf(file, sizeof file, "run-%d.log", k->item.repeat + 1);
    if (k->late)
        snprintf(why, sizeof why, "took longer than timeout");
    else if (code != MT_OK && code != MT_PREEMPTED && mt_study_path(q->t, p, file, log, sizeof log))
        last_line(log, why, sizeof why);
    if (k->late && (code == MT_OK || code == MT_PREEMPTED)) code = MT_HANG;
    k->pid = 0;
    q->running--;
    q->ended++;
    if (!q->l->quiet)
        mt_say("run %3d/%d  point %d, repeat %d: %s in %.1f s  %s%s%s\n", q->ended, q->all, k->item.point + 1,
               k->item.repeat + 1,
               code == MT_OK          ? "done"
               : code == MT_PREEMPTED ? "stopped"
                                      : "failed",
               mt_now() - k->began, mt_sweep_words(p->p, words, sizeof words), *why ? " -- " : "", why);
    return note_end(q, k, code, why, e);
}

/* ---- all of them ---- */
static mt_status reap(struct pool *q, mt_err *e)
{
    mt_status st = MT_OK;
    for (int64_t i = 0; i < q->l->at_once; i++) {
        struct child *k = &q->child[i];
        int status;
        if (!k->pid) continue;
        if (waitpid(k->pid, &status, WNOHANG) == k->pid) {
            mt_status s = end(q, k, status, e);
            if (st == MT_OK) st = s;
        } else if (!k->late && mt_now() - k->began > q->t->sweep->o.timeout) {
            k->late = true;
            kill(k->pid, SIGTERM);
        } else if (k->late && mt_now() - k->began > 1.5 * q->t->sweep->o.timeout + 30) {
            kill(k->pid, SIGKILL);
        }
    }
    return st;
}
static void ask_to_stop(struct pool *q)
{
    q->stopping = true;
    for (int64_t i = 0; i < q->l->at_once; i++)
        if (q->child[i].pid) kill(q->child[i].pid, SIGTERM);
}
/* Until a child ends, or some time has passed. */
static void pause_for_news(struct pool *q)
{
    const struct timespec while_ = {.tv_nsec = 50000000};
    int signal = sigtimedwait(&q->signals, NULL, &while_);
    if (signal > 0 && signal != SIGCHLD) ask_to_stop(q);
}
static mt_status loop(struct pool *q, const struct mt_study_item *item, mt_err *e)
{
    mt_status st = MT_OK;
    while (q->running || (q->begun < q->all && !q->stopping && st == MT_OK)) {
        for (int64_t i = 0; i < q->l->at_once && q->begun < q->all && !q->stopping && st == MT_OK; i++)
            if (!q->child[i].pid) st = begin(q, &q->child[i], item[q->begun++], e);
        if (st != MT_OK && !q->stopping) ask_to_stop(q);
        pause_for_news(q);
        mt_status s = reap(q, e);
        if (st == MT_OK) st = s;
    }
    MT_TRY(st);
    MT_REQUIRE(!q->stopping, e, MT_PREEMPTED,
               "stopped with %d of %d runs ended; the same command goes on from there", q->ended, q->all);
    return MT_OK;
}

mt_status mt_study_execute(struct mt_study *t, const struct mt_study_item *item, int n,
                           const struct mt_study_launcher *l, mt_err *e)
{
    struct pool q = {.t = t, .l = l, .all = n, .child = calloc((size_t)l->at_once + 1, sizeof *q.child)};
    MT_REQUIRE(q.child, e, MT_IO, "no memory for %lld processes", (long long)l->at_once);
    sigemptyset(&q.signals);
    sigaddset(&q.signals, SIGTERM);
    sigaddset(&q.signals, SIGINT);
    sigaddset(&q.signals, SIGUSR1);
    sigaddset(&q.signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &q.signals, &q.before);
    mt_status st = loop(&q, item, e);
    sigprocmask(SIG_SETMASK, &q.before, NULL);
    free(q.child);
    return st;
}
