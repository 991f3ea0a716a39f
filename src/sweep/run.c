/* run.c: the runs of a sweep as child processes of this one. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/print.h"
#include "ckpt/file.h"
#include "sweep/study.h"
#include "train/history.h"
#include "train/metrics.h"
#include "train/say.h"

struct child {
    pid_t pid; /* 0: none */
    int call;
    double began;
    bool late;
};
struct pool {
    char *const *call;
    const struct mt_launcher *l;
    struct child *child; /* owned: [at_once] */
    int running, begun, ended, all;
    bool stopping;
    sigset_t signals, before;
};
enum { WORDS = MT_LAUNCH_WORDS + 80, PATH = MT_CONFIG_PATH + 32, WHY = 192 };

/* The call's run.dir, and `end` behind it. */
static mt_status beside(const char *call, const char *end, char out[static PATH], mt_err *e)
{
    static const char key[] = "\trun.dir=";
    const char *at = strstr(call, key);
    MT_REQUIRE(at, e, MT_CONFIG, "a run without run.dir: '%.200s'", call);
    at += sizeof key - 1;
    int n = (int)strcspn(at, "\t\n");
    MT_REQUIRE(n > 0 && n < MT_CONFIG_PATH, e, MT_CONFIG, "a run.dir of %d bytes: '%.200s'", n, call);
    snprintf(out, PATH, "%.*s%s", n, at, end);
    return MT_OK;
}

/* ---- one process ---- */
struct words {
    const char *word[WORDS];
    char text[MT_CALL_BYTES], ranks[32], log[PATH];
    int n;
};
static mt_status split(const struct pool *q, int call, struct words *w, mt_err *e)
{
    char *rest = NULL;
    w->n = 0;
    for (int i = 0; i < q->l->n; i++) w->word[w->n++] = q->l->word[i];
    w->word[w->n++] = q->l->program;
    w->word[w->n++] = "train";
    snprintf(w->text, sizeof w->text, "%s", q->call[call]);
    for (char *word = strtok_r(w->text, "\t\n", &rest); word; word = strtok_r(NULL, "\t\n", &rest)) {
        MT_REQUIRE(w->n < WORDS - 2, e, MT_CONFIG, "more than %d words: '%.200s'", WORDS - 2, q->call[call]);
        w->word[w->n++] = word;
    }
    snprintf(w->ranks, sizeof w->ranks, "--fake-ranks=%d", q->l->fake_ranks);
    if (q->l->fake_ranks) w->word[w->n++] = w->ranks;
    w->word[w->n] = NULL;
    return beside(q->call[call], ".log", w->log, e);
}

/* In the child: never returns. */
static void become(const struct pool *q, const struct words *w, pid_t parent)
{
    int log = open(w->log, O_WRONLY | O_CREAT | O_APPEND, 0644), nothing = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    if (log < 0 || nothing < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || dup2(nothing, 0) < 0) _exit(127);
    sigprocmask(SIG_SETMASK, &q->before, NULL);
    execvp(w->word[0], (char *const *)w->word);
    dprintf(2, "moetitan: cannot start %s: %s\n", w->word[0], strerror(errno));
    _exit(127);
}
static mt_status begin(struct pool *q, struct child *k, int call, mt_err *e)
{
    struct words *w = malloc(sizeof *w);
    pid_t parent = getpid();
    MT_REQUIRE(w, e, MT_IO, "no memory for a command line");
    mt_status st = split(q, call, w, e);
    if (st == MT_OK) {
        fflush(NULL);
        *k = (struct child){.pid = fork(), .call = call, .began = mt_now()};
        if (!k->pid) become(q, w, parent);
        if (k->pid < 0) {
            k->pid = 0;
            st = mt_err_set(e, MT_IO, "cannot start a process for a run: %s", strerror(errno));
        } else {
            q->running++;
        }
    }
    free(w);
    return st;
}

/* ---- its end ---- */
/* The last line of a log that says something. */
static void last_line(const char *path, char out[static WHY])
{
    char line[1024];
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (fseek(f, -4096, SEEK_END)) rewind(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line) snprintf(out, WHY, "%.*s", WHY - 1, line);
    }
    fclose(f);
}
/* What the run says itself of its end, which launchers may hide. */
struct ending {
    int code;
    char why[WHY];
};
static mt_status take_ending(void *arg, const struct cJSON *o, mt_err *e)
{
    struct ending *x = arg;
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(o, "code"),
                *why = cJSON_GetObjectItemCaseSensitive(o, "message");
    (void)e;
    if (!cJSON_IsNumber(code) || !(code->valuedouble > 0 && code->valuedouble < 256)) return MT_OK;
    x->code = code->valueint;
    if (cJSON_IsString(why)) snprintf(x->why, sizeof x->why, "%.*s", WHY - 1, why->valuestring);
    x->why[strcspn(x->why, "\n")] = 0;
    return MT_OK;
}
static struct ending find_ending(const char *call, int code)
{
    struct ending x = {.code = code};
    char path[PATH];
    mt_err ignored = {0};
    int64_t others;
    if (code == MT_OK) return x;
    if (beside(call, "/exit.json", path, &ignored) != MT_OK ||
        mt_json_lines(path, take_ending, &x, &others, &ignored) != MT_OK)
        return x;
    if (!*x.why && x.code != MT_PREEMPTED && beside(call, ".log", path, &ignored) == MT_OK)
        last_line(path, x.why);
    return x;
}

static mt_status note_end(const struct child *k, const char *call, const struct ending *x, mt_err *e)
{
    char path[PATH], tmp[PATH + 8], host[64] = "";
    MT_TRY(beside(call, ".json", path, e));
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    gethostname(host, sizeof host - 1);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "exit_code", x->code);
    cJSON_AddNumberToObject(o, "seconds", mt_now() - k->began);
    cJSON_AddStringToObject(o, "host", host);
    cJSON_AddStringToObject(o, "why", x->why);
    mt_status st = mt_print_json(o, false, tmp, e);
    if (st == MT_OK && rename(tmp, path))
        st = mt_err_set(e, MT_IO, "cannot write '%s': %s", path, strerror(errno));
    return st;
}

static mt_status end(struct pool *q, struct child *k, int status, mt_err *e)
{
    const char *call = q->call[k->call];
    struct ending x = find_ending(call, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    char dir[PATH];
    if (k->late) x = (struct ending){MT_HANG, "took longer than timeout"};
    k->pid = 0;
    q->running--;
    q->ended++;
    MT_TRY(beside(call, "", dir, e));
    mt_say("run %3d/%d  %s in %.1f s: %s%s%s\n", q->ended, q->all,
           x.code == MT_OK          ? "done"
           : x.code == MT_PREEMPTED ? "stopped"
                                    : "failed",
           mt_now() - k->began, dir, *x.why ? " -- " : "", x.why);
    return note_end(k, call, &x, e);
}

/* ---- all of them ---- */
static void check_time(const struct pool *q, struct child *k)
{
    double since = mt_now() - k->began, most = q->l->timeout;
    if (!(most > 0) || since <= most) return;
    if (!k->late) kill(k->pid, SIGTERM);
    if (since > 1.5 * most + 30) kill(k->pid, SIGKILL);
    k->late = true;
}
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
        } else {
            check_time(q, k);
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
    const struct timespec some = {.tv_nsec = 50000000};
    int signal = sigtimedwait(&q->signals, NULL, &some);
    if (signal > 0 && signal != SIGCHLD) ask_to_stop(q);
}
static mt_status loop(struct pool *q, mt_err *e)
{
    mt_status st = MT_OK;
    while (q->running || (q->begun < q->all && !q->stopping && st == MT_OK)) {
        for (int64_t i = 0; i < q->l->at_once && q->begun < q->all && !q->stopping && st == MT_OK; i++)
            if (!q->child[i].pid) st = begin(q, &q->child[i], q->begun++, e);
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

mt_status mt_calls_run(char *const *call, int n, const struct mt_launcher *l, mt_err *e)
{
    struct pool q = {
        .call = call, .l = l, .all = n, .child = calloc((size_t)l->at_once + 1, sizeof *q.child)};
    MT_REQUIRE(q.child, e, MT_IO, "no memory for %lld processes", (long long)l->at_once);
    sigemptyset(&q.signals);
    sigaddset(&q.signals, SIGTERM);
    sigaddset(&q.signals, SIGINT);
    sigaddset(&q.signals, SIGUSR1);
    sigaddset(&q.signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &q.signals, &q.before);
    mt_status st = loop(&q, e);
    sigprocmask(SIG_SETMASK, &q.before, NULL);
    free(q.child);
    return st;
}
