#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "ckpt/tensors.h"

void mt_ckpt_folder(const char *run_dir, int64_t step, char path[MT_CKPT_PATH])
{
    snprintf(path, MT_CKPT_PATH, "%s/ckpt/step-%08" PRId64, run_dir, step);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int mt_ckpt_list(const char *run_dir, int64_t *step, int max)
{
    char path[MT_CKPT_PATH];
    int n = 0;
    snprintf(path, sizeof path, "%s/ckpt", run_dir);
    DIR *d = opendir(path);
    if (!d) return 0;
    for (struct dirent *f; (f = readdir(d)) && n < max;) {
        char *end;
        if (strncmp(f->d_name, "step-", 5)) continue;
        step[n] = strtoll(f->d_name + 5, &end, 10);
        if (!*end && end != f->d_name + 5) n++;
    }
    closedir(d);
    qsort(step, (size_t)n, sizeof *step, ascending);
    return n;
}

/* ---- saving ---- */
static mt_status write_text(const char *folder, const char *name, const char *text, size_t bytes, struct mt_manifest *m, mt_err *e)
{
    char path[MT_CKPT_PATH + 80];
    struct mt_out o;
    uint64_t sum;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    MT_TRY(mt_out_open(&o, path, e));
    mt_status st = mt_out_write(&o, text, (int64_t)bytes, e);
    if (st != MT_OK) {
        mt_out_abandon(&o);
        return st;
    }
    MT_TRY(mt_out_close(&o, &sum, e));
    return mt_manifest_add(m, name, (int64_t)bytes, sum, e);
}

static mt_status write_config(const char *folder, const mt_config *cfg, struct mt_manifest *m, mt_err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for the configuration's text");
    mt_config_dump(cfg, f);
    fclose(f);
    mt_status st = write_text(folder, "config.yaml", text, bytes, m, e);
    free(text);
    return st;
}

static mt_status write_files(const char *folder, const struct mt_ckpt_items *items, const mt_config *cfg, struct mt_manifest *m, mt_err *e)
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

mt_status mt_ckpt_save(const char *run_dir, const struct mt_ckpt_items *items, const struct mt_ckpt_meta *meta, const mt_config *cfg, mt_err *e)
{
    char folder[MT_CKPT_PATH], parent[MT_CKPT_PATH];
    struct mt_manifest m = {.meta = *meta, .world = 1};
    mt_ckpt_folder(run_dir, meta->step, folder);
    snprintf(parent, sizeof parent, "%s/ckpt", run_dir);
    MT_TRY(mt_remove_folder(folder, e)); /* of an earlier save that was cut off, or of a step done again */
    MT_TRY(mt_make_folders(folder, e));
    mt_status st = write_files(folder, items, cfg, &m, e);
    if (st == MT_OK) st = mt_sync_folder(parent, e);
    if (st == MT_OK) st = mt_manifest_write(&m, folder, e);
    mt_manifest_release(&m);
    if (st != MT_OK) {
        mt_err ignored = {0};
        (void)!mt_remove_folder(folder, &ignored);
        mt_err_while(e, "saving the checkpoint of step %" PRId64, meta->step);
    }
    return st;
}

static bool complete(const char *folder)
{
    char path[MT_CKPT_PATH + 32];
    struct stat st;
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    return !stat(path, &st);
}

mt_status mt_ckpt_prune(const char *run_dir, int64_t keep, mt_err *e)
{
    enum { MOST = 4096 };
    int64_t *step = malloc(MOST * sizeof *step), good = 0;
    char folder[MT_CKPT_PATH];
    mt_status st = MT_OK;
    MT_REQUIRE(step, e, MT_IO, "no memory to list the checkpoints of '%s'", run_dir);
    for (int i = mt_ckpt_list(run_dir, step, MOST) - 1; i >= 0 && st == MT_OK; i--) {
        mt_ckpt_folder(run_dir, step[i], folder);
        bool ok = complete(folder);
        if (ok && good < keep) good++;
        else if (good > 0) st = mt_remove_folder(folder, e); /* never before a complete one is kept */
    }
    free(step);
    return st;
}
