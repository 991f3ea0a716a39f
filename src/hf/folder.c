#include "hf/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/read.h"

enum { INDEX_MOST = 1 << 28 };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct mt_hf_entry *)a)->name, ((const struct mt_hf_entry *)b)->name);
}
static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct mt_hf_entry *mt_hf_find(const struct mt_hf_folder *h, const char *name)
{
    struct mt_hf_entry key = {.name = name};
    return h->n ? bsearch(&key, h->entry, (size_t)h->n, sizeof key, by_name) : NULL;
}

/* The files that an index names, each once. */
static mt_status list_files(struct mt_hf_folder *h, const struct mt_hf_index *x, mt_err *e)
{
    h->name = calloc((size_t)(x ? x->n : 1), sizeof *h->name);
    MT_REQUIRE(h->name, e, MT_IO, "no memory to list the files of '%s'", h->path);
    if (!x) snprintf(h->name[h->n_files++], sizeof *h->name, "model.safetensors");
    if (!x) return MT_OK;
    for (int64_t i = 0; i < x->n; i++) snprintf(h->name[i], sizeof *h->name, "%s", x->place[i].file);
    qsort(h->name, (size_t)x->n, sizeof *h->name, by_text);
    for (int64_t i = 0; i < x->n; i++)
        if (!h->n_files || strcmp(h->name[h->n_files - 1], h->name[i]) != 0)
            memmove(h->name[h->n_files++], h->name[i], sizeof *h->name);
    return MT_OK;
}

static mt_status read_headers(struct mt_hf_folder *h, mt_err *e)
{
    h->file = calloc((size_t)h->n_files, sizeof *h->file);
    MT_REQUIRE(h->file, e, MT_IO, "no memory to list the files of '%s'", h->path);
    for (int f = 0; f < h->n_files; f++) {
        char path[MT_HF_PATH + MT_HF_FILE];
        snprintf(path, sizeof path, "%s/%s", h->path, h->name[f]);
        MT_TRY(mt_tensors_open_any(&h->file[f], path, e));
        h->n += h->file[f].n;
    }
    return MT_OK;
}

static mt_status list_entries(struct mt_hf_folder *h, mt_err *e)
{
    int64_t n = 0;
    h->entry = calloc((size_t)h->n + 1, sizeof *h->entry);
    MT_REQUIRE(h->entry, e, MT_IO, "no memory to list %" PRId64 " tensors of '%s'", h->n, h->path);
    for (int f = 0; f < h->n_files; f++)
        for (int64_t i = 0; i < h->file[f].n; i++) {
            const struct mt_tensor_entry *x = &h->file[f].entry[i];
            struct mt_hf_entry *to = &h->entry[n++];
            *to = (struct mt_hf_entry){.name = x->name,
                                       .file = f,
                                       .type = x->type,
                                       .dims = x->dims,
                                       .at = h->file[f].data + x->begin};
            memcpy(to->shape, x->shape, sizeof to->shape);
        }
    qsort(h->entry, (size_t)h->n, sizeof *h->entry, by_name);
    for (int64_t i = 1; i < h->n; i++)
        MT_REQUIRE(strcmp(h->entry[i - 1].name, h->entry[i].name), e, MT_CKPT,
                   "'%s': tensor '%.100s' is in %s and in %s", h->path, h->entry[i].name,
                   h->name[h->entry[i - 1].file], h->name[h->entry[i].file]);
    return MT_OK;
}

/* Both lists are in the order of names. */
static mt_status compare(const struct mt_hf_folder *h, const struct mt_hf_index *x, mt_err *e)
{
    for (int64_t i = 0, k = 0; i < x->n || k < h->n; i++, k++) {
        int order = i == x->n ? 1 : k == h->n ? -1 : strcmp(x->place[i].tensor, h->entry[k].name);
        MT_REQUIRE(order >= 0, e, MT_CKPT,
                   "'%s': the index has tensor '%.100s' in %s, which does not hold it", h->path,
                   x->place[i].tensor, x->place[i].file);
        MT_REQUIRE(order <= 0, e, MT_CKPT, "'%s': tensor '%.100s' in %s is not in the index", h->path,
                   h->entry[k].name, h->name[h->entry[k].file]);
        MT_REQUIRE(!strcmp(x->place[i].file, h->name[h->entry[k].file]), e, MT_CKPT,
                   "'%s': the index has tensor '%.100s' in %s, but it is in %s", h->path, x->place[i].tensor,
                   x->place[i].file, h->name[h->entry[k].file]);
    }
    return MT_OK;
}

static mt_status open_all(struct mt_hf_folder *h, const struct mt_hf_index *x, mt_err *e)
{
    MT_TRY(list_files(h, x, e));
    MT_TRY(read_headers(h, e));
    MT_TRY(list_entries(h, e));
    return x ? compare(h, x, e) : MT_OK;
}

static mt_status open_indexed(struct mt_hf_folder *h, const char *path, mt_err *e)
{
    struct mt_hf_index x;
    char *text;
    int64_t bytes;
    MT_TRY(mt_read_whole(path, INDEX_MOST, &text, &bytes, e));
    mt_status st = mt_hf_index_parse(&x, path, text, bytes, e);
    free(text);
    MT_TRY(st);
    st = open_all(h, &x, e);
    mt_hf_index_close(&x);
    return st;
}

mt_status mt_hf_folder_open(struct mt_hf_folder *h, const char *path, mt_err *e)
{
    char index[MT_HF_PATH + MT_HF_FILE];
    struct stat st;
    *h = (struct mt_hf_folder){0};
    MT_REQUIRE(strlen(path) < MT_HF_PATH, e, MT_CONFIG, "the path of the folder is too long: '%.60s...'",
               path);
    snprintf(h->path, sizeof h->path, "%s", path);
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", path);
    bool indexed = !stat(index, &st) || errno != ENOENT;
    mt_status done = indexed ? open_indexed(h, index, e) : open_all(h, NULL, e);
    if (done != MT_OK) mt_hf_folder_close(h);
    return done;
}

void mt_hf_folder_close(struct mt_hf_folder *h)
{
    for (int f = 0; h->file && f < h->n_files; f++) mt_tensors_close(&h->file[f]);
    free(h->file);
    free(h->name);
    free(h->entry);
    *h = (struct mt_hf_folder){0};
}
