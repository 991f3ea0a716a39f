#include "ckpt/tier_saver.h"

#include <stdlib.h>
#include <string.h>

mt_status mt_tier_saver_open(struct mt_tier_saver *x, const struct mt_tier *t, struct mt_tier_copies copies,
                             const struct mt_publishing *what, mt_err *e)
{
    *x = (struct mt_tier_saver){.t = t, .what = what};
    if (!t) return MT_OK;
    x->file = calloc((size_t)what->world, sizeof *x->file);
    MT_REQUIRE(x->file, e, MT_IO, "no memory for a table of %d ranks", what->world);
    MT_TRY(mt_buddy_open(&x->buddy, t, copies.buffer, copies.slice, x->file, e));
    return t->leads ? mt_saving_clean(t->root, e) : MT_OK;
}

void mt_tier_saver_close(struct mt_tier_saver *x)
{
    mt_buddy_close(&x->buddy);
    free(x->file);
}

mt_status mt_tier_saver_gather(struct mt_tier_saver *x, const struct mt_parts *parts, mt_err *e)
{
    char folder[MT_CKPT_PATH];
    mt_status st = MT_OK;
    mt_saving_folder(x->t->root, x->what->meta.step, folder);
    memset(x->file, 0, (size_t)x->what->world * sizeof *x->file);
    for (int i = 0; i < parts->n_files && st == MT_OK; i++) {
        const struct mt_part_file *f = &parts->file[i];
        st = mt_tier_told(folder, f->rank, f->bytes, &x->file[f->rank], e);
    }
    mt_job_sum(&x->t->job, x->file->bytes, x->what->world * (int64_t)(sizeof *x->file / sizeof(int64_t)));
    mt_buddy_begin(&x->buddy, folder);
    return st;
}

mt_status mt_tier_saver_publish(void *arg, mt_err *e)
{
    const struct mt_tier_saver *x = arg;
    return mt_tier_publish(x->t, x->what, x->file, e);
}
mt_status mt_tier_saver_prune(void *arg, mt_err *e)
{
    const struct mt_tier_saver *x = arg;
    return mt_tier_prune(x->t, x->what->meta.step, e);
}
mt_status mt_tier_saver_drop(void *arg, mt_err *e)
{
    const struct mt_tier_saver *x = arg;
    return mt_tier_drop(x->t, x->what->meta.step, e);
}
