/* tokenizer.h: the files of a tokenizer, which pass through as they are. */
#ifndef MT_HF_TOKENIZER_H
#define MT_HF_TOKENIZER_H
#include "base/status.h"
#include "hf/folder.h"

enum { MT_HF_TOKENIZER_FILES = 16 };
struct mt_hf_tokenizer {
    char path[MT_HF_TOKENIZER_FILES][MT_HF_PATH + MT_HF_FILE];
    int n;
};
/* Of a folder, those there that have a name which transformers gives to such files; none is no error. A file is taken alone, whatever its name.
 * CONFIG: it is neither, or the path is too long. */
MT_MUST_USE mt_status mt_hf_tokenizer_find(struct mt_hf_tokenizer *t, const char *path, mt_err *e);
#endif
