/* call.c: the runs of a sweep as command lines: how one is written, and kept in a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "ckpt/file.h"
#include "sweep/study.h"

/* ---- configurations ---- */
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

/* ---- calls ---- */
mt_status mt_study_call(const struct mt_study *t, struct mt_study_item x, char out[static MT_CALL_BYTES],
                        mt_err *e)
{
    const struct mt_study_point *p = &t->point[x.point];
    char config[MT_CONFIG_PATH], dir[MT_CONFIG_PATH], name[32];
    int64_t done = p->run[x.repeat].steps;
    snprintf(name, sizeof name, "run-%d", x.repeat + 1);
    MT_REQUIRE(mt_study_path(t, p, "config.yaml", config, sizeof config) &&
                   mt_study_path(t, p, name, dir, sizeof dir) && !strpbrk(dir, "\t\n"),
               e, MT_CONFIG, "the sweep's dir is too long, or has tabs: '%.200s'", t->sweep->o.dir);
    int n = snprintf(out, MT_CALL_BYTES, "%s\trun.dir=%s", config, dir);
    if (t->sweep->o.seeds == MT_SEEDS_DIFFERENT && x.repeat)
        n += snprintf(out + n, (size_t)(MT_CALL_BYTES - n), "\ttrain.seed=%" PRId64, p->seed + x.repeat);
    if (p->due < p->steps && p->due > done)
        snprintf(out + n, (size_t)(MT_CALL_BYTES - n), "\trun.stop_after=%" PRId64, p->due - done);
    return MT_OK;
}

void mt_calls_free(char **call, int n)
{
    for (int i = 0; i < n; i++) free(call[i]);
    free(call);
}
mt_status mt_calls_read(const char *path, int64_t from, int64_t most, char ***call, int *n, mt_err *e)
{
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "r");
    *n = 0;
    *call = calloc((size_t)most + 1, sizeof **call);
    mt_status st = *call ? MT_OK : mt_err_set(e, MT_IO, "no memory for %lld runs", (long long)most);
    if (st == MT_OK && !f) st = mt_err_set(e, MT_CONFIG, "cannot read '%s': %s", path, strerror(errno));
    for (int64_t i = 0; st == MT_OK && i < from + most && getline(&line, &room, f) > 0; i++) {
        line[strcspn(line, "\n")] = 0;
        if (i < from) continue;
        if (!((*call)[*n] = strdup(line)))
            st = mt_err_set(e, MT_IO, "no memory for a run");
        else
            ++*n;
    }
    if (st == MT_OK && !*n) st = mt_err_set(e, MT_CONFIG, "'%s' has no line %lld", path, (long long)from + 1);
    free(line);
    if (f) fclose(f);
    return st;
}
