#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "ckpt/tensors.h"

enum { FILE_PATH = MT_CKPT_PATH + 80 };
static const char tensors_name[] = "rank-00000.safetensors", sums_name[] = "rank-00000.json",
                  config_name[] = "config.yaml";

static void file_path(char path[FILE_PATH], const char *folder, const char *name)
{
    snprintf(path, FILE_PATH, "%s/%s", folder, name);
}

/* ---- a look: manifest and sizes ---- */
static mt_status look(const char *folder, struct mt_manifest *m, int64_t *bytes, mt_err *e)
{
    static const char *const needed[] = {tensors_name, sums_name, config_name};
    MT_REQUIRE(strlen(folder) < MT_CKPT_PATH, e, MT_CONFIG,
               "the path of the checkpoint is too long: '%.60s...'", folder);
    MT_TRY(mt_manifest_read(m, folder, e));
    MT_REQUIRE(m->world == 1, e, MT_CKPT,
               "'%s' was written by %d ranks; this version reads checkpoints of one", folder, m->world);
    for (int i = 0; i < 3; i++)
        MT_REQUIRE(mt_manifest_find(m, needed[i]), e, MT_CKPT, "'%s/manifest.json' does not list %s", folder,
                   needed[i]);
    *bytes = 0;
    for (int64_t i = 0; i < m->n; i++) {
        char path[FILE_PATH];
        struct stat st;
        const struct mt_manifest_file *f = &m->file[i];
        file_path(path, folder, f->name);
        MT_REQUIRE(!stat(path, &st), e, errno == ENOENT ? MT_CKPT : MT_IO, "cannot find '%s': %s", path,
                   strerror(errno));
        MT_REQUIRE(S_ISREG(st.st_mode) && st.st_size == f->bytes, e, MT_CKPT,
                   "'%s' has %lld bytes, its manifest says %" PRId64, path, (long long)st.st_size, f->bytes);
        *bytes += f->bytes;
    }
    return MT_OK;
}

mt_status mt_ckpt_look(const char *path, struct mt_ckpt_meta *meta, int64_t *bytes, mt_err *e)
{
    struct mt_manifest m = {0};
    mt_status st = look(path, &m, bytes, e);
    *meta = m.meta;
    mt_manifest_release(&m);
    return st;
}

/* ---- all of it: checksums ---- */
static mt_status compare(const char *path, const struct mt_manifest_file *f, int64_t bytes, uint64_t sum,
                         mt_err *e)
{
    MT_REQUIRE(bytes == f->bytes && sum == f->xxh3, e, MT_CKPT,
               "'%s' is damaged: %" PRId64 " bytes with checksum %016" PRIx64 ", its manifest says %" PRId64
               " with %016" PRIx64,
               path, bytes, sum, f->bytes, f->xxh3);
    return MT_OK;
}

static mt_status check_file(const char *folder, const struct mt_manifest_file *f, mt_err *e)
{
    char path[FILE_PATH];
    int64_t bytes;
    uint64_t sum;
    file_path(path, folder, f->name);
    MT_TRY(mt_hash_file(path, &bytes, &sum, e));
    return compare(path, f, bytes, sum, e);
}

static mt_status check_tensors(const char *folder, mt_err *e)
{
    char path[FILE_PATH], sums[FILE_PATH];
    struct mt_tensors t;
    file_path(path, folder, tensors_name);
    file_path(sums, folder, sums_name);
    MT_TRY(mt_tensors_open(&t, path, e));
    mt_status st = mt_tensors_verify(&t, path, sums, e);
    mt_tensors_close(&t);
    return st;
}

/* The whole file is read first, so that a failing disk is met there; then the tensors tell which of them is
 * damaged. */
static mt_status verify_tensors(const char *path, const struct mt_manifest_file *f, mt_err *e)
{
    mt_err whole = {0};
    mt_status st = check_file(path, f, &whole);
    if (st == MT_OK || st == MT_CKPT) MT_TRY(check_tensors(path, e));
    if (st != MT_OK) *e = whole;
    return st;
}

static mt_status verify(const char *path, struct mt_manifest *m, mt_err *e)
{
    int64_t bytes;
    MT_TRY(look(path, m, &bytes, e));
    for (int64_t i = 0; i < m->n; i++)
        if (strcmp(m->file[i].name, tensors_name)) MT_TRY(check_file(path, &m->file[i], e));
    return verify_tensors(path, mt_manifest_find(m, tensors_name), e);
}

mt_status mt_ckpt_verify(const char *path, struct mt_ckpt_meta *meta, mt_err *e)
{
    struct mt_manifest m = {0};
    mt_status st = verify(path, &m, e);
    *meta = m.meta;
    mt_manifest_release(&m);
    return st;
}

static mt_status read_config(const char *folder, const struct mt_manifest_file *f, mt_config *cfg, mt_err *e)
{
    char path[FILE_PATH];
    struct mt_in in;
    file_path(path, folder, f->name);
    MT_TRY(mt_in_open(&in, path, e));
    mt_status st = compare(path, f, in.bytes, mt_xxh3(in.data, in.bytes), e);
    if (st == MT_OK)
        st = mt_config_parse(cfg, path, in.data ? (const char *)in.data : "", (size_t)in.bytes, e);
    mt_in_close(&in);
    return st;
}

mt_status mt_ckpt_config(const char *path, mt_config *cfg, mt_err *e)
{
    struct mt_manifest m = {0};
    int64_t bytes;
    mt_status st = look(path, &m, &bytes, e);
    if (st == MT_OK) st = read_config(path, mt_manifest_find(&m, config_name), cfg, e);
    mt_manifest_release(&m);
    if (st != MT_OK) mt_err_while(e, "reading the checkpoint's configuration");
    return st;
}

/* ---- into the items ---- */
static mt_status check_item(const struct mt_tensors *t, const char *file, const struct mt_ckpt_item *i,
                            mt_err *e)
{
    const struct mt_tensor_entry *x = mt_tensors_find(t, i->name);
    MT_REQUIRE(x, e, MT_CKPT, "'%s' has no tensor '%s', which this configuration needs", file, i->name);
    MT_REQUIRE(x->shape[0] == i->rows && x->shape[1] == i->cols, e, MT_CKPT,
               "'%s': tensor '%s' is [%" PRId64 ", %" PRId64 "], this configuration needs [%" PRId64
               ", %" PRId64 "] (0: a vector)",
               file, i->name, x->shape[0], x->shape[1], i->rows, i->cols);
    return MT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every tensor of the file, moments aside if they are not read, must be an item. */
static mt_status check_surplus(const struct mt_tensors *t, const char *file, const char *const *name,
                               int64_t n, bool weights_only, mt_err *e)
{
    for (int64_t i = 0; i < t->n; i++) {
        const char *have = t->entry[i].name;
        if (weights_only && !strncmp(have, "optim.", 6)) continue;
        MT_REQUIRE(
            n && bsearch(&have, name, (size_t)n, sizeof *name, by_name), e, MT_CKPT,
            "'%s' holds tensor '%.100s', which this configuration does not have: it is of another model",
            file, have);
    }
    return MT_OK;
}

static mt_status check_items(const struct mt_tensors *t, const char *file, const struct mt_ckpt_items *items,
                             bool weights_only, mt_err *e)
{
    const char **name = malloc((size_t)(items->n + 1) * sizeof *name);
    mt_status st = name ? MT_OK : mt_err_set(e, MT_IO, "no memory to list %" PRId64 " tensors", items->n);
    int64_t n = 0;
    for (int64_t i = 0; i < items->n && st == MT_OK; i++) {
        if (weights_only && items->item[i].moment) continue;
        name[n++] = items->item[i].name;
        st = check_item(t, file, &items->item[i], e);
    }
    if (st == MT_OK) {
        qsort(name, (size_t)n, sizeof *name, by_name);
        st = check_surplus(t, file, name, n, weights_only, e);
    }
    free(name);
    return st;
}

static mt_status copy_item(const struct mt_ckpt_items *x, const struct mt_ckpt_item *i,
                           const unsigned char *from, mt_err *e)
{
    for (const struct mt_ckpt_piece *p = &x->piece[i->first], *end = p + i->n; p < end; p++)
        if (p->data)
            MT_TRY(mt_copy_now(p->ctx, p->data, from + p->row0 * mt_ckpt_row_bytes(i),
                               p->rows * mt_ckpt_row_bytes(i), e));
    return MT_OK;
}

mt_status mt_ckpt_load(const char *path, const struct mt_ckpt_items *items, bool weights_only,
                       struct mt_ckpt_meta *meta, mt_err *e)
{
    char file[FILE_PATH];
    struct mt_tensors t;
    MT_TRY(mt_ckpt_verify(path, meta, e));
    file_path(file, path, tensors_name);
    MT_TRY(mt_tensors_open(&t, file, e));
    mt_status st = check_items(&t, file, items, weights_only, e);
    for (int64_t i = 0; i < items->n && st == MT_OK; i++) {
        const struct mt_ckpt_item *p = &items->item[i];
        if (weights_only && p->moment) continue;
        const struct mt_tensor_entry *x = mt_tensors_find(&t, p->name);
        st = copy_item(items, p, mt_tensors_bytes(&t, x), e);
    }
    mt_tensors_close(&t);
    return st;
}
