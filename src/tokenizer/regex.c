#include "tokenizer/regex.h"

#include <string.h>

#include "tokenizer/utf8.h"

const char mt_regex_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* White space by the Unicode property White_Space, which the engine these files are written for means by \s; PCRE2's own leaves
 * U+0085 out. Without the brackets, for use inside of some. */
static const char white[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
                            "\\x{202f}\\x{205f}\\x{3000}";

static mt_status add(struct mt_text *out, const char *s, mt_err *e)
{
    return mt_text_append(out, s, (int64_t)strlen(s), e);
}

/* Spells \s and \S out. */
static mt_status spell_white(struct mt_text *out, const char *pattern, mt_err *e)
{
    bool in_class = false;
    for (const char *p = pattern; *p; p++) {
        if (*p == '[' && !in_class)
            in_class = true;
        else if (*p == ']' && in_class && p[-1] != '[' && !(p[-1] == '^' && p[-2] == '['))
            in_class = false;
        if (*p != '\\' || !p[1]) {
            MT_TRY(mt_text_append(out, p, 1, e));
            continue;
        }
        p++;
        bool negated = *p == 'S';
        if (*p != 's' && !negated) {
            MT_TRY(mt_text_append(out, p - 1, 2, e));
        } else if (in_class) {
            MT_REQUIRE(!negated, e, MT_DATA, "\\S inside of [ ] is not supported");
            MT_TRY(add(out, white, e));
        } else {
            MT_TRY(add(out, negated ? "[^" : "[", e));
            MT_TRY(add(out, white, e));
            MT_TRY(add(out, "]", e));
        }
    }
    return MT_OK;
}

mt_status mt_regex_compile(pcre2_code **out, const char *pattern, bool literal, mt_err *e)
{
    struct mt_text spelled = {0};
    int code = 0;
    PCRE2_SIZE at = 0;
    mt_status st = literal ? add(&spelled, pattern, e) : spell_white(&spelled, pattern, e);
    *out = NULL;
    if (st == MT_OK) st = mt_text_append(&spelled, "", 1, e);
    if (st == MT_OK) {
        uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
        *out =
            pcre2_compile((PCRE2_SPTR)spelled.at, (PCRE2_SIZE)spelled.bytes - 1, options, &code, &at, NULL);
    }
    if (st == MT_OK && !*out) {
        PCRE2_UCHAR why[200] = "";
        pcre2_get_error_message(code, why, sizeof why);
        st = mt_err_set(e, MT_DATA, "the regular expression \"%.200s\": %s", pattern, (const char *)why);
    }
    /* Without the just-in-time compiler, where the system forbids it, matching is slower and the same. */
    if (st == MT_OK) (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    mt_text_release(&spelled);
    return st;
}
