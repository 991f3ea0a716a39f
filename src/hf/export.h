/* export.h: a checkpoint's weights as a Hugging Face folder. */
#ifndef MT_HF_EXPORT_H
#define MT_HF_EXPORT_H
#include <stdio.h>

#include "ckpt/ckpt.h"

struct mt_hf_export {
    bool bf16; /* of f32 masters, rounded to nearest even; else F32. Selection biases are always F32 */
    int64_t shard_bytes;          /* of tensors in a file, unless one tensor has more */
    const char *const *tokenizer; /* n_tokenizer files, copied under their own names */
    int n_tokenizer;
    struct mt_progress *progress; /* see mt_ckpt_verify_told */
    FILE *told;                   /* what is left out and why, a line each; NULL: nobody */
};
/* Writes `to`, which must not be there yet: config.json, model.safetensors or shards with an index, the tokenizer's files. By several
 * threads, with a few MiB each; what is read is verified. Everything is fsynced, under the name `to`.exporting, and then renamed. After a
 * failure nothing of it is left. CONFIG names the option that no family can express. CKPT: the checkpoint is damaged, or has no
 * such tensor. files: of weights. */
MT_MUST_USE mt_status mt_hf_export(const char *from, const char *to, const struct mt_hf_export *how,
                                   int *files, mt_err *e);
#endif
