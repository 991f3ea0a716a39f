/* array.c: the runs of a sweep as one array of Slurm jobs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/print.h"
#include "ckpt/file.h"
#include "launch/request.h"
#include "launch/slurm.h"
#include "launch/spawn.h"
#include "sweep/study.h"

_Static_assert(MT_SLURM_ID == 32, "mt_array_submit gives an id of Slurm");

/* ---- files ---- */
static mt_status name_files(struct mt_study_array *a, const struct mt_study *t, int number, mt_err *e)
{
    int n = snprintf(a->points, sizeof a->points, "%s/array-%03d.points", t->sweep->o.dir, number);
    int k = snprintf(a->note, sizeof a->note, "%s/array-%03d.job", t->sweep->o.dir, number);
    MT_REQUIRE(n < MT_CONFIG_PATH && k < MT_CONFIG_PATH, e, MT_CONFIG, "the sweep's dir is too long");
    return MT_OK;
}
static mt_status write_points(struct mt_study_array *a, const struct mt_study *t,
                              const struct mt_study_item *item, int n, mt_err *e)
{
    char call[MT_CALL_BYTES];
    FILE *f;
    mt_status st = MT_OK;
    int number = 0;
    do MT_TRY(name_files(a, t, ++number, e));
    while (!access(a->points, F_OK));
    MT_TRY(mt_print_open(&f, a->points, e));
    for (int i = 0; i < n && st == MT_OK; i++) {
        st = mt_study_call(t, item[i], call, e);
        if (st == MT_OK) fprintf(f, "%s\n", call);
    }
    mt_status closed = mt_print_close(f, a->points, e);
    return st == MT_OK ? closed : st;
}

/* ---- the array ---- */
mt_status mt_array_open(struct mt_study_array *a, const struct mt_study *t, const struct mt_study_item *item,
                        int n, const struct mt_site *site, mt_err *e)
{
    const mt_sweep_options *o = &t->sweep->o;
    int64_t nodes = site->nodes ? site->nodes : 1, tasks = nodes * site->tasks_per_node;
    *a = (struct mt_study_array){.jobs = (int)((n + o->slurm_pack - 1) / o->slurm_pack)};
    MT_REQUIRE(tasks == o->ranks * o->at_once, e, MT_CONFIG,
               "a job of the array has %lld tasks (nodes times tasks-per-node), and its runs need %lld "
               "(ranks times at_once): make "
               "these equal",
               (long long)tasks, (long long)(o->ranks * o->at_once));
    MT_TRY(write_points(a, t, item, n, e));
    int k = snprintf(a->range, sizeof a->range, "0-%d", a->jobs - 1);
    if (o->slurm_jobs)
        snprintf(a->range + k, sizeof a->range - (size_t)k, "%%%lld", (long long)o->slurm_jobs);
    a->request = malloc(sizeof *a->request);
    MT_REQUIRE(a->request, e, MT_IO, "no memory for a batch script");
    *a->request = (struct mt_request){.site = site,
                                      .run = o->dir,
                                      .array = a->range,
                                      .points = a->points,
                                      .pack = (int)o->slurm_pack,
                                      .at_once = (int)o->at_once,
                                      .ranks = (int)o->ranks};
    return mt_request_render(a->request, &a->script, e);
}
void mt_array_forget(const struct mt_study_array *a)
{
    if (*a->points) unlink(a->points);
}
void mt_array_close(struct mt_study_array *a)
{
    free(a->script);
    free(a->request);
    *a = (struct mt_study_array){.jobs = 0};
}

mt_status mt_array_submit(const struct mt_study_array *a, char job[static 32], mt_err *e)
{
    char ids[1][MT_SLURM_ID];
    int n;
    FILE *f;
    mt_status st = mt_request_submit(a->request, a->script, ids, 1, &n, e);
    if (st != MT_OK) {
        mt_array_forget(a);
        return st;
    }
    memcpy(job, ids[0], MT_SLURM_ID);
    MT_TRY(mt_print_open(&f, a->note, e));
    fprintf(f, "%s\n", job);
    return mt_print_close(f, a->note, e);
}

/* ---- is one there? ---- */
/* The job that took a points' file; "": none did. */
static void read_note(const struct mt_study_array *a, char job[static 32])
{
    FILE *f = fopen(a->note, "r");
    if (!f || fscanf(f, "%31[0-9]", job) != 1) *job = 0;
    if (f) fclose(f);
}
static mt_status is_there(const char *job, bool *there, mt_err *e)
{
    struct mt_spawned x;
    MT_TRY(mt_spawn(&x, (const char *const[]){"squeue", "-h", "-o", "%i", "-j", job, NULL}, NULL, e));
    *there = x.code == 0 && *x.out;
    /* A job of some time ago is unknown, which is said as an error. */
    MT_REQUIRE(x.code == 0 || strstr(x.err, "Invalid job id"), e, MT_IO,
               "is job %s still there? squeue says:\n%s", job, x.err);
    return MT_OK;
}
mt_status mt_array_pending(const struct mt_study *t, char job[static 32], mt_err *e)
{
    struct mt_study_array a;
    bool there = false;
    for (int i = 1; !there; i++) {
        MT_TRY(name_files(&a, t, i, e));
        if (access(a.points, F_OK)) break;
        read_note(&a, job);
        if (*job) MT_TRY(is_there(job, &there, e));
    }
    if (!there) *job = 0;
    return MT_OK;
}
