#include "train/ending.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { PATH = MT_CONFIG_PATH + 48 };
static void path_of(const struct mt_ending *x, char path[PATH])
{
    snprintf(path, PATH, "%s/exit.json", x->cfg->run_dir);
}

void mt_ending_begin(struct mt_ending *x)
{
    char path[PATH];
    path_of(x, path);
    if (x->job->me == 0) unlink(path);
    x->ours = true;
}

static char *text_of(const struct mt_ending *x, int code, const char *name, const char *message)
{
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    const char *job = getenv("SLURM_JOB_ID");
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "code", code);
    cJSON_AddStringToObject(o, "name", name);
    cJSON_AddStringToObject(o, "message", message);
    cJSON_AddNumberToObject(o, "step", (double)x->steps);
    cJSON_AddNumberToObject(o, "rank", x->job->first);
    cJSON_AddStringToObject(o, "time", when);
    if (job && *job)
        cJSON_AddStringToObject(o, "job", job);
    else
        cJSON_AddNullToObject(o, "job");
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

/* Whole or not at all, and never over another's: a link fails where there is one. */
static void write_first(const struct mt_ending *x, int code, const char *name, const char *message)
{
    char path[PATH], own[PATH];
    path_of(x, path);
    snprintf(own, sizeof own, "%s/.exit-%d.json", x->cfg->run_dir, x->job->me);
    char *text = text_of(x, code, name, message);
    FILE *f = text ? fopen(own, "w") : NULL;
    if (f) {
        fprintf(f, "%s\n", text);
        bool whole = !ferror(f);
        if (!fclose(f) && whole && link(own, path)) whole = false; /* somebody's is there */
        unlink(own);
    }
    cJSON_free(text);
}

void mt_ending_write(struct mt_ending *x, int code, const char *name, const char *message)
{
    if (x->ours) write_first(x, code, name, message);
}

void mt_ending_last(struct mt_ending *x, mt_status st, const mt_err *e)
{
    char path[PATH];
    if (x->job->me != 0) return;
    if (x->ours) {
        write_first(x, (int)st, mt_status_name(st), e->msg);
        return;
    }
    int lock = open(x->cfg->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return;
    if (!flock(lock, LOCK_EX | LOCK_NB)) {
        path_of(x, path);
        unlink(path);
        write_first(x, (int)st, mt_status_name(st), e->msg);
    }
    close(lock);
}
