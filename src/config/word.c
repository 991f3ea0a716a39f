#include "config/word.h"

#include <stdint.h>
#include <string.h>

enum { NAME_LONGEST = 64 }; /* longer ones are not compared: no name of a table is that long */

/* Decodes one character of s[0..n), n > 0. Returns its length, or 0: not UTF-8 (overlong forms, surrogates
 * and what is past U+10FFFF included). */
static size_t decode(const char *s, size_t n, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)s;
    size_t len = u[0] < 0x80 ? 1 : u[0] >> 5 == 6 ? 2 : u[0] >> 4 == 14 ? 3 : u[0] >> 3 == 30 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    uint32_t c = len == 1 ? u[0] : u[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (u[i] >> 6 != 2) return 0;
        c = c << 6 | (u[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *out = c;
    return len;
}

/* YAML's printable characters (section 5.1 of its specification), less the byte order mark. */
static bool printable(uint32_t c, bool breaks)
{
    if (c == '\t' || c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029) return breaks;
    return (c >= 0x20 && c < 0x7f) || (c >= 0xa0 && c < 0xfffe && c != 0xfeff) || c >= 0x10000;
}

size_t mt_word_printable(const char *s, size_t n, bool breaks)
{
    size_t at = 0;
    while (at < n) {
        uint32_t c;
        size_t len = decode(s + at, n - at, &c);
        if (len == 0 || !printable(c, breaks)) break;
        at += len;
    }
    return at;
}

char *mt_word_clean(char *out, size_t size, const char *s)
{
    size_t n = strlen(s), at = 0, to = 0, cut = 0; /* cut: the last place where "..." still fits */
    while (at < n) {
        uint32_t c;
        size_t len = decode(s + at, n - at, &c);
        bool shown = len > 0 && printable(c, false);
        size_t width = shown ? len : 1;
        if (to + width >= size) {
            memcpy(out + cut, "...", 4);
            return out;
        }
        if (to + 4 <= size) cut = to;
        if (shown)
            memcpy(out + to, s + at, len);
        else
            out[to] = '?';
        to += width;
        at += len > 0 ? len : 1;
    }
    out[to] = 0;
    return out;
}

/* Damerau's distance with each swapped pair left alone afterwards. */
static int distance(const char *a, const char *b)
{
    int row[3][NAME_LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3];
        const int *up = row[(i + 2) % 3], *upper = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && upper[j - 2] + 1 < best) best = upper[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *mt_word_nearest(const char *s, const char *const *names, int n)
{
    const char *dot = strchr(s, '.'), *nearest = NULL;
    if (strlen(s) > NAME_LONGEST) return NULL;
    int len = (int)strlen(dot ? dot + 1 : s), best = len < 3 ? 2 : len / 3 + 1;
    for (int i = 0; i < n; i++) {
        const char *part = dot ? NULL : strchr(names[i], '.');
        int d = distance(s, names[i]);
        if (part && distance(s, part + 1) < d) d = distance(s, part + 1);
        if (d < best && d < len) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}
