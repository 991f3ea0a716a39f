/* shards.h: which file of an export has which tensor, and where. */
#ifndef MT_HF_SHARDS_H
#define MT_HF_SHARDS_H
#include "hf/family.h"

struct mt_hf_shard {
    int64_t first, n; /* its tensors, one behind the other */
    int64_t bytes;    /* of the whole file */
    char *head;       /* length and header; owned */
    int64_t head_bytes;
    char name[48]; /* "model-00001-of-00002.safetensors", or "model.safetensors" */
};
struct mt_hf_shards {
    struct mt_hf_shard *x; /* owned: n of them */
    int n;
    int64_t bytes; /* of all tensors */
};
static inline bool mt_hf_is_bf16(const struct mt_hf_tensor *t, bool bf16)
{
    return bf16 && t->kind != MT_N_TENSOR_KINDS;
}
static inline int64_t mt_hf_numbers(const struct mt_hf_tensor *t)
{
    return t->rows * (t->cols ? t->cols : 1);
}
/* Of all tensors, each with a name of theirs, in their order. IO: no memory. mt_hf_shards_close is due even so. */
MT_MUST_USE mt_status mt_hf_shards_open(struct mt_hf_shards *s, const struct mt_hf_tensors *t, bool bf16,
                                        int64_t shard_bytes, mt_err *e);
void mt_hf_shards_close(struct mt_hf_shards *s);
/* The text of model.safetensors.index.json, malloc'ed, the caller's. */
MT_MUST_USE mt_status mt_hf_shards_index(const struct mt_hf_shards *s, const struct mt_hf_tensors *t,
                                         char **text, int64_t *bytes, mt_err *e);
#endif
