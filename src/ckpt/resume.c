#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/history.h"
#include "ckpt/restore.h"
#include "ckpt/tier.h"

/* A checkpoint that a run may go on from. */
struct candidate {
    int64_t step, local; /* local: 1: on the nodes' own disks */
};
struct candidates {
    struct candidate *x; /* owned */
    int64_t n;
};
struct resuming {
    const char *run_dir;
    const struct mt_tier *tier; /* NULL: none */
    struct mt_ckpt_range steps; /* that come into question */
    const mt_config *now;
    const struct mt_ckpt_items *items;
    const struct mt_job *job;
    struct candidates of;
    struct mt_damaged damaged;
    struct mt_ckpt_steps passed_over;
};

static void folder_of(const struct resuming *r, const struct candidate *c, char path[MT_CKPT_PATH])
{
    mt_ckpt_folder(c->local ? r->tier->root : r->run_dir, c->step, path);
}

/* ---- what there is ---- */
/* What one process sees, to all, behind what is known. */
static mt_status share_steps(struct resuming *r, int from, const int64_t *step, int64_t n, bool local,
                             mt_err *e)
{
    int64_t *all = NULL;
    mt_job_broadcast(r->job, &n, sizeof n, from);
    if (!n) return MT_OK;
    all = malloc((size_t)n * sizeof *all);
    struct candidate *more = realloc(r->of.x, (size_t)(r->of.n + n) * sizeof *more);
    if (more) r->of.x = more;
    mt_status st = all && more ? MT_OK : mt_err_set(e, MT_IO, "no memory to list %" PRId64 " checkpoints", n);
    st = mt_job_agree(r->job, st, e);
    if (st == MT_OK && r->job->me == from) memcpy(all, step, (size_t)n * sizeof *all);
    if (st == MT_OK) mt_job_broadcast(r->job, all, n * (int64_t)sizeof *all, from);
    for (int64_t i = 0; i < n && st == MT_OK; i++) r->of.x[r->of.n++] = (struct candidate){all[i], local};
    free(all);
    return st;
}

static mt_status share_run(struct resuming *r, mt_err *e)
{
    int64_t *step = NULL, n = 0;
    mt_status st = mt_job_agree(r->job, r->job->me ? MT_OK : mt_ckpt_list(r->run_dir, &step, &n, e), e);
    if (st == MT_OK) st = share_steps(r, 0, step, n, false, e);
    free(step);
    return st;
}

/* Of each node, what the first process there sees. */
static mt_status share_nodes(struct resuming *r, mt_err *e)
{
    int64_t *step = NULL, n = 0;
    if (!r->tier) return MT_OK;
    mt_status st = r->tier->leads ? mt_ckpt_list(r->tier->root, &step, &n, e) : MT_OK;
    st = mt_job_agree(r->job, st, e);
    for (int p = 0; p < r->job->n && st == MT_OK; p++)
        if (r->tier->node[p] == p) st = share_steps(r, p, step, n, true, e);
    free(step);
    return st;
}

/* The newest last; of one step, the run's own behind that on the nodes. */
static int by_age(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->local > y->local ? -1 : x->local < y->local;
}

static mt_status find_candidates(struct resuming *r, mt_err *e)
{
    int64_t kept = 0;
    MT_TRY(share_run(r, e));
    MT_TRY(share_nodes(r, e));
    if (r->of.n) qsort(r->of.x, (size_t)r->of.n, sizeof *r->of.x, by_age);
    for (int64_t i = 0; i < r->of.n; i++) {
        const struct candidate *c = &r->of.x[i];
        if (c->step < r->steps.least || c->step > r->steps.most) continue;
        if (!kept || by_age(c, &r->of.x[kept - 1])) r->of.x[kept++] = *c;
    }
    r->of.n = kept;
    return MT_OK;
}

/* ---- the newest that is sound ---- */
static bool was_complete(const struct resuming *r, const struct candidate *c, const char *folder)
{
    bool here = mt_ckpt_was_complete(folder);
    return c->local ? mt_job_any(r->job, here) : here;
}

/* *i is its place, -1: none is. */
static mt_status load_newest(struct resuming *r, int64_t *i, struct mt_ckpt_loaded *out, mt_err *e)
{
    for (; *i >= 0; --*i) {
        const struct candidate *c = &r->of.x[*i];
        char folder[MT_CKPT_PATH];
        mt_err why = {0};
        folder_of(r, c, folder);
        const struct mt_ckpt_demand want = {
            .step = c->step, .now = r->now, .budget = mt_deal_usual(), .local = c->local};
        mt_status st = mt_ckpt_load_as(folder, &want, r->items, r->job, out, &why);
        if (st == MT_OK || !out->damaged) {
            if (st != MT_OK) *e = why;
            return st;
        }
        if (was_complete(r, c, folder)) mt_damaged_add(&r->damaged, c->step);
        if (!c->local) mt_ckpt_steps_add(&r->passed_over, c->step);
        if (r->job->me == 0) fprintf(stderr, "moetitan: passing over a checkpoint: %s\n", why.msg);
    }
    return MT_OK;
}

static mt_status load_sound(struct resuming *r, const char *advice, char path[MT_CKPT_PATH],
                            struct mt_ckpt_loaded *out, mt_err *e)
{
    path[0] = 0;
    *out = (struct mt_ckpt_loaded){0};
    mt_status st = find_candidates(r, e);
    int64_t i = r->of.n - 1;
    if (st == MT_OK) st = load_newest(r, &i, out, e);
    if (st == MT_OK && i >= 0) folder_of(r, &r->of.x[i], path);
    free(r->of.x);
    MT_TRY(st);
    out->passed_over = r->passed_over;
    /* The first process is asked: what others see of its folder may be late. */
    if (!r->job->me && i < 0 && r->damaged.n) st = mt_damaged_refuse(&r->damaged, r->run_dir, advice, e);
    return mt_job_agree(r->job, st, e);
}

mt_status mt_ckpt_resume_tiers(const char *run_dir, const struct mt_tier *tier, const mt_config *now,
                               const struct mt_ckpt_items *items, const struct mt_job *job,
                               char path[MT_CKPT_PATH], struct mt_ckpt_loaded *out, mt_err *e)
{
    struct resuming r = {
        .run_dir = run_dir, .tier = tier, .steps = {0, INT64_MAX}, .now = now, .items = items, .job = job};
    static const char advice[] =
        " (each is told above); put a copy back, or begin anew: with ckpt.resume: never, or "
        "without these folders";
    return load_sound(&r, advice, path, out, e);
}

mt_status mt_ckpt_back(const char *run_dir, struct mt_ckpt_range steps, const mt_config *now,
                       const struct mt_ckpt_items *items, const struct mt_job *job, char path[MT_CKPT_PATH],
                       struct mt_ckpt_loaded *out, mt_err *e)
{
    struct resuming r = {.run_dir = run_dir, .steps = steps, .now = now, .items = items, .job = job};
    static const char advice[] = " (each is told above), so that the run cannot go back to one";
    return load_sound(&r, advice, path, out, e);
}

mt_status mt_ckpt_resume(const char *run_dir, const mt_config *now, const struct mt_ckpt_items *items,
                         const struct mt_job *job, char path[MT_CKPT_PATH], struct mt_ckpt_loaded *out,
                         mt_err *e)
{
    return mt_ckpt_resume_tiers(run_dir, NULL, now, items, job, path, out, e);
}
