/* regex.h: regular expressions as tokenizer files write them, compiled by PCRE2. */
#ifndef MT_TOKENIZER_REGEX_H
#define MT_TOKENIZER_REGEX_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/status.h"

/* pattern: of bytes; literal: a string to find as it is. DATA says what the library did not take. */
MT_MUST_USE mt_status mt_regex_compile(pcre2_code **out, const char *pattern, bool literal, mt_err *e);
/* What the GPT-2 tokenizer splits by, which ByteLevel stands for. */
extern const char mt_regex_gpt2[];
#endif
