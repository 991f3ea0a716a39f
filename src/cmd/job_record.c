#include "cmd/job_record.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/features.h"
#include "base/print.h"
#include "base/text.h"
#include "launch/spawn.h"

static const char *file_of(const char *run, const char *id, const char *name, char path[static MT_CHAIN_PATH])
{
    snprintf(path, MT_CHAIN_PATH, "%s/jobs/%.31s/%s", run, id, name);
    return path;
}

static void now_text(char out[static 32])
{
    time_t t = time(NULL);
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}
static bool is_secret(const char *assignment)
{
    static const char *const words[] = {"TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL"};
    size_t n = strcspn(assignment, "=");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = strcasestr(assignment, words[i]);
        if (at && at < assignment + n) return true;
    }
    return false;
}
static mt_status print_environment(FILE *f, mt_err *e)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **sorted = malloc((n + 1) * sizeof *sorted);
    MT_REQUIRE(sorted, e, MT_IO, "no memory to sort the environment");
    memcpy(sorted, environ, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n; i++)
        if (is_secret(sorted[i]))
            fprintf(f, "%.*s=(left out)\n", (int)strcspn(sorted[i], "="), sorted[i]);
        else
            fprintf(f, "%s\n", sorted[i]);
    free(sorted);
    return MT_OK;
}

/* The first line of a file, without what stands before the first quote or colon; nothing if there is no such file. */
static void print_line_of(FILE *f, const char *what, const char *path, const char *key)
{
    char line[256];
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in))
        if (!strncmp(line, key, strlen(key))) {
            fprintf(f, "%-10s %s", what, line + strlen(key));
            break;
        }
    if (in) fclose(in);
}
static void print_versions(FILE *f)
{
    struct utsname u;
    struct mt_spawned x;
    mt_err e = {0};
    const char *modules = getenv("LOADEDMODULES");
    fprintf(f, "%-10s %s, with MPI %d, CUDA %d, NCCL %d; %s\n", "moetitan", MT_VERSION, MT_HAVE_MPI,
            MT_HAVE_CUDA, MT_HAVE_NCCL, __VERSION__);
    if (!uname(&u)) fprintf(f, "%-10s %s %s, %s\n", "kernel", u.sysname, u.release, u.machine);
    print_line_of(f, "system", "/etc/os-release", "PRETTY_NAME=");
    print_line_of(f, "driver", "/proc/driver/nvidia/version", "NVRM version: ");
    if (mt_spawn(&x, (const char *const[]){"sbatch", "--version", NULL}, NULL, &e) == MT_OK && !x.code)
        fprintf(f, "%-10s %s\n", "slurm", x.out);
    if (modules) fprintf(f, "%-10s %s\n", "modules", modules);
}

static cJSON *read_json(const char *path)
{
    enum { MOST = 1 << 16 };
    struct mt_text text = {0};
    mt_err e = {0};
    mt_status st = mt_text_read(&text, path, MOST, MT_IO, &e);
    cJSON *o = st == MT_OK ? cJSON_ParseWithLength(text.at, (size_t)text.bytes) : NULL;
    mt_text_release(&text);
    return o;
}

static mt_status write_begin(const char *run, const char *id, mt_err *e)
{
    char path[MT_CHAIN_PATH], when[32];
    const char *nodes = getenv("SLURM_JOB_NODELIST"), *restart = getenv("SLURM_RESTART_COUNT");
    cJSON *o = cJSON_CreateObject();
    now_text(when);
    cJSON_AddNumberToObject(o, "step", (double)mt_chain_saved(run));
    cJSON_AddStringToObject(o, "nodes", nodes ? nodes : "");
    cJSON_AddStringToObject(o, "restart", restart ? restart : "0");
    cJSON_AddStringToObject(o, "time", when);
    return mt_print_json(o, true, file_of(run, id, "begin.json", path), e);
}

mt_status mt_job_record_begin(const mt_config *c, const char *run, const char *id, mt_err *e)
{
    char path[MT_CHAIN_PATH];
    FILE *f;
    MT_TRY(mt_print_open(&f, file_of(run, id, "environment", path), e));
    mt_status st = print_environment(f, e), closed = mt_print_close(f, path, e);
    MT_TRY(st == MT_OK ? closed : st);
    MT_TRY(mt_print_open(&f, file_of(run, id, "versions", path), e));
    print_versions(f);
    MT_TRY(mt_print_close(f, path, e));
    MT_TRY(mt_print_open(&f, file_of(run, id, "config.yaml", path), e));
    mt_config_dump(c, f);
    MT_TRY(mt_print_close(f, path, e));
    return write_begin(run, id, e);
}

int64_t mt_job_began_at(const char *run, const char *id)
{
    char path[MT_CHAIN_PATH];
    cJSON *o = read_json(file_of(run, id, "begin.json", path));
    const cJSON *step = cJSON_GetObjectItem(o, "step");
    int64_t at = cJSON_IsNumber(step) ? (int64_t)step->valuedouble : -2;
    cJSON_Delete(o);
    return at;
}

static bool read_end(const char *path, const char *id, struct mt_job_end *x)
{
    cJSON *o = read_json(path);
    const cJSON *code = cJSON_GetObjectItem(o, "code"), *text = cJSON_GetObjectItem(o, "message"),
                *step = cJSON_GetObjectItem(o, "step"), *job = cJSON_GetObjectItem(o, "job");
    bool ok = cJSON_IsNumber(code) && cJSON_IsString(text) && cJSON_IsString(job) &&
              !strcmp(job->valuestring, id);
    if (ok) {
        *x = (struct mt_job_end){.code = code->valueint,
                                 .step = cJSON_IsNumber(step) ? (int64_t)step->valuedouble : -1};
        snprintf(x->message, sizeof x->message, "%s", text->valuestring);
    }
    cJSON_Delete(o);
    return ok;
}

static const char *exit_file(const char *run, char path[static MT_CHAIN_PATH])
{
    snprintf(path, MT_CHAIN_PATH, "%s/exit.json", run);
    return path;
}
bool mt_job_exit_read(const char *run, const char *id, struct mt_job_end *x)
{
    char path[MT_CHAIN_PATH];
    return read_end(exit_file(run, path), id, x);
}
bool mt_job_exit_keep(const char *run, const char *id)
{
    char from[MT_CHAIN_PATH], to[MT_CHAIN_PATH];
    exit_file(run, from);
    file_of(run, id, "end.json", to);
    bool kept = !link(from, to);
    (void)unlink(from);
    return kept;
}

bool mt_job_end_read(const char *run, const char *id, struct mt_job_end *x)
{
    char path[MT_CHAIN_PATH];
    return read_end(file_of(run, id, "end.json", path), id, x);
}
mt_status mt_job_end_write(const char *run, const char *id, const struct mt_job_end *x, mt_err *e)
{
    char path[MT_CHAIN_PATH], when[32];
    cJSON *o = cJSON_CreateObject();
    now_text(when);
    cJSON_AddNumberToObject(o, "code", x->code);
    cJSON_AddStringToObject(o, "name", mt_status_name((mt_status)x->code));
    cJSON_AddStringToObject(o, "message", x->message);
    cJSON_AddNumberToObject(o, "step", (double)x->step);
    cJSON_AddStringToObject(o, "job", id);
    cJSON_AddStringToObject(o, "time", when);
    return mt_print_json(o, true, file_of(run, id, "end.json", path), e);
}
