/* value.h: one option as a row of data, and its values as text and back. */
#ifndef MT_CONFIG_VALUE_H
#define MT_CONFIG_VALUE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mt_option_type {
    MT_VALUE_INT,    /* int64_t */
    MT_VALUE_BYTES,  /* int64_t */
    MT_VALUE_FLOAT,  /* double */
    MT_VALUE_TIME,   /* double, seconds */
    MT_VALUE_BOOL,   /* bool */
    MT_VALUE_STR,    /* char[] */
    MT_VALUE_PATH,   /* char[] */
    MT_VALUE_CHOICE, /* an enum counted from zero */
    MT_VALUE_INTS,   /* mt_ints */
    MT_VALUE_GROUPS, /* entries of a list: config/group.h, not here */
} mt_option_type;

/* A short list of numbers: "[3, 4]" as text. Unused places are 0. */
enum { MT_INTS_MOST = 16 };
typedef struct mt_ints {
    int64_t n, at[MT_INTS_MOST];
} mt_ints;

/* A row of option.def, or of group.def. The value lies `offset` bytes into the struct it belongs to. */
typedef struct mt_option {
    const char *key, *def, *limit, *doc;
    const char *const *choices;       /* of CHOICE: ended by NULL */
    const struct mt_group_list *list; /* of GROUPS, else NULL */
    mt_option_type type;
    size_t offset, size;
    bool same, fixed;
} mt_option;

enum { MT_VALUE_WHY = 512, MT_VALUE_TEXT = 2080 };

const char *mt_value_type_name(mt_option_type t); /* "INT" */

/* Sets the option's member of the struct at `base` from text. False: nothing is set, and `why` says what was
 * expected. */
bool mt_value_set(const mt_option *o, void *base, const char *text, char why[static MT_VALUE_WHY]);

/* Writes the value as mt_value_set reads it; equal values have equal texts. Returns out. */
char *mt_value_text(const mt_option *o, const void *base, char out[static MT_VALUE_TEXT]);

/* The same as YAML: strings and paths in double quotes. */
char *mt_value_yaml(const mt_option *o, const void *base, char out[static MT_VALUE_TEXT]);
#endif
