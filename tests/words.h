/* words.h: a configuration from options in one text. */
#ifndef MT_TESTS_WORDS_H
#define MT_TESTS_WORDS_H
#include <stdio.h>
#include <string.h>

#include "config/config.h"

enum { WORDS_MOST = 64 };

/* "key=value key=value ...": of a key that is there twice the last counts. */
static inline mt_status words_load(mt_config *cfg, const char *words, mt_err *e)
{
    char text[4096], *arg[WORDS_MOST], *rest = text;
    int n = 0;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        int same = 0; /* an option may be given once */
        while (same < n && strncmp(arg[same], word, strcspn(word, "=") + 1) != 0) same++;
        if (same == WORDS_MOST)
            return mt_err_set(e, MT_CONFIG, "more than %d options: %s", WORDS_MOST, words);
        arg[same] = word;
        if (same == n) n++;
    }
    return mt_config_load(cfg, NULL, n, arg, e);
}
#endif
