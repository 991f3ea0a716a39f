#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/file.h"
#include "ckpt/restore.h"

static mt_status verify_step(const char *path, int64_t step, mt_err *e)
{
    struct mt_ckpt_meta meta;
    MT_TRY(mt_ckpt_verify(path, &meta, e));
    MT_REQUIRE(meta.step == step, e, MT_CKPT, "'%s' holds step %" PRId64, path, meta.step);
    return MT_OK;
}

/* Steps of complete checkpoints that were passed over: how many, and the names of the first. */
struct damaged {
    int64_t n;
    size_t used;
    char names[256];
};

static void add_damaged(struct damaged *d, int64_t step)
{
    size_t room = sizeof d->names - d->used;
    if (d->n++ < 8)
        d->used += (size_t)snprintf(d->names + d->used, room, "%sstep-%08" PRId64, d->used ? ", " : "", step);
}

static mt_status refuse_damaged(const struct damaged *d, const char *run_dir, const char *advice, mt_err *e)
{
    char more[40] = "";
    if (d->n > 8) snprintf(more, sizeof more, " and %" PRId64 " more", d->n - 8);
    MT_FAIL(e, MT_CKPT, "no checkpoint is valid: %s%s of '%.500s/ckpt' %s damaged%s", d->names, more, run_dir,
            d->n > 1 ? "are" : "is", advice);
}

mt_status mt_ckpt_newest(const char *run_dir, char path[MT_CKPT_PATH], mt_err *e)
{
    int64_t *step, n, i;
    struct damaged damaged = {0};
    path[0] = 0;
    MT_TRY(mt_ckpt_list(run_dir, &step, &n, e));
    for (i = n - 1; i >= 0; i--) {
        mt_err why = {0};
        mt_ckpt_folder(run_dir, step[i], path);
        mt_status st = verify_step(path, step[i], &why);
        if (st == MT_OK) break;
        if (mt_ckpt_was_complete(path)) add_damaged(&damaged, step[i]);
        path[0] = 0;
        if (st != MT_CKPT) { /* no sign of damage: going on from an older one would throw work away */
            *e = why;
            break;
        }
        fprintf(stderr, "moetitan: passing over a checkpoint: %s\n", why.msg);
    }
    free(step);
    return i < 0 && damaged.n ? refuse_damaged(&damaged, run_dir, "", e) : e->code;
}

/* The steps of the run on all processes, as the first one sees them; malloc'ed. */
static mt_status share_steps(const char *run_dir, const struct mt_job *job, int64_t **step, int64_t *n,
                             mt_err *e)
{
    *step = NULL;
    *n = 0;
    MT_TRY(mt_job_agree(job, job->me ? MT_OK : mt_ckpt_list(run_dir, step, n, e), e));
    mt_job_broadcast(job, n, sizeof *n, 0);
    if (job->me) *step = malloc((size_t)(*n + 1) * sizeof **step);
    mt_status st = job->me && !*step ? mt_err_set(e, MT_IO, "no memory to list %" PRId64 " checkpoints", *n)
                                     : MT_OK;
    st = mt_job_agree(job, st, e);
    if (st == MT_OK) mt_job_broadcast(job, *step, *n * (int64_t)sizeof **step, 0);
    return st;
}

/* Loads the newest that is sound; *i is its place, -1: none is. */
static mt_status load_newest(const char *run_dir, const int64_t *step, int64_t *i, const mt_config *now,
                             const struct mt_ckpt_items *items, const struct mt_job *job,
                             struct damaged *damaged, struct mt_ckpt_loaded *out, mt_err *e)
{
    for (; *i >= 0; --*i) {
        char folder[MT_CKPT_PATH];
        mt_err why = {0};
        mt_ckpt_folder(run_dir, step[*i], folder);
        const struct mt_ckpt_demand want = {.step = step[*i], .now = now, .budget = mt_deal_usual()};
        mt_status st = mt_ckpt_load_as(folder, &want, items, job, out, &why);
        if (st == MT_OK || !out->damaged) {
            if (st != MT_OK) *e = why;
            return st;
        }
        if (mt_ckpt_was_complete(folder)) add_damaged(damaged, step[*i]);
        if (job->me == 0) fprintf(stderr, "moetitan: passing over a checkpoint: %s\n", why.msg);
    }
    return MT_OK;
}

mt_status mt_ckpt_resume(const char *run_dir, const mt_config *now, const struct mt_ckpt_items *items,
                         const struct mt_job *job, char path[MT_CKPT_PATH], struct mt_ckpt_loaded *out,
                         mt_err *e)
{
    int64_t *step, n;
    struct damaged damaged = {0};
    path[0] = 0;
    *out = (struct mt_ckpt_loaded){0};
    mt_status st = share_steps(run_dir, job, &step, &n, e);
    int64_t i = n - 1;
    if (st == MT_OK) st = load_newest(run_dir, step, &i, now, items, job, &damaged, out, e);
    if (st == MT_OK && i >= 0) mt_ckpt_folder(run_dir, step[i], path);
    free(step);
    MT_TRY(st);
    static const char advice[] =
        " (each is told above); put a copy back, or begin anew: with ckpt.resume: never, or "
        "without these folders";
    /* The first process is asked: what others see of its folder may be late. */
    if (!job->me && i < 0 && damaged.n) st = refuse_damaged(&damaged, run_dir, advice, e);
    return mt_job_agree(job, st, e);
}

static bool stays(const struct mt_ckpt_keep *keep, int64_t step)
{
    return (keep->every && step % keep->every == 0) || step == keep->step || step == keep->back;
}

mt_status mt_ckpt_prune(const char *run_dir, const struct mt_ckpt_keep *keep, mt_err *e)
{
    int64_t *step, n, good = 0;
    mt_status st = MT_OK;
    MT_REQUIRE(keep->last >= 1, e, MT_CONFIG, "%" PRId64 " checkpoints cannot be kept; keep 1 or more",
               keep->last);
    MT_TRY(mt_ckpt_list(run_dir, &step, &n, e));
    for (int64_t i = n - 1; i >= 0 && st == MT_OK; i--) {
        char folder[MT_CKPT_PATH];
        struct mt_ckpt_meta meta;
        int64_t bytes;
        mt_err why = {0};
        mt_ckpt_folder(run_dir, step[i], folder);
        mt_status look = mt_ckpt_look(folder, &meta, &bytes, &why);
        if (look == MT_OK && good < keep->last) good++;
        /* Nothing before a complete one is kept: the newest folder may be one that is being written. */
        else if (good > 0 && look != MT_IO && !(look == MT_OK && stays(keep, step[i])))
            st = mt_remove_folder(folder, "manifest.json", e);
    }
    free(step);
    return st;
}
