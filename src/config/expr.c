#include "config/expr.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "config/word.h"

enum { MOST_WORD = 128, MOST_DEPTH = 32 };
/* A number, the text of a value, or the outcome of a comparison. */
struct value {
    enum { NUMBER, TEXT, TRUTH } kind;
    double number;
    char text[MOST_WORD];
};
struct reader {
    const char *begin, *at;
    const mt_config *c;
    char *why;
    bool bad;
    int depth;
};

static void blame(struct reader *r, const char *fmt, ...) MT_PRINTF(2, 3);
static void blame(struct reader *r, const char *fmt, ...)
{
    char text[MT_VALUE_WHY - 64];
    va_list ap;
    if (r->bad) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(r->why, MT_VALUE_WHY, "at character %lld: %s", (long long)(r->at - r->begin) + 1, text);
    r->bad = true;
}

/* ---- words ---- */
static void skip_space(struct reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}
static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}
static bool take(struct reader *r, const char *sign)
{
    size_t n = strlen(sign);
    skip_space(r);
    if (strncmp(r->at, sign, n) != 0 || (isalpha((unsigned char)*sign) && in_word(r->at[n]))) return false;
    r->at += n;
    return true;
}

static struct value number_of(double v)
{
    return (struct value){.kind = NUMBER, .number = v};
}
static struct value truth_of(bool v)
{
    return (struct value){.kind = TRUTH, .number = v};
}

/* ---- values ---- */
/* A number as options have them: plain, or with a unit of counts, bytes or time. */
static struct value read_number(struct reader *r)
{
    char word[MOST_WORD], why[MT_VALUE_WHY], *end;
    size_t n = 0;
    while (in_word(r->at[n]) || (n && strchr("+-", r->at[n]) && r->at[n] && strchr("eE", r->at[n - 1]))) n++;
    snprintf(word, sizeof word, "%.*s", (int)n, r->at);
    double v = strtod(word, &end);
    if (*end) {
        int64_t count = 0;
        const mt_option bytes = {.key = "", .type = MT_VALUE_BYTES, .limit = "[0, 1000PiB]", .size = 8};
        const mt_option whole = {.key = "", .type = MT_VALUE_INT, .limit = "[0, 1000000T]", .size = 8};
        const mt_option time = {.key = "", .type = MT_VALUE_TIME, .limit = "[0s, 1000000d]", .size = 8};
        if (mt_value_set(&whole, &count, word, why) || mt_value_set(&bytes, &count, word, why))
            v = (double)count;
        else if (!mt_value_set(&time, &v, word, why))
            blame(r, "'%s' is no number", word);
    }
    if (!isfinite(v)) blame(r, "'%s' is no number", word);
    r->at += n;
    return number_of(v);
}

static struct value option_value(struct reader *r, const char *key)
{
    char text[MT_VALUE_TEXT];
    mt_option_id id = mt_option_find(key);
    if (id == MT_OPTION_COUNT) {
        blame(r, "%s", mt_option_unknown(key, false, text, sizeof text));
        return number_of(0);
    }
    const mt_option *o = &mt_options[id];
    const char *member = (const char *)r->c + o->offset;
    if (o->type == MT_VALUE_INT || o->type == MT_VALUE_BYTES)
        return number_of((double)*(const int64_t *)member);
    if (o->type == MT_VALUE_FLOAT || o->type == MT_VALUE_TIME) return number_of(*(const double *)member);
    if (o->list) {
        blame(r, "%s is a list of entries, which has no value to compare", o->key);
        return number_of(0);
    }
    struct value v = {.kind = TEXT};
    snprintf(v.text, sizeof v.text, "%.*s", MOST_WORD - 1, mt_value_text(o, r->c, text));
    return v;
}

static struct value read_word(struct reader *r)
{
    struct value v = {.kind = TEXT};
    size_t n = 0;
    while (in_word(r->at[n])) n++;
    if (n >= sizeof v.text) blame(r, "a word of more than %d characters", MOST_WORD - 1);
    snprintf(v.text, sizeof v.text, "%.*s", (int)n, r->at);
    if (strchr(v.text, '.')) v = option_value(r, v.text);
    r->at += n;
    return v;
}

static struct value read_quoted(struct reader *r)
{
    struct value v = {.kind = TEXT};
    char quote = *r->at++;
    size_t n = 0;
    while (r->at[n] && r->at[n] != quote) n++;
    if (!r->at[n] || n >= sizeof v.text) {
        blame(r, "text in quotes does not end, or is longer than %d characters", MOST_WORD - 1);
        return v;
    }
    snprintf(v.text, sizeof v.text, "%.*s", (int)n, r->at);
    r->at += n + 1;
    return v;
}

static struct value read_or(struct reader *r);
static struct value read_single(struct reader *r)
{
    skip_space(r);
    if (r->depth > MOST_DEPTH) blame(r, "nested more than %d deep", MOST_DEPTH);
    if (r->bad) return number_of(0);
    if (isdigit((unsigned char)*r->at)) return read_number(r);
    if (isalpha((unsigned char)*r->at)) return read_word(r);
    if (*r->at == '\'' || *r->at == '"') return read_quoted(r);
    if (!take(r, "(")) {
        blame(r, "expected a number, an option or text");
        return number_of(0);
    }
    r->depth++;
    struct value v = read_or(r);
    r->depth--;
    if (!take(r, ")")) blame(r, "expected )");
    return v;
}

/* ---- signs ---- */
static double as_number(struct reader *r, const struct value *v)
{
    if (v->kind != NUMBER)
        blame(r, "a number is needed here, not %s", v->kind == TEXT ? v->text : "a condition");
    return v->number;
}
static bool as_truth(struct reader *r, const struct value *v)
{
    bool word = v->kind == TEXT && (!strcmp(v->text, "true") || !strcmp(v->text, "false"));
    if (v->kind != TRUTH && !word) blame(r, "a condition is needed here, such as model.dim < 512");
    return v->kind == TRUTH ? v->number > 0 : word && *v->text == 't';
}

static struct value read_unary(struct reader *r)
{
    bool negative = false;
    while (take(r, "-")) negative = !negative;
    struct value v = read_single(r);
    return negative ? number_of(-as_number(r, &v)) : v;
}
static struct value read_product(struct reader *r)
{
    struct value v = read_unary(r);
    for (char sign; !r->bad;) {
        skip_space(r);
        sign = *r->at;
        if (!sign || !strchr("*/%", sign)) break;
        r->at++;
        struct value w = read_unary(r);
        double a = as_number(r, &v), b = as_number(r, &w);
        if (sign != '*' && !(fabs(b) > 0)) blame(r, "a division by zero");
        if (!r->bad) v = number_of(sign == '*' ? a * b : sign == '/' ? a / b : fmod(a, b));
    }
    return v;
}
static struct value read_sum(struct reader *r)
{
    struct value v = read_product(r);
    for (bool plus; !r->bad && ((plus = take(r, "+")) || take(r, "-"));) {
        struct value w = read_product(r);
        double a = as_number(r, &v), b = as_number(r, &w);
        v = number_of(plus ? a + b : a - b);
    }
    return v;
}

static bool compare(struct reader *r, int sign, const struct value *a, const struct value *b)
{
    enum { EQUAL, UNEQUAL, AT_MOST, AT_LEAST, BELOW, ABOVE };
    if (a->kind == TEXT && b->kind == TEXT && sign <= UNEQUAL)
        return (strcmp(a->text, b->text) == 0) == (sign == EQUAL);
    double x = as_number(r, a), y = as_number(r, b);
    bool below = x<y, above = x> y;
    switch (sign) {
    case EQUAL: return !below && !above;
    case UNEQUAL: return below || above;
    case AT_MOST: return !above;
    case AT_LEAST: return !below;
    case BELOW: return below;
    default: return above;
    }
}
static struct value read_comparison(struct reader *r)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    struct value v = read_sum(r);
    for (int i = 0; i < 6 && !r->bad; i++) {
        if (!take(r, signs[i])) continue;
        struct value w = read_sum(r);
        return truth_of(compare(r, i, &v, &w));
    }
    return v;
}
static struct value read_not(struct reader *r)
{
    bool negated = false, any = false;
    for (; take(r, "not"); any = true) negated = !negated;
    struct value v = read_comparison(r);
    return any ? truth_of(as_truth(r, &v) != negated) : v;
}
/* Both sides are read, whatever the first says: a mistake in the second is told anyway. */
static struct value read_and(struct reader *r)
{
    struct value v = read_not(r);
    while (!r->bad && take(r, "and")) {
        struct value w = read_not(r);
        bool a = as_truth(r, &v), b = as_truth(r, &w);
        v = truth_of(a && b);
    }
    return v;
}
static struct value read_or(struct reader *r)
{
    struct value v = read_and(r);
    while (!r->bad && take(r, "or")) {
        struct value w = read_and(r);
        bool a = as_truth(r, &v), b = as_truth(r, &w);
        v = truth_of(a || b);
    }
    return v;
}

bool mt_expr_holds(const char *text, const mt_config *c, bool *holds, char why[static MT_VALUE_WHY])
{
    struct reader r = {.begin = text, .at = text, .c = c, .why = why};
    struct value v = read_or(&r);
    skip_space(&r);
    if (!r.bad && *r.at) blame(&r, "what begins here belongs to nothing");
    *holds = as_truth(&r, &v);
    return !r.bad;
}
