/* utf8.h: text from outside into valid UTF-8, and that into normal form C. */
#ifndef MT_TOKENIZER_UTF8_H
#define MT_TOKENIZER_UTF8_H
#include <stdint.h>

#include "base/text.h"

/* How many leading bytes are valid UTF-8. */
int64_t mt_utf8_valid(const char *text, int64_t bytes);
/* Bytes of the character that begins there, in valid UTF-8. */
static inline int mt_utf8_length(char first)
{
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
/* Appends the text with U+FFFD for each maximal subpart of what is not UTF-8 (The Unicode Standard, section 3.9). */
MT_MUST_USE mt_status mt_utf8_repair(struct mt_text *out, const char *text, int64_t bytes, mt_err *e);
/* Appends valid UTF-8 in normal form C. */
MT_MUST_USE mt_status mt_utf8_nfc(struct mt_text *out, const char *text, int64_t bytes, mt_err *e);
#endif
