#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "ckpt/tensors.h"

static mt_status check_file(const char *folder, const struct mt_manifest_file *f, mt_err *e)
{
    char path[MT_CKPT_PATH + 80];
    struct mt_in in;
    snprintf(path, sizeof path, "%s/%s", folder, f->name);
    MT_TRY(mt_in_open(&in, path, e));
    int64_t bytes = in.bytes;
    uint64_t sum = bytes == f->bytes ? mt_xxh3(in.data, in.bytes) : 0;
    mt_in_close(&in);
    MT_REQUIRE(bytes == f->bytes, e, MT_CKPT, "'%s' has %lld bytes, its manifest says %lld", path, (long long)bytes, (long long)f->bytes);
    MT_REQUIRE(sum == f->xxh3, e, MT_CKPT, "'%s' is damaged: its checksum is %016" PRIx64 ", its manifest says %016" PRIx64, path, sum, f->xxh3);
    return MT_OK;
}

/* Names the damaged tensor, where the tensors are what is damaged: said before the file's own checksum. */
static mt_status check_tensors(const char *folder, mt_err *e)
{
    char path[MT_CKPT_PATH + 80], sums[MT_CKPT_PATH + 80];
    struct mt_tensors t;
    snprintf(path, sizeof path, "%s/rank-00000.safetensors", folder);
    snprintf(sums, sizeof sums, "%s/rank-00000.json", folder);
    mt_status st = mt_tensors_open(&t, path, e);
    if (st == MT_OK) st = mt_tensors_verify(&t, path, sums, e);
    mt_tensors_close(&t);
    return st;
}

static bool lists(const struct mt_manifest *m, const char *name)
{
    for (int64_t i = 0; i < m->n; i++)
        if (!strcmp(m->file[i].name, name)) return true;
    return false;
}

static mt_status verify(const char *path, struct mt_manifest *m, mt_err *e)
{
    static const char *const needed[] = {"rank-00000.safetensors", "rank-00000.json", "config.yaml"};
    MT_TRY(mt_manifest_read(m, path, e));
    MT_REQUIRE(m->world == 1, e, MT_CKPT, "'%s' was written by %d ranks; this version reads checkpoints of one", path, m->world);
    for (int i = 0; i < 3; i++) MT_REQUIRE(lists(m, needed[i]), e, MT_CKPT, "'%s/manifest.json' does not list %s", path, needed[i]);
    MT_TRY(check_tensors(path, e));
    for (int64_t i = 0; i < m->n; i++) MT_TRY(check_file(path, &m->file[i], e));
    return MT_OK;
}

mt_status mt_ckpt_verify(const char *path, struct mt_ckpt_meta *meta, mt_err *e)
{
    struct mt_manifest m = {0};
    mt_status st = verify(path, &m, e);
    *meta = m.meta;
    mt_manifest_release(&m);
    return st;
}

mt_status mt_ckpt_newest(const char *run_dir, char path[MT_CKPT_PATH], mt_err *e)
{
    enum { MOST = 4096 };
    int64_t *step = malloc(MOST * sizeof *step);
    MT_REQUIRE(step, e, MT_IO, "no memory to list the checkpoints of '%s'", run_dir);
    for (int i = mt_ckpt_list(run_dir, step, MOST) - 1; i >= 0; i--) {
        struct mt_ckpt_meta meta;
        mt_err why = {0};
        mt_ckpt_folder(run_dir, step[i], path);
        if (mt_ckpt_verify(path, &meta, &why) == MT_OK) {
            free(step);
            return MT_OK;
        }
        fprintf(stderr, "moetitan: passing over a checkpoint: %s\n", why.msg);
    }
    free(step);
    path[0] = 0;
    return MT_OK;
}

mt_status mt_ckpt_config(const char *path, mt_config *cfg, mt_err *e)
{
    char name[MT_CKPT_PATH + 80];
    snprintf(name, sizeof name, "%s/config.yaml", path);
    mt_status st = mt_config_load(cfg, name, 0, NULL, e);
    if (st != MT_OK) mt_err_while(e, "reading the checkpoint's configuration");
    return st;
}

static mt_status load_item(struct mt_tensors *t, const char *file, const struct mt_ckpt_items *x, const struct mt_ckpt_item *i, mt_err *e)
{
    int64_t shape[2], bytes;
    const unsigned char *p = mt_tensors_find(t, i->name, shape, &bytes);
    MT_REQUIRE(p, e, MT_CKPT, "'%s' has no tensor '%s', which this configuration needs", file, i->name);
    MT_REQUIRE(shape[0] == i->rows && shape[1] == i->cols, e, MT_CKPT,
               "'%s': tensor '%s' is [%lld, %lld], this configuration needs [%lld, %lld] (0: a vector)", file, i->name, (long long)shape[0],
               (long long)shape[1], (long long)i->rows, (long long)i->cols);
    for (const struct mt_ckpt_piece *k = &x->piece[i->first], *end = k + i->n; k < end; k++)
        memcpy(k->data, p + k->row0 * mt_ckpt_row_bytes(i), (size_t)(k->rows * mt_ckpt_row_bytes(i)));
    return MT_OK;
}

mt_status mt_ckpt_load(const char *path, const struct mt_ckpt_items *items, bool weights_only, struct mt_ckpt_meta *meta, mt_err *e)
{
    char file[MT_CKPT_PATH + 80];
    struct mt_tensors t;
    int64_t read = 0;
    MT_TRY(mt_ckpt_verify(path, meta, e));
    snprintf(file, sizeof file, "%s/rank-00000.safetensors", path);
    mt_status st = mt_tensors_open(&t, file, e);
    for (int64_t i = 0; i < items->n && st == MT_OK; i++) {
        if (weights_only && items->item[i].moment) continue;
        st = load_item(&t, file, items, &items->item[i], e);
        read++;
    }
    if (st == MT_OK && !weights_only && read != mt_tensors_count(&t))
        st = mt_err_set(e, MT_CKPT, "'%s' holds %lld tensors, this configuration has %lld: it is of another model", file,
                        (long long)mt_tensors_count(&t), (long long)read);
    mt_tensors_close(&t);
    return st;
}
