#include "tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The character at p: its bytes if it is valid; else minus those of its maximal subpart (table 3-7 of the standard: the second
 * byte's range depends on the first). */
static int character(const unsigned char *p, int64_t left)
{
    unsigned char c = p[0], low = 0x80, high = 0xBF;
    int n;
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF)
        n = 2;
    else if (c >= 0xE0 && c <= 0xEF)
        n = 3;
    else if (c >= 0xF0 && c <= 0xF4)
        n = 4;
    else
        return -1;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    for (int i = 1; i < n; i++, low = 0x80, high = 0xBF)
        if (i >= left || p[i] < low || p[i] > high) return -i;
    return n;
}

int64_t mt_utf8_valid(const char *text, int64_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    int64_t i = 0;
    while (i < bytes) {
        uint64_t eight;
        if (i + 8 <= bytes && (memcpy(&eight, p + i, 8), !(eight & UINT64_C(0x8080808080808080)))) {
            i += 8;
            continue;
        }
        int n = character(p + i, bytes - i);
        if (n < 0) break;
        i += n;
    }
    return i;
}

mt_status mt_utf8_repair(struct mt_text *out, const char *text, int64_t bytes, mt_err *e)
{
    while (bytes > 0) {
        int64_t good = mt_utf8_valid(text, bytes);
        MT_TRY(mt_text_append(out, text, good, e));
        text += good;
        bytes -= good;
        if (!bytes) break;
        int n = -character((const unsigned char *)text, bytes);
        MT_TRY(mt_text_append(out, "\xEF\xBF\xBD", 3, e));
        text += n;
        bytes -= n;
    }
    return MT_OK;
}

static mt_status nfc_part(struct mt_text *out, const char *text, int64_t bytes, mt_err *e)
{
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &made,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    mt_status st = n >= 0 ? mt_text_append(out, (const char *)made, n, e)
                          : mt_err_set(e, MT_IO, "cannot normalize %lld bytes of text: %s", (long long)bytes,
                                       utf8proc_errmsg(n));
    free(made);
    return st;
}

/* Text in which every character is below U+0300 is in normal form C: no combining mark, nothing that composes. A newline composes
 * with nothing, so lines are normalized by themselves, and only those that need it. */
mt_status mt_utf8_nfc(struct mt_text *out, const char *text, int64_t bytes, mt_err *e)
{
    int64_t done = 0; /* text before it is appended */
    for (int64_t from = 0; from < bytes;) {
        const char *end = memchr(text + from, '\n', (size_t)(bytes - from));
        int64_t to = end ? end - text + 1 : bytes;
        bool needs = false;
        for (int64_t i = from; i < to; i++) needs |= (unsigned char)text[i] >= 0xCC; /* U+0300 is CC 80 */
        if (needs) {
            MT_TRY(mt_text_append(out, text + done, from - done, e));
            MT_TRY(nfc_part(out, text + from, to - from, e));
            done = to;
        }
        from = to;
    }
    return mt_text_append(out, text + done, bytes - done, e);
}
