/* tensors.h: safetensors: an 8-byte length, a JSON header of names, dtypes, shapes and offsets, then the
 * bytes. */
#ifndef MT_CKPT_TENSORS_H
#define MT_CKPT_TENSORS_H
#include <stdint.h>

#include "ckpt/file.h"
#include "ckpt/items.h"

struct mt_tensor_entry {
    const char *name;   /* in the header */
    int64_t begin, end; /* of its bytes, behind the header */
    int64_t shape[2];   /* a vector has shape[1] = 0 */
};
struct mt_tensors {
    struct mt_in file;
    int64_t data;                  /* offset of the first tensor's bytes */
    struct cJSON *header;          /* owned: tensors in the file's order */
    struct mt_tensor_entry *entry; /* owned: n of them, by name */
    int64_t n;
    bool mapped;
};
/* Maps and checks a file: header length, JSON, every entry's dtype (F32), shape, and offsets that cover the
 * data without hole or overlap. CKPT names file and tensor. A failure leaves nothing to close. */
MT_MUST_USE mt_status mt_tensors_open(struct mt_tensors *t, const char *path, mt_err *e);
/* The same for bytes in memory, which stay the caller's; name stands for them in messages. */
MT_MUST_USE mt_status mt_tensors_parse(struct mt_tensors *t, const char *name, const unsigned char *data,
                                       int64_t bytes, mt_err *e);
void mt_tensors_close(struct mt_tensors *t);
/* A tensor, or NULL. */
const struct mt_tensor_entry *mt_tensors_find(const struct mt_tensors *t, const char *name);
static inline const unsigned char *mt_tensors_bytes(const struct mt_tensors *t,
                                                    const struct mt_tensor_entry *x)
{
    return t->file.data + t->data + x->begin;
}
/* Compares every tensor with the checksums that were written beside the file. */
MT_MUST_USE mt_status mt_tensors_verify(const struct mt_tensors *t, const char *path, const char *sums_path,
                                        mt_err *e);
#endif
