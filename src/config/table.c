#include "config/table.h"

#include "config/group.h"
#include "config/word.h"

#include <string.h>

#define TEXT(name, text) text,
#define TEXTS(set) const char *const mt_choices_##set[] = {MT_CHOICES_##set(TEXT) NULL};
MT_CHOICE_SETS(TEXTS)
TEXTS(dtype)
_Static_assert(MT_F32 == 0 && MT_BF16 == 1, "the order of MT_CHOICES_dtype is mt_dtype's");
_Static_assert(sizeof(mt_choice_score) == sizeof(int), "mt_value_set stores a choice as an int");

/* What a row's limit stands for, by type. */
#define LIMIT_INT(interval) .limit = interval
#define LIMIT_BYTES(interval) .limit = interval
#define LIMIT_FLOAT(interval) .limit = interval
#define LIMIT_TIME(interval) .limit = interval
#define LIMIT_BOOL(none) .limit = NULL
#define LIMIT_STR(none) .limit = NULL
#define LIMIT_PATH(none) .limit = NULL
#define LIMIT_INTS(interval) .limit = interval
#define LIMIT_GROUPS(entry) .list = &mt_list_##entry
#define LIMIT_CHOICE(set) .choices = mt_choices_##set

enum { LOCAL, SAME };
enum { FREE, FIXED };

#define ROW(owner, key_, field, type_, def_, limit_, scope, resume, doc_) \
    {.key = key_,                                                         \
     .def = def_,                                                         \
     LIMIT_##type_(limit_),                                               \
     .doc = doc_,                                                         \
     .type = MT_VALUE_##type_,                                            \
     .offset = offsetof(owner, field),                                    \
     .size = sizeof((owner *)0)->field,                                   \
     .same = scope == SAME,                                               \
     .fixed = resume == FIXED},

const mt_option mt_options[MT_OPTION_COUNT] = {
#define MT_OPTION(key, field, type, def, limit, scope, resume, doc) \
    ROW(mt_config, key, field, type, def, limit, scope, resume, doc)
#include "config/option.def"
};

const mt_option mt_optim_group_fields[MT_OPTIM_GROUP_COUNT] = {
#define MT_OPTIM_GROUP(key, field, type, def, limit, resume, doc) \
    ROW(mt_optim_group, key, field, type, def, limit, SAME, resume, doc)
#include "config/group.def"
};
const mt_option mt_shard_group_fields[MT_SHARD_GROUP_COUNT] = {
#define MT_SHARD_GROUP(key, field, type, def, limit, resume, doc) \
    ROW(mt_shard_group, key, field, type, def, limit, SAME, resume, doc)
#include "config/group.def"
};

const mt_option mt_sweep_fields[MT_SWEEP_COUNT] = {
#define MT_SWEEP(key, field, type, def, limit, doc) \
    ROW(mt_sweep_options, key, field, type, def, limit, SAME, FREE, doc)
#include "config/sweep.def"
};
const mt_option mt_data_part_fields[MT_DATA_PART_COUNT] = {
#define MT_DATA_PART(key, field, type, def, limit, resume, doc) \
    ROW(mt_data_part, key, field, type, def, limit, SAME, resume, doc)
#include "config/group.def"
};

bool mt_choices_bits(const char *list, const char *const *set, uint32_t *bits)
{
    static const char between[] = ", ";
    *bits = 0;
    for (const char *p = list + strspn(list, between); *p; p += strspn(p, between)) {
        size_t n = strcspn(p, between);
        int k = 0;
        while (set[k] && (strlen(set[k]) != n || memcmp(set[k], p, n) != 0)) k++;
        if (!set[k]) return false;
        *bits |= (uint32_t)1 << k;
        p += n;
    }
    return true;
}

mt_option_id mt_option_find(const char *key)
{
    int i = 0;
    while (i < MT_OPTION_COUNT && strcmp(mt_options[i].key, key) != 0) i++;
    return (mt_option_id)i;
}

bool mt_section_known(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < MT_OPTION_COUNT; i++)
        if (!strncmp(mt_options[i].key, name, n) && mt_options[i].key[n] == '.') return true;
    return false;
}

static const char *nearest_option(const char *key)
{
    const char *names[MT_OPTION_COUNT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) names[i] = mt_options[i].key;
    return mt_word_nearest(key, names, MT_OPTION_COUNT);
}

/* Writes the nearest part before a dot; false: none is near. */
static bool nearest_section(const char *key, char out[static 64])
{
    char text[MT_OPTION_COUNT][64];
    const char *names[MT_OPTION_COUNT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        snprintf(text[i], sizeof text[i], "%.*s", (int)strcspn(mt_options[i].key, "."), mt_options[i].key);
        names[i] = text[i];
    }
    const char *near = mt_word_nearest(key, names, MT_OPTION_COUNT);
    if (near) memcpy(out, near, strlen(near) + 1);
    return near != NULL;
}

char *mt_option_unknown(const char *key, bool section, char *out, size_t size)
{
    char shown[96], part[64];
    const char *near = section ? NULL : nearest_option(key);
    mt_word_clean(shown, sizeof shown, key);
    if (!section && mt_section_known(key))
        snprintf(out, size, "no option '%s': it is the beginning of others; `moetitan options %s` lists them",
                 shown, shown);
    else if (section && nearest_section(key, part))
        snprintf(out, size, "no option '%s'; did you mean %s?", shown, part);
    else if (near)
        snprintf(out, size, "no option '%s'; did you mean %s?", shown, near);
    else
        snprintf(out, size, "no option '%s'", shown);
    return out;
}
