#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/file.h"
#include "ckpt/history.h"

static mt_status verify_step(const char *path, int64_t step, mt_err *e)
{
    struct mt_ckpt_meta meta;
    MT_TRY(mt_ckpt_verify(path, &meta, e));
    return mt_ckpt_named(path, step, &meta, e);
}

void mt_damaged_add(struct mt_damaged *d, int64_t step)
{
    size_t room = sizeof d->names - d->used;
    if (d->n++ < 8)
        d->used += (size_t)snprintf(d->names + d->used, room, "%sstep-%08" PRId64, d->used ? ", " : "", step);
}

mt_status mt_damaged_refuse(const struct mt_damaged *d, const char *run_dir, const char *advice, mt_err *e)
{
    char more[40] = "";
    if (d->n > 8) snprintf(more, sizeof more, " and %" PRId64 " more", d->n - 8);
    MT_FAIL(e, MT_CKPT, "no checkpoint is valid: %s%s of '%.500s/ckpt' %s damaged%s", d->names, more, run_dir,
            d->n > 1 ? "are" : "is", advice);
}

mt_status mt_ckpt_newest(const char *run_dir, char path[MT_CKPT_PATH], mt_err *e)
{
    int64_t *step, n, i;
    struct mt_damaged damaged = {0};
    path[0] = 0;
    MT_TRY(mt_ckpt_list(run_dir, &step, &n, e));
    for (i = n - 1; i >= 0; i--) {
        mt_err why = {0};
        mt_ckpt_folder(run_dir, step[i], path);
        mt_status st = verify_step(path, step[i], &why);
        if (st == MT_OK) break;
        if (mt_ckpt_was_complete(path)) mt_damaged_add(&damaged, step[i]);
        path[0] = 0;
        if (st != MT_CKPT) { /* no sign of damage: going on from an older one would throw work away */
            *e = why;
            break;
        }
        fprintf(stderr, "moetitan: passing over a checkpoint: %s\n", why.msg);
    }
    free(step);
    return i < 0 && damaged.n ? mt_damaged_refuse(&damaged, run_dir, "", e) : e->code;
}

static bool stays(const struct mt_ckpt_keep *keep, int64_t step)
{
    return (keep->every && step % keep->every == 0) || step == keep->step || step == keep->back ||
           step == keep->read;
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
        if (look == MT_OK) look = mt_ckpt_named(folder, step[i], &meta, &why);
        if (look == MT_OK && good < keep->last) good += !mt_ckpt_steps_have(&keep->damaged, step[i]);
        /* Nothing before a complete one is kept: the newest folder may be one that is being written. */
        else if (good > 0 && look != MT_IO && !(look == MT_OK && stays(keep, step[i])))
            st = mt_remove_folder(folder, "manifest.json", e);
    }
    free(step);
    return st;
}
