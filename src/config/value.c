#include "config/value.h"

#include "config/word.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *name;
    int64_t factor;
} unit;

#define BINARY(power) (INT64_C(1) << 10 * (power))
static const unit count_units[] = {
    {"Ki", BINARY(1)}, {"Mi", BINARY(2)}, {"Gi", BINARY(3)},    {"Ti", BINARY(4)}, {"k", 1000},
    {"M", 1000000},    {"G", 1000000000}, {"T", 1000000000000}, {NULL, 0},
};
/* Largest first among the binary ones: mt_value_text takes the first that divides. */
static const unit byte_units[] = {
    {"PiB", BINARY(5)},    {"TiB", BINARY(4)}, {"GiB", BINARY(3)},
    {"MiB", BINARY(2)},    {"KiB", BINARY(1)}, {"PB", 1000000000000000},
    {"TB", 1000000000000}, {"GB", 1000000000}, {"MB", 1000000},
    {"kB", 1000},          {"B", 1},           {NULL, 0},
};
static const unit time_units[] = {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}, {NULL, 0}};

typedef struct number {
    int64_t i; /* INT, BYTES */
    double f;  /* FLOAT, TIME */
} number;

const char *mt_value_type_name(mt_option_type t)
{
    static const char *const name[] = {"INT", "BYTES", "FLOAT",  "TIME", "BOOL",
                                       "STR", "PATH",  "CHOICE", "INTS", "LIST"};
    return name[t];
}

static const unit *units_of(mt_option_type t)
{
    static const unit none[] = {{NULL, 0}};
    return t == MT_VALUE_INT     ? count_units
           : t == MT_VALUE_INTS  ? count_units
           : t == MT_VALUE_BYTES ? byte_units
           : t == MT_VALUE_TIME  ? time_units
                                 : none;
}

static const char *expected(mt_option_type t)
{
    switch (t) {
    case MT_VALUE_INT: return "a whole number such as 512, 64Ki or 2M";
    case MT_VALUE_INTS: return "whole numbers such as [3, 4]";
    case MT_VALUE_BYTES: return "a number of bytes such as 4096, 512MiB or 80GB";
    case MT_VALUE_FLOAT: return "a number such as 0.5 or 3e-4";
    case MT_VALUE_TIME: return "a time such as 30s, 5m or 2h";
    case MT_VALUE_BOOL: return "true or false";
    case MT_VALUE_CHOICE: return "one of its choices";
    case MT_VALUE_STR:
    case MT_VALUE_PATH: return "text";
    case MT_VALUE_GROUPS: break;
    }
    return "a list";
}

static bool is_whole(mt_option_type t)
{
    return t == MT_VALUE_INT || t == MT_VALUE_BYTES || t == MT_VALUE_INTS;
}

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

/* Length of the decimal number that begins the text; 0: none does. `whole`: without fraction and exponent. */
static size_t number_length(const char *text, bool whole)
{
    size_t at = text[0] == '-', n = digits(text + at), fraction = 0;
    if (n > 1 && text[at] == '0') return 0; /* octal to some readers of YAML */
    at += n;
    if (!whole && text[at] == '.') {
        fraction = digits(text + at + 1);
        if (n == 0 && fraction == 0) return 0;
        at += 1 + fraction;
    }
    if (n + fraction == 0) return 0;
    if (!whole && (text[at] == 'e' || text[at] == 'E')) {
        size_t sign = text[at + 1] == '-' || text[at + 1] == '+';
        size_t exponent = digits(text + at + 1 + sign);
        if (exponent > 0) at += 1 + sign + exponent;
    }
    return at;
}

static void say_units(const unit *u, char *out, size_t size)
{
    size_t at = 0;
    for (out[0] = 0; u->name && at < size; u++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", u->name);
}

/* Finds the factor of what follows a number; false: it is no unit. */
static bool unit_factor(const mt_option *o, const char *suffix, int64_t *factor)
{
    *factor = 1;
    if (!*suffix)
        return o->type != MT_VALUE_TIME; /* a time without a unit would be read as minutes by some */
    for (const unit *u = units_of(o->type); u->name; u++) {
        if (strcmp(u->name, suffix)) continue;
        *factor = u->factor;
        return true;
    }
    return false;
}

static bool parse_number(const mt_option *o, const char *text, number *out, char why[static MT_VALUE_WHY])
{
    char shown[64], units[128];
    bool whole = is_whole(o->type);
    size_t len = number_length(text, whole);
    int64_t factor;
    if (len > 0 && text[len] && units_of(o->type)->name && !unit_factor(o, text + len, &factor)) {
        say_units(units_of(o->type), units, sizeof units);
        snprintf(why, MT_VALUE_WHY, "expected %s, got '%s': units are %s", expected(o->type),
                 mt_word_clean(shown, sizeof shown, text), units);
        return false;
    }
    if (len == 0 || !unit_factor(o, text + len, &factor)) {
        snprintf(why, MT_VALUE_WHY, "expected %s, got '%s'", expected(o->type),
                 mt_word_clean(shown, sizeof shown, text));
        return false;
    }
    errno = 0;
    if (whole)
        out->i = strtoll(text, NULL, 10);
    else
        out->f = strtod(text, NULL) * (double)factor;
    bool fits = errno == 0 && (whole ? !__builtin_mul_overflow(out->i, factor, &out->i) : isfinite(out->f));
    if (!fits)
        snprintf(why, MT_VALUE_WHY, "%s is too large or too small", mt_word_clean(shown, sizeof shown, text));
    return fits;
}

/* -1, 0, 1 as a is below, equal to, above b. */
static int compare(const mt_option *o, number a, number b)
{
    if (is_whole(o->type)) return (a.i > b.i) - (a.i < b.i);
    return (a.f > b.f) - (a.f < b.f);
}

/* Checks against a limit such as "[1, 64Ki]" or "(0, 1)". The ends are read like values. */
static bool in_limit(const mt_option *o, number x, char why[static MT_VALUE_WHY])
{
    char low[32], high[32], open, close;
    number a = {0, 0}, b = {0, 0};
    if (sscanf(o->limit, "%c%31[^,], %31[^])]%c", &open, low, high, &close) != 4) return false;
    if (!parse_number(o, low, &a, why) || !parse_number(o, high, &b, why)) return false;
    int la = compare(o, x, a), lb = compare(o, x, b);
    return (open == '[' ? la >= 0 : la > 0) && (close == ']' ? lb <= 0 : lb < 0);
}

static bool number_of(const mt_option *o, const char *text, number *x, char why[static MT_VALUE_WHY])
{
    char shown[64];
    if (!parse_number(o, text, x, why)) return false;
    if (in_limit(o, *x, why)) return true;
    snprintf(why, MT_VALUE_WHY, "%s is outside %s", mt_word_clean(shown, sizeof shown, text), o->limit);
    return false;
}

static bool set_number(const mt_option *o, void *at, const char *text, char why[static MT_VALUE_WHY])
{
    number x = {0, 0};
    if (!number_of(o, text, &x, why)) return false;
    if (o->type == MT_VALUE_INT || o->type == MT_VALUE_BYTES)
        memcpy(at, &x.i, sizeof x.i);
    else
        memcpy(at, &x.f, sizeof x.f);
    return true;
}

/* "[3, 4]", "3,4" or "3". */
static bool set_ints(const mt_option *o, void *at, const char *text, char why[static MT_VALUE_WHY])
{
    mt_ints all = {0};
    size_t end = strlen(text);
    if (end >= 2 && text[0] == '[' && text[end - 1] == ']') text++, end -= 2;
    for (size_t from = 0; from < end; from++) {
        char word[64];
        number x = {0, 0};
        size_t n = 0;
        for (; from < end && text[from] != ','; from++)
            if (text[from] != ' ' && n + 1 < sizeof word) word[n++] = text[from];
        word[n] = 0;
        if (!number_of(o, word, &x, why)) return false;
        if (all.n == MT_INTS_MOST) {
            snprintf(why, MT_VALUE_WHY, "more than %d numbers", MT_INTS_MOST);
            return false;
        }
        all.at[all.n++] = x.i;
    }
    memcpy(at, &all, sizeof all);
    return true;
}

static bool set_bool(void *at, const char *text, char why[static MT_VALUE_WHY])
{
    bool yes = !strcmp(text, "true");
    char shown[64];
    if (!yes && strcmp(text, "false")) {
        snprintf(why, MT_VALUE_WHY, "expected true or false, got '%s'",
                 mt_word_clean(shown, sizeof shown, text));
        return false;
    }
    memcpy(at, &yes, sizeof yes);
    return true;
}

static bool set_text(const mt_option *o, char *at, const char *text, char why[static MT_VALUE_WHY])
{
    size_t n = strlen(text), good = mt_word_printable(text, n, false);
    if (good < n) {
        snprintf(why, MT_VALUE_WHY, "byte %zu of the text is not printable UTF-8 (0x%02x)", good + 1,
                 (unsigned)(unsigned char)text[good]);
        return false;
    }
    if (n >= o->size) {
        snprintf(why, MT_VALUE_WHY, "the text has %zu bytes, at most %zu fit", n, o->size - 1);
        return false;
    }
    memset(at, 0, o->size);
    memcpy(at, text, n);
    return true;
}

static bool set_choice(const mt_option *o, void *at, const char *text, char why[static MT_VALUE_WHY])
{
    int n = 0;
    size_t len = 0;
    char all[256], shown[64];
    for (all[0] = 0; o->choices[n]; n++) {
        if (!strcmp(o->choices[n], text)) {
            memcpy(at, &n, sizeof n);
            return true;
        }
        if (len < sizeof all)
            len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", n ? ", " : "", o->choices[n]);
    }
    const char *near = mt_word_nearest(text, o->choices, n);
    snprintf(why, MT_VALUE_WHY, "expected one of %s, got '%s'%s%s%s", all,
             mt_word_clean(shown, sizeof shown, text), near ? "; did you mean " : "", near ? near : "",
             near ? "?" : "");
    return false;
}

bool mt_value_set(const mt_option *o, void *base, const char *text, char why[static MT_VALUE_WHY])
{
    char *at = (char *)base + o->offset;
    switch (o->type) {
    case MT_VALUE_INT:
    case MT_VALUE_BYTES:
    case MT_VALUE_FLOAT:
    case MT_VALUE_TIME: return set_number(o, at, text, why);
    case MT_VALUE_BOOL: return set_bool(at, text, why);
    case MT_VALUE_STR:
    case MT_VALUE_PATH: return set_text(o, at, text, why);
    case MT_VALUE_CHOICE: return set_choice(o, at, text, why);
    case MT_VALUE_INTS: return set_ints(o, at, text, why);
    case MT_VALUE_GROUPS: break;
    }
    snprintf(why, MT_VALUE_WHY, "expected a list");
    return false;
}

/* The shortest decimal that reads back as x, whole numbers without an exponent. */
static void put_float(char *out, size_t size, double x)
{
    if (fabs(x) < 1e15 && !(floor(x) < x)) {
        snprintf(out, size, "%.0f", x);
        return;
    }
    for (int precision = 1; precision <= DBL_DECIMAL_DIG; precision++) {
        snprintf(out, size, "%.*g", precision, x);
        if (!(strtod(out, NULL) < x) && !(strtod(out, NULL) > x)) return;
    }
}

static void put_bytes(char *out, size_t size, int64_t x)
{
    const unit *u = byte_units;
    while (u->factor > 1 && (u->factor % 1024 != 0 || x == 0 || x % u->factor != 0)) u++;
    snprintf(out, size, "%" PRId64 "%s", x / u->factor, u->factor == 1 ? "" : u->name);
}

static void put_time(char *out, size_t size, double x)
{
    const unit *u = time_units;
    while (u->factor > 1 && (x < (double)u->factor || fmod(x, (double)u->factor) > 0)) u++;
    put_float(out, size - 1, x / (double)u->factor);
    memcpy(out + strlen(out), u->name, 2);
}

static void put_ints(char *out, size_t size, const char *at)
{
    mt_ints all;
    memcpy(&all, at, sizeof all);
    size_t n = (size_t)snprintf(out, size, "[");
    for (int64_t i = 0; i < all.n; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i ? ", " : "", all.at[i]);
    snprintf(out + n, size - n, "]");
}

char *mt_value_text(const mt_option *o, const void *base, char out[static MT_VALUE_TEXT])
{
    const char *at = (const char *)base + o->offset;
    int64_t i = 0;
    double f = 0;
    int choice = 0;
    switch (o->type) {
    case MT_VALUE_INT:
    case MT_VALUE_BYTES: memcpy(&i, at, sizeof i); break;
    case MT_VALUE_FLOAT:
    case MT_VALUE_TIME: memcpy(&f, at, sizeof f); break;
    case MT_VALUE_CHOICE: memcpy(&choice, at, sizeof choice); break;
    default: break;
    }
    switch (o->type) {
    case MT_VALUE_INT: snprintf(out, MT_VALUE_TEXT, "%" PRId64, i); break;
    case MT_VALUE_BYTES: put_bytes(out, MT_VALUE_TEXT, i); break;
    case MT_VALUE_FLOAT: put_float(out, MT_VALUE_TEXT, f); break;
    case MT_VALUE_TIME: put_time(out, MT_VALUE_TEXT, f); break;
    case MT_VALUE_BOOL: snprintf(out, MT_VALUE_TEXT, "%s", *(const bool *)at ? "true" : "false"); break;
    case MT_VALUE_STR:
    case MT_VALUE_PATH: snprintf(out, MT_VALUE_TEXT, "%s", at); break;
    case MT_VALUE_CHOICE: snprintf(out, MT_VALUE_TEXT, "%s", o->choices[choice]); break;
    case MT_VALUE_INTS: put_ints(out, MT_VALUE_TEXT, at); break;
    case MT_VALUE_GROUPS: out[0] = 0; break;
    }
    return out;
}

/* A value holds printable characters only, so the quote and the backslash are all that needs an escape. */
char *mt_value_yaml(const mt_option *o, const void *base, char out[static MT_VALUE_TEXT])
{
    if (o->type != MT_VALUE_STR && o->type != MT_VALUE_PATH) return mt_value_text(o, base, out);
    const char *s = (const char *)base + o->offset;
    size_t to = 0;
    out[to++] = '"';
    for (; *s && to < MT_VALUE_TEXT - 4; s++) {
        if (*s == '"' || *s == '\\') out[to++] = '\\';
        out[to++] = *s;
    }
    out[to++] = '"';
    out[to] = 0;
    return out;
}
