#include "config/config.h"
#include "config/group.h"
#include "config/table.h"

#include <inttypes.h>
#include <string.h>

/* FNV-1a, the end of each text included. */
static uint64_t hash_text(uint64_t h, const char *s)
{
    do h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    while (*s++);
    return h;
}

uint64_t mt_config_hash(const mt_config *c)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    char value[MT_GROUP_TEXT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (!o->same) continue;
        h = hash_text(h, o->key);
        if (!o->list) h = hash_text(h, mt_value_text(o, c, value));
        for (int64_t g = 0; o->list && g < mt_groups_count(c, o); g++)
            h = hash_text(h, mt_group_yaml(o, mt_groups_entry(c, o, g), value));
    }
    return h;
}

void mt_config_print_same(const mt_config *c, FILE *out)
{
    char value[MT_GROUP_TEXT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (!o->same) continue;
        if (!o->list) fprintf(out, "%s: %s\n", o->key, mt_value_text(o, c, value));
        for (int64_t g = 0; o->list && g < mt_groups_count(c, o); g++)
            fprintf(out, "%s: %s\n", o->key, mt_group_yaml(o, mt_groups_entry(c, o, g), value));
    }
}

static mt_status changed(const mt_config *now, mt_option_id id, const char *what, const char *before,
                         const char *after, mt_err *e)
{
    char origin[256];
    mt_config_origin(now, id, origin, sizeof origin);
    MT_FAIL(e, MT_CONFIG,
            "can't resume: %s is %.200s (%s), but the checkpoint's run has %.200s, and this may not change "
            "within a "
            "run; set it back, or begin a new run.dir with init.from",
            what, after, origin, before);
}

/* Fields of a group that are free may differ; the groups themselves and their order may not. */
static mt_status check_groups(const mt_config *old, const mt_config *now, mt_option_id id, mt_err *e)
{
    char before[MT_VALUE_TEXT], after[MT_VALUE_TEXT], what[80];
    const mt_option *o = &mt_options[id];
    int64_t n = mt_groups_count(now, o);
    snprintf(before, sizeof before, "%" PRId64, mt_groups_count(old, o));
    snprintf(after, sizeof after, "%" PRId64, n);
    snprintf(what, sizeof what, "the number of %s", o->key);
    if (strcmp(before, after) != 0) return changed(now, id, what, before, after, e);
    for (int64_t g = 0; g < n; g++) {
        for (int i = 0; i < o->list->fields; i++) {
            const mt_option *f = &o->list->field[i];
            if (!f->fixed) continue;
            mt_value_text(f, mt_groups_entry(old, o, g), before);
            mt_value_text(f, mt_groups_entry(now, o, g), after);
            snprintf(what, sizeof what, "%s of entry %" PRId64 " of %s", f->key, g + 1, o->key);
            if (strcmp(before, after) != 0) return changed(now, id, what, before, after, e);
        }
    }
    return MT_OK;
}

mt_status mt_config_resume_check(const mt_config *old, const mt_config *now, mt_err *e)
{
    char before[MT_VALUE_TEXT], after[MT_VALUE_TEXT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (!o->fixed) continue;
        if (o->list) {
            MT_TRY(check_groups(old, now, (mt_option_id)i, e));
            continue;
        }
        mt_value_yaml(o, old, before);
        mt_value_yaml(o, now, after);
        if (strcmp(before, after) != 0) return changed(now, (mt_option_id)i, o->key, before, after, e);
    }
    return MT_OK;
}
