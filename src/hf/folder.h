/* folder.h: the tensors of a Hugging Face folder: one safetensors file, or several with an index. */
#ifndef MT_HF_FOLDER_H
#define MT_HF_FOLDER_H
#include <stdbool.h>

#include "ckpt/tensors.h"

enum {
    MT_HF_FILE = 128,
    MT_HF_PATH = 1200
}; /* bytes, with the end: of a file's name, of the folder's path */

struct mt_hf_entry {
    const char *name; /* in its file's header */
    int file;
    enum mt_tensor_type type;
    int dims;
    int64_t shape[MT_TENSOR_DIMS];
    int64_t at; /* of its first byte, in the file */
    bool used;  /* the caller's */
};
struct mt_hf_folder {
    char path[MT_HF_PATH];
    char (*name)[MT_HF_FILE]; /* owned: n_files of them */
    struct mt_tensors *file;  /* owned */
    int n_files;
    struct mt_hf_entry *entry; /* owned: n of them, by name */
    int64_t n;
};
/* Reads model.safetensors.index.json, or else takes model.safetensors alone; then all headers, which must hold what the index says,
 * no tensor twice. CKPT names the file, and the tensor. A failure leaves nothing to close. */
MT_MUST_USE mt_status mt_hf_folder_open(struct mt_hf_folder *h, const char *path, mt_err *e);
void mt_hf_folder_close(struct mt_hf_folder *h);
/* A tensor, or NULL. */
struct mt_hf_entry *mt_hf_find(const struct mt_hf_folder *h, const char *name);

/* An index: which file has which tensor. */
struct mt_hf_place {
    const char *tensor, *file; /* in the JSON */
};
struct mt_hf_index {
    struct cJSON *json;        /* owned */
    struct mt_hf_place *place; /* owned: n of them, by tensor */
    int64_t n;
};
/* Of bytes in memory; name stands for them in messages. File names are plain: letters, digits, `-`, `_`, `.`, no leading dot. A
 * failure (CKPT, IO: no memory) leaves nothing to close. */
MT_MUST_USE mt_status mt_hf_index_parse(struct mt_hf_index *x, const char *name, const char *text,
                                        int64_t bytes, mt_err *e);
void mt_hf_index_close(struct mt_hf_index *x);
#endif
