#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "ckpt/tensors.h"

static mt_status write_text(const char *folder, const char *name, const char *text, size_t bytes,
                            struct mt_manifest *m, mt_err *e)
{
    char path[MT_CKPT_PATH + 80];
    uint64_t sum;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    MT_TRY(mt_write_file(path, text, (int64_t)bytes, &sum, e));
    return mt_manifest_add(m, name, (int64_t)bytes, sum, e);
}

static mt_status write_config(const char *folder, const mt_config *cfg, struct mt_manifest *m, mt_err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for the configuration's text");
    mt_config_dump(cfg, f);
    bool ok = !ferror(f);
    if (fclose(f)) ok = false;
    mt_status st = ok ? write_text(folder, "config.yaml", text, bytes, m, e)
                      : mt_err_set(e, MT_IO, "no memory for the configuration's text");
    free(text);
    return st;
}

static mt_status write_files(const char *folder, const struct mt_ckpt_items *items, const mt_config *cfg,
                             struct mt_manifest *m, mt_err *e)
{
    char path[MT_CKPT_PATH + 80], *sums = NULL;
    uint64_t sum = 0;
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/rank-00000.safetensors", folder);
    mt_status st = mt_tensors_write(path, items, 0, m->world, &bytes, &sum, &sums, e);
    if (st == MT_OK) st = mt_manifest_add(m, "rank-00000.safetensors", bytes, sum, e);
    if (st == MT_OK) st = write_text(folder, "rank-00000.json", sums, strlen(sums), m, e);
    if (st == MT_OK) st = write_config(folder, cfg, m, e);
    free(sums);
    return st;
}

static void aside_of(const char *folder, char path[MT_CKPT_PATH])
{
    snprintf(path, MT_CKPT_PATH, "%.*s.aside", MT_CKPT_PATH - 8, folder);
}

/* Renames a complete checkpoint to *.aside, where nothing reads it; removes an incomplete one. */
static mt_status set_aside(const char *folder, bool *kept, mt_err *e)
{
    char aside[MT_CKPT_PATH];
    *kept = mt_ckpt_was_complete(folder);
    if (!*kept) return mt_remove_folder(folder, NULL, e);
    aside_of(folder, aside);
    MT_TRY(mt_remove_folder(aside, "manifest.json", e));
    MT_REQUIRE(!rename(folder, aside), e, MT_IO, "cannot rename '%s' to '%s': %s", folder, aside,
               strerror(errno));
    return MT_OK;
}

static mt_status set_later_aside(const char *run_dir, int64_t than, mt_err *e)
{
    int64_t *step, n;
    mt_status st = MT_OK;
    MT_TRY(mt_ckpt_list(run_dir, &step, &n, e));
    for (int64_t i = n - 1; i >= 0 && step[i] > than && st == MT_OK; i--) {
        char folder[MT_CKPT_PATH];
        bool kept;
        mt_ckpt_folder(run_dir, step[i], folder);
        st = set_aside(folder, &kept, e);
        if (st == MT_OK && kept)
            fprintf(stderr,
                    "moetitan: '%s' is later than step %" PRId64
                    ", which this run has reached: now %s.aside\n",
                    folder, than, folder);
    }
    free(step);
    return st;
}

static mt_status save(const char *folder, const struct mt_ckpt_items *items, const struct mt_ckpt_meta *meta,
                      const mt_config *cfg, mt_err *e)
{
    struct mt_manifest m = {.meta = *meta, .version = 1, .world = 1};
    mt_status st = mt_make_folders(folder, e);
    if (st == MT_OK) st = write_files(folder, items, cfg, &m, e);
    if (st == MT_OK) st = mt_manifest_write(&m, folder, e);
    mt_manifest_release(&m);
    return st;
}

/* After a failure: as it was before, as far as the system lets us; the first message stays. */
static void undo(const char *folder, bool replaced)
{
    char aside[MT_CKPT_PATH];
    mt_err ignored = {0};
    aside_of(folder, aside);
    if (mt_remove_folder(folder, "manifest.json", &ignored) != MT_OK)
        fprintf(stderr, "moetitan: %s\n", ignored.msg);
    else if (replaced && rename(aside, folder))
        fprintf(stderr, "moetitan: cannot rename '%s' back\n", aside);
}

/* What the new checkpoint makes void. It is complete, so that a failure here is told and no more. */
static void tidy(const char *run_dir, int64_t step, const char *replaced)
{
    mt_err e = {0};
    mt_status st = set_later_aside(run_dir, step, &e);
    if (st == MT_OK && replaced) st = mt_remove_folder(replaced, "manifest.json", &e);
    if (st != MT_OK) fprintf(stderr, "moetitan: after the checkpoint of step %" PRId64 ": %s\n", step, e.msg);
}

mt_status mt_ckpt_save(const char *run_dir, const struct mt_ckpt_items *items,
                       const struct mt_ckpt_meta *meta, const mt_config *cfg, mt_err *e)
{
    char folder[MT_CKPT_PATH], aside[MT_CKPT_PATH];
    bool replaces = false;
    MT_REQUIRE(strlen(run_dir) + MT_CKPT_ROOM < MT_CKPT_PATH, e, MT_CONFIG, "run.dir is too long: '%.60s...'",
               run_dir);
    mt_ckpt_folder(run_dir, meta->step, folder);
    aside_of(folder, aside);
    mt_status st = set_aside(folder, &replaces, e);
    if (st == MT_OK) {
        st = save(folder, items, meta, cfg, e);
        if (st != MT_OK) undo(folder, replaces);
    }
    if (st == MT_OK)
        tidy(run_dir, meta->step, replaces ? aside : NULL);
    else
        mt_err_while(e, "saving the checkpoint of step %" PRId64, meta->step);
    return st;
}
