#include "hf/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What save_pretrained of a tokenizer writes, fast or slow, and the vocabularies that hub folders have beside it. */
static const char *const names[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "vocab.txt",
                                    "tokenizer.model",
                                    "spiece.model",
                                    "tiktoken.model",
                                    "sentencepiece.bpe.model",
                                    "chat_template.jinja",
                                    "chat_template.json"};
enum { N_NAMES = sizeof names / sizeof *names };
_Static_assert((int)N_NAMES <= (int)MT_HF_TOKENIZER_FILES, "all of them fit");

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

mt_status mt_hf_tokenizer_find(struct mt_hf_tokenizer *t, const char *path, mt_err *e)
{
    struct stat st;
    t->n = 0;
    MT_REQUIRE(strlen(path) < MT_HF_PATH, e, MT_CONFIG, "the path of the tokenizer is too long: '%.60s...'",
               path);
    MT_REQUIRE(!stat(path, &st), e, MT_CONFIG, "cannot find the tokenizer's '%s': %s", path, strerror(errno));
    MT_REQUIRE(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode), e, MT_CONFIG,
               "the tokenizer's '%s' is no file and no folder", path);
    if (S_ISREG(st.st_mode)) snprintf(t->path[t->n++], sizeof t->path[0], "%s", path);
    for (int i = 0; i < N_NAMES && S_ISDIR(st.st_mode); i++) {
        snprintf(t->path[t->n], sizeof t->path[0], "%s/%s", path, names[i]);
        t->n += is_file(t->path[t->n]);
    }
    return MT_OK;
}
