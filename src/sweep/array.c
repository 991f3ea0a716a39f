/* array.c: the runs of a sweep as one array of Slurm jobs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/print.h"
#include "sweep/study.h"

/* ---- files ---- */
static mt_status name_files(struct mt_study_array *a, const struct mt_study *t, int number, mt_err *e)
{
    const struct {
        char *out;
        const char *end;
    } files[] = {{a->script, "sbatch"}, {a->tasks, "tasks"}, {a->note, "job"}};
    a->number = number;
    for (int i = 0; i < 3; i++)
        MT_REQUIRE(snprintf(files[i].out, MT_CONFIG_PATH, "%s/array-%03d.%s", t->sweep->o.dir, number,
                            files[i].end) < MT_CONFIG_PATH,
                   e, MT_CONFIG, "the sweep's dir is too long");
    return MT_OK;
}
static mt_status next_files(struct mt_study_array *a, const struct mt_study *t, mt_err *e)
{
    int n = 1;
    do MT_TRY(name_files(a, t, n++, e));
    while (!access(a->tasks, F_OK));
    return MT_OK;
}

static mt_status write_tasks(struct mt_study_array *a, const struct mt_study *t,
                             const struct mt_study_item *item, int n, mt_err *e)
{
    FILE *f;
    int64_t each = t->sweep->o.slurm_runs;
    MT_TRY(mt_print_open(&f, a->tasks, e));
    for (int i = 0; i < n; i++)
        fprintf(f, "%s/%d%c", t->point[item[i].point].id, item[i].repeat + 1,
                (i + 1) % each && i + 1 < n ? ' ' : '\n');
    a->jobs = (int)((n + each - 1) / each);
    return mt_print_close(f, a->tasks, e);
}

static void option(FILE *f, const char *name, const char *value)
{
    if (*value) fprintf(f, "#SBATCH --%s=%s\n", name, value);
}
/* For a shell, in single quotes. */
static void put_quoted(FILE *f, const char *s)
{
    fputc('\'', f);
    for (; *s; s++)
        if (*s == '\'')
            fputs("'\\''", f);
        else
            fputc(*s, f);
    fputc('\'', f);
}

static void write_script(FILE *f, const struct mt_study_array *a, const struct mt_study *t,
                         const char *program)
{
    const mt_sweep_options *o = &t->sweep->o;
    const char *slash = strrchr(t->sweep->name, '/'), *rest = o->slurm_options;
    char most[24] = "";
    if (o->slurm_jobs) snprintf(most, sizeof most, "%%%lld", (long long)o->slurm_jobs);
    fprintf(f, "#!/bin/bash\n# The runs of %s that were due, packed into jobs: %s has a line for each job.\n",
            t->sweep->name, a->tasks);
    fprintf(f, "#SBATCH --job-name=%s\n#SBATCH --array=0-%d%s\n#SBATCH --nodes=%lld\n#SBATCH --ntasks=%lld\n",
            slash ? slash + 1 : t->sweep->name, a->jobs - 1, most, (long long)o->slurm_nodes,
            (long long)(o->ranks * o->at_once));
    fprintf(f, "#SBATCH --time=%lld\n#SBATCH --output=%s/array-%03d-%%a.log\n",
            (long long)((o->slurm_time + 59) / 60), o->dir, a->number);
    fprintf(f, "#SBATCH --signal=B:TERM@60\n"); /* runs that have a checkpoint to go on from save it */
    option(f, "partition", o->slurm_partition);
    option(f, "account", o->slurm_account);
    for (; *(rest += strspn(rest, " ")); rest += strcspn(rest, " "))
        fprintf(f, "#SBATCH %.*s\n", (int)strcspn(rest, " "), rest);
    fprintf(f,
            "set -u\nexport SRUN_CPUS_PER_TASK=\"${SLURM_CPUS_PER_TASK:-1}\" # srun does not inherit it\n");
    if (*o->slurm_setup) fprintf(f, "%s\n", o->slurm_setup);
    fprintf(f, "exec ");
    put_quoted(f, program);
    fprintf(f, " sweep ");
    put_quoted(f, t->sweep->name);
    fprintf(f, " --task ");
    put_quoted(f, a->tasks);
    fprintf(f, ":\"$SLURM_ARRAY_TASK_ID\"\n");
}

mt_status mt_array_write(struct mt_study_array *a, const struct mt_study *t, const struct mt_study_item *item,
                         int n, const char *program, mt_err *e)
{
    FILE *f;
    MT_TRY(next_files(a, t, e));
    MT_TRY(write_tasks(a, t, item, n, e));
    MT_TRY(mt_print_open(&f, a->script, e));
    write_script(f, a, t, program);
    return mt_print_close(f, a->script, e);
}

/* ---- Slurm's programs ---- */
/* Runs it, with its standard output in `out`; what it says on the other goes where ours does. Returns its exit code. */
static int call(const char *const word[], char *out, size_t size, mt_err *e)
{
    int ends[2], status;
    size_t at = 0;
    if (pipe(ends)) return mt_err_set(e, MT_IO, "cannot make a pipe: %s", strerror(errno)), -1;
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execvp(word[0], (char *const *)word);
        dprintf(2, "moetitan: cannot start %s: %s\n", word[0], strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t k; pid > 0 && (k = read(ends[0], out + at, size - 1 - at)) > 0;) at += (size_t)k;
    close(ends[0]);
    out[at] = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return mt_err_set(e, MT_IO, "cannot start %s", word[0]), -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

mt_status mt_array_submit(const struct mt_study_array *a, char job[static 32], mt_err *e)
{
    char said[256] = "";
    const char *const word[] = {"sbatch", "--parsable", a->script, NULL};
    int code = call(word, said, sizeof said, e);
    mt_status st = MT_OK;
    FILE *f;
    snprintf(job, 32, "%.*s", (int)strspn(said, "0123456789"), said);
    if (code != 0 || !*job)
        st = mt_err_set(
            e, MT_IO,
            "sbatch did not take %s (its exit code is %d, its words are above); the file is removed",
            a->script, code);
    if (st == MT_OK) st = mt_print_open(&f, a->note, e);
    if (st == MT_OK) {
        fprintf(f, "%s\n", job);
        return mt_print_close(f, a->note, e);
    }
    unlink(a->script);
    unlink(a->tasks);
    return st;
}

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (!strncmp(text, line, n) && (text[n] == '\n' || !text[n])) return true;
    return false;
}
/* The job that took files number `number`; "": none did. */
static void read_note(const struct mt_study_array *a, char job[static 32])
{
    FILE *f = fopen(a->note, "r");
    if (!f || fscanf(f, "%31[0-9]", job) != 1) *job = 0;
    if (f) fclose(f);
}
/* The newest of this sweep's jobs that `said`, Slurm's list, has; NULL: that was submitted at all. */
static mt_status newest_job(const struct mt_study *t, const char *said, char job[static 32], mt_err *e)
{
    struct mt_study_array a;
    char id[32];
    *job = 0;
    for (int i = 1;; i++) {
        MT_TRY(name_files(&a, t, i, e));
        if (access(a.tasks, F_OK)) return MT_OK;
        read_note(&a, id);
        if (*id && (!said || has_line(said, id))) memcpy(job, id, sizeof id);
    }
}
mt_status mt_array_pending(const struct mt_study *t, char job[static 32], mt_err *e)
{
    enum { ROOM = 1 << 17 }; /* a line for each running job of an array */
    static const char *const word[] = {"squeue", "-h", "--me", "-o", "%F", NULL};
    MT_TRY(newest_job(t, NULL, job, e));
    if (!*job) return MT_OK;
    char *said = malloc(ROOM);
    mt_status st = said ? MT_OK : mt_err_set(e, MT_IO, "no memory for the list of jobs");
    if (st == MT_OK && call(word, said, ROOM, e) != 0)
        st = mt_err_set(e, MT_IO, "squeue does not say whether job %s is still there (its words are above)", job);
    if (st == MT_OK) st = newest_job(t, said, job, e);
    free(said);
    return st;
}

/* ---- one job ---- */
static bool find(const struct mt_study *t, const char *word, struct mt_study_item *x)
{
    char id[17] = "";
    int repeat = 0;
    if (sscanf(word, "%16[0-9a-f]/%d", id, &repeat) != 2) return false;
    for (x->point = 0; x->point < t->n && strcmp(t->point[x->point].id, id) != 0; x->point++) continue;
    x->repeat = repeat - 1;
    return x->point < t->n && x->repeat >= 0 && x->repeat < t->repeats;
}

static mt_status read_line(const struct mt_study *t, FILE *f, const char *task, long number,
                           struct mt_study_item *list, int *n, mt_err *e)
{
    char *line = NULL, *rest = NULL;
    size_t room = 0;
    bool found = false;
    mt_status st = MT_OK;
    for (long i = 0; i <= number; i++) found = getline(&line, &room, f) > 0;
    if (!found) st = mt_err_set(e, MT_CONFIG, "--task %s: the file has no such line", task);
    for (char *word = found ? strtok_r(line, " \n", &rest) : NULL; word && st == MT_OK;
         word = strtok_r(NULL, " \n", &rest)) {
        if (find(t, word, &list[*n]) && *n < t->n * t->repeats)
            ++*n;
        else
            st = mt_err_set(e, MT_CONFIG,
                            "--task %s: %s is no run of this sweep: has it changed since it was submitted?",
                            task, word);
    }
    free(line);
    return st;
}

mt_status mt_array_task(const struct mt_study *t, const char *task, struct mt_study_item **list, int *n,
                        mt_err *e)
{
    char path[MT_CONFIG_PATH], *end = NULL;
    const char *colon = strrchr(task, ':');
    long number = colon ? strtol(colon + 1, &end, 10) : -1;
    *list = NULL;
    *n = 0;
    MT_REQUIRE(colon && end != colon + 1 && !*end && number >= 0 && colon - task < MT_CONFIG_PATH, e,
               MT_CONFIG, "--task needs FILE:NUMBER, not '%.60s'", task);
    snprintf(path, sizeof path, "%.*s", (int)(colon - task), task);
    FILE *f = fopen(path, "r");
    MT_REQUIRE(f, e, MT_CONFIG, "--task: cannot read '%s': %s", path, strerror(errno));
    *list = calloc((size_t)t->n * (size_t)t->repeats + 1, sizeof **list);
    mt_status st = *list ? read_line(t, f, task, number, *list, n, e)
                         : mt_err_set(e, MT_IO, "no memory for a list of runs");
    fclose(f);
    return st;
}
