#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file.h"
#include "ckpt/held.h"
#include "ckpt/manifest.h"
#include "ckpt/tier.h"

static void name_of(int rank, int kind, char name[64])
{
    snprintf(name, 64, "rank-%05d.%s", rank, kind ? "json" : "safetensors");
}

void mt_tier_path(const char *folder, int rank, int kind, char path[MT_CKPT_PATH + 80])
{
    char name[64];
    name_of(rank, kind, name);
    snprintf(path, MT_CKPT_PATH + 80, "%.*s/%s", MT_CKPT_PATH - 1, folder, name);
}

mt_status mt_tier_told(const char *folder, int rank, int64_t bytes, struct mt_tier_file *f, mt_err *e)
{
    char path[MT_CKPT_PATH + 80];
    uint64_t sum;
    f->bytes[0] = bytes;
    MT_TRY(mt_saving_told(folder, rank, bytes, &sum, e));
    f->xxh3[0] = (int64_t)sum;
    mt_tier_path(folder, rank, 1, path);
    MT_TRY(mt_hash_file(path, &f->bytes[1], &sum, e));
    f->xxh3[1] = (int64_t)sum;
    return MT_OK;
}

static mt_status add_all(struct mt_manifest *m, const struct mt_publishing *p,
                         const struct mt_tier_file *file, const char *folder, mt_err *e)
{
    char name[64], path[MT_CKPT_PATH + 80];
    uint64_t sum;
    for (int rank = 0; rank < p->world; rank++)
        for (int kind = 0; kind < 2 && file[rank].bytes[0]; kind++) {
            name_of(rank, kind, name);
            MT_TRY(mt_manifest_add(m, name, file[rank].bytes[kind], (uint64_t)file[rank].xxh3[kind], e));
        }
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    MT_TRY(mt_write_file(path, p->config, p->config_bytes, &sum, e));
    MT_TRY(mt_manifest_add(m, "config.yaml", p->config_bytes, sum, e));
    return mt_manifest_write(m, folder, e);
}

/* Whose files they are. A rank that is not of this node's processes has its files here as one's ward. */
static mt_status tell_whose(const struct mt_tier *t, const struct mt_publishing *p,
                            const struct mt_tier_file *file, const char *folder, mt_err *e)
{
    char path[MT_CKPT_PATH + 80];
    bool *own = calloc(2 * (size_t)p->world, sizeof *own);
    MT_REQUIRE(own, e, MT_IO, "no memory to list %d ranks", p->world);
    bool *here = own + p->world;
    for (int rank = 0; rank < p->world; rank++) {
        mt_tier_path(folder, rank, 0, path);
        own[rank] = t->job.n == 1 || t->node[rank] == t->node[t->job.me];
        here[rank] = file[rank].bytes[0] && !access(path, F_OK);
    }
    mt_status st = mt_held_write(folder, own, here, p->world, e);
    free(own);
    return st;
}

mt_status mt_tier_publish(const struct mt_tier *t, const struct mt_publishing *p,
                          const struct mt_tier_file *file, mt_err *e)
{
    char saving[MT_CKPT_PATH], folder[MT_CKPT_PATH], parent[MT_CKPT_PATH];
    struct mt_manifest m = {.meta = p->meta, .world = p->world};
    mt_saving_folder(t->root, p->meta.step, saving);
    mt_ckpt_folder(t->root, p->meta.step, folder);
    snprintf(parent, sizeof parent, "%s/ckpt", t->root);
    mt_status st = tell_whose(t, p, file, saving, e);
    if (st == MT_OK) st = add_all(&m, p, file, saving, e);
    mt_manifest_release(&m);
    MT_TRY(st);
    MT_TRY(mt_remove_folder(folder, "manifest.json", e)); /* of a history that the run has left */
    MT_REQUIRE(!rename(saving, folder), e, MT_IO, "cannot rename '%s' to '%s': %s", saving, folder,
               strerror(errno));
    return mt_sync_folder(parent, e);
}

mt_status mt_tier_prune(const struct mt_tier *t, int64_t last, mt_err *e)
{
    int64_t *step, n, kept = 0;
    mt_status st = MT_OK;
    MT_TRY(mt_ckpt_list(t->root, &step, &n, e));
    for (int64_t i = n - 1; i >= 0 && st == MT_OK; i--) {
        char folder[MT_CKPT_PATH];
        mt_ckpt_folder(t->root, step[i], folder);
        if (step[i] <= last && kept < t->keep)
            kept += mt_ckpt_was_complete(folder);
        else
            st = mt_remove_folder(folder, "manifest.json", e);
    }
    free(step);
    return st;
}

mt_status mt_tier_drop(const struct mt_tier *t, int64_t step, mt_err *e)
{
    char folder[MT_CKPT_PATH];
    mt_ckpt_folder(t->root, step, folder);
    MT_TRY(mt_remove_folder(folder, "manifest.json", e));
    return mt_saving_clean(t->root, e);
}
