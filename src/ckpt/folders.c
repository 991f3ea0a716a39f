#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/ckpt.h"

void mt_ckpt_folder(const char *run_dir, int64_t step, char path[MT_CKPT_PATH])
{
    snprintf(path, MT_CKPT_PATH, "%s/ckpt/step-%08" PRId64, run_dir, step);
}

/* The nearest of the folders above that exists, by the name that no link and no '..' hides. */
static void real_above(const char *path, char real[PATH_MAX])
{
    char above[MT_CKPT_PATH];
    snprintf(above, sizeof above, "%s", path);
    for (char *cut = strrchr(above, '/'); cut && cut > above; cut = strrchr(above, '/')) {
        *cut = '\0';
        if (realpath(above, real)) return;
    }
    if (!realpath(path[0] == '/' ? "/" : ".", real)) real[0] = '\0';
}

mt_status mt_ckpt_vacant(const char *to, mt_err *e)
{
    char above[PATH_MAX], manifest[PATH_MAX + 16];
    struct stat st;
    MT_REQUIRE(strlen(to) < MT_CKPT_PATH, e, MT_CONFIG, "the path is too long: '%.60s...'", to);
    MT_REQUIRE(lstat(to, &st), e, MT_CONFIG, "'%s' is there already; name a folder that is not", to);
    real_above(to, above);
    for (char *cut = above + strlen(above); cut; cut = strrchr(above, '/')) {
        *cut = '\0';
        snprintf(manifest, sizeof manifest, "%s/manifest.json", above);
        MT_REQUIRE(
            lstat(manifest, &st), e, MT_CONFIG,
            "'%s' would lie in the checkpoint '%s', where retention would remove it; name a folder elsewhere",
            to, above);
    }
    return MT_OK;
}

bool mt_ckpt_steps_have(const struct mt_ckpt_steps *x, int64_t step)
{
    for (int64_t i = 0; i < x->n; i++)
        if (x->step[i] == step) return true;
    return false;
}
void mt_ckpt_steps_add(struct mt_ckpt_steps *x, int64_t step)
{
    if (x->n < MT_CKPT_STEPS && !mt_ckpt_steps_have(x, step)) x->step[x->n++] = step;
}
void mt_ckpt_steps_remove(struct mt_ckpt_steps *x, int64_t step)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < x->n; i++)
        if (x->step[i] != step) x->step[kept++] = x->step[i];
    x->n = kept;
}

bool mt_ckpt_was_complete(const char *folder)
{
    char manifest[MT_CKPT_PATH + 32];
    struct stat st;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", folder);
    return !stat(manifest, &st) || errno != ENOENT;
}

/* Only the one way to write a step is a checkpoint's name: not "step-7", nor "step-00000007.aside". */
static bool step_of(const char *name, int64_t *step)
{
    char again[32];
    if (strncmp(name, "step-", 5)) return false;
    errno = 0;
    *step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step-%08" PRId64, *step);
    return !errno && *step >= 0 && !strcmp(name, again);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static mt_status list_folder(DIR *d, const char *path, int64_t **step, int64_t *n, mt_err *e)
{
    int64_t room = 0, s;
    errno = 0;
    for (struct dirent *f; (f = readdir(d)); errno = 0) {
        if (!step_of(f->d_name, &s)) continue;
        if (*n == room) {
            room = room ? 2 * room : 64;
            int64_t *more = realloc(*step, (size_t)room * sizeof *more);
            MT_REQUIRE(more, e, MT_IO, "no memory to list '%s'", path);
            *step = more;
        }
        (*step)[(*n)++] = s;
    }
    MT_REQUIRE(!errno, e, MT_IO, "cannot list '%s': %s", path, strerror(errno));
    if (*n) qsort(*step, (size_t)*n, sizeof **step, ascending);
    return MT_OK;
}

mt_status mt_ckpt_list(const char *run_dir, int64_t **step, int64_t *n, mt_err *e)
{
    char path[MT_CKPT_PATH];
    *step = NULL;
    *n = 0;
    MT_REQUIRE(strlen(run_dir) + MT_CKPT_ROOM < MT_CKPT_PATH, e, MT_CONFIG,
               "the path of the run is too long: '%.60s...', %zu bytes; at most %d can be used", run_dir,
               strlen(run_dir), MT_CKPT_PATH - MT_CKPT_ROOM - 1);
    snprintf(path, sizeof path, "%s/ckpt", run_dir);
    DIR *d = opendir(path);
    if (!d && (errno == ENOENT || errno == ENOTDIR)) return MT_OK;
    MT_REQUIRE(d, e, MT_IO, "cannot list '%s': %s", path, strerror(errno));
    mt_status st = list_folder(d, path, step, n, e);
    closedir(d);
    if (st == MT_OK) return MT_OK;
    free(*step);
    *step = NULL;
    *n = 0;
    return st;
}
