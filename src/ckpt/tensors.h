/* tensors.h: safetensors: an 8-byte length, a JSON header of names, dtypes, shapes and offsets, then the
 * bytes. */
#ifndef MT_CKPT_TENSORS_H
#define MT_CKPT_TENSORS_H
#include <stdbool.h>
#include <stdint.h>

#include "ckpt/file.h"
#include "ckpt/items.h"

enum mt_tensor_type { MT_TENSOR_F32, MT_TENSOR_BF16, MT_TENSOR_F16, MT_TENSOR_OTHER };
enum { MT_TENSOR_DIMS = 4 };
struct mt_tensor_entry {
    const char *name;              /* in the header */
    int64_t begin, end;            /* of its bytes, behind the header */
    int64_t shape[MT_TENSOR_DIMS]; /* behind the last of them 0: a vector has shape[1] = 0 */
    int dims;
    enum mt_tensor_type type;
};
struct mt_tensors {
    int64_t bytes;                 /* of the file */
    int64_t data;                  /* offset of the first tensor's bytes */
    struct cJSON *header;          /* owned: tensors in the file's order */
    struct mt_tensor_entry *entry; /* owned: n of them, by name */
    int64_t n;
    bool any; /* of others: see mt_tensors_open_any */
};
int64_t mt_tensor_element(enum mt_tensor_type type); /* bytes; 0: not known */
const char *mt_tensor_type_name(enum mt_tensor_type type);
/* Reads and checks the header of a file: its length, JSON, every entry's dtype (F32), shape, and offsets that cover the
 * data without hole or overlap. CKPT names file and tensor. A failure leaves nothing to close. */
MT_MUST_USE mt_status mt_tensors_open(struct mt_tensors *t, const char *path, mt_err *e);
/* The same for files of others: any dtype, whose shape is only compared with its bytes if it is one of mt_tensor_type's, and up to
 * MT_TENSOR_DIMS dimensions. */
MT_MUST_USE mt_status mt_tensors_open_any(struct mt_tensors *t, const char *path, mt_err *e);
/* The same for the first bytes of a file of file_bytes, in memory, up to the end of its header or of the file; name stands for
 * it in messages. */
MT_MUST_USE mt_status mt_tensors_parse(struct mt_tensors *t, const char *name, const unsigned char *head,
                                       int64_t head_bytes, int64_t file_bytes, mt_err *e);
MT_MUST_USE mt_status mt_tensors_parse_any(struct mt_tensors *t, const char *name, const unsigned char *head,
                                           int64_t head_bytes, int64_t file_bytes, mt_err *e);
/* The header's length by the first 8 bytes (fewer if there are not so many). */
MT_MUST_USE mt_status mt_tensors_length(const char *name, const unsigned char *head, int64_t head_bytes,
                                        int64_t file_bytes, int64_t *length, mt_err *e);
void mt_tensors_close(struct mt_tensors *t);
/* A tensor, or NULL. */
const struct mt_tensor_entry *mt_tensors_find(const struct mt_tensors *t, const char *name);
/* Whether the header's metadata have this key with this value. */
bool mt_tensors_told(const struct mt_tensors *t, const char *key, const char *value);
#endif
