/* config.h: config.json of a Hugging Face folder, from a configuration and back. */
#ifndef MT_HF_CONFIG_H
#define MT_HF_CONFIG_H
#include "hf/family.h"

enum { MT_HF_UNUSED = 1024 };

/* The text, malloc'ed, the caller's, of a configuration that is of this family. bf16: what the tensors are. In the keys that
 * old and new versions of transformers read. */
MT_MUST_USE mt_status mt_hf_config_write(const mt_config *c, enum mt_hf_family f, bool bf16, char **text,
                                         int64_t *bytes, mt_err *e);
/* The family, and a configuration with its model.* options, checked; all others have their defaults, but for train.seq_len: the
 * model's positions, or MT_HF_SEQ_LEN if they are more. unused: keys that mean nothing here, as "a, b". name stands for the text in messages.
 * CKPT: it is no config.json. CONFIG: of a model that cannot be expressed; the message names the key. */
enum { MT_HF_SEQ_LEN = 4096 };
MT_MUST_USE mt_status mt_hf_config_read(mt_config *c, enum mt_hf_family *f, const char *name,
                                        const char *text, int64_t bytes, char unused[MT_HF_UNUSED],
                                        mt_err *e);
#endif
