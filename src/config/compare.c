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
    char value[MT_VALUE_TEXT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (!o->same) continue;
        h = hash_text(h, o->key);
        if (o->type != MT_VALUE_GROUPS) h = hash_text(h, mt_value_text(o, c, value));
        for (int64_t g = 0; o->type == MT_VALUE_GROUPS && g < c->optim_groups_count; g++)
            h = hash_text(h, mt_group_yaml(&c->optim_groups[g], value));
    }
    return h;
}

void mt_config_print_same(const mt_config *c, FILE *out)
{
    char value[MT_VALUE_TEXT];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (!o->same) continue;
        if (o->type != MT_VALUE_GROUPS) fprintf(out, "%s: %s\n", o->key, mt_value_text(o, c, value));
        for (int64_t g = 0; o->type == MT_VALUE_GROUPS && g < c->optim_groups_count; g++)
            fprintf(out, "%s: %s\n", o->key, mt_group_yaml(&c->optim_groups[g], value));
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
static mt_status check_groups(const mt_config *old, const mt_config *now, mt_err *e)
{
    char before[MT_VALUE_TEXT], after[MT_VALUE_TEXT], what[80];
    snprintf(before, sizeof before, "%" PRId64, old->optim_groups_count);
    snprintf(after, sizeof after, "%" PRId64, now->optim_groups_count);
    if (strcmp(before, after) != 0)
        return changed(now, MT_OPTION_optim_groups, "the number of optim.groups", before, after, e);
    for (int64_t g = 0; g < now->optim_groups_count; g++) {
        for (int f = 0; f < MT_GROUP_FIELD_COUNT; f++) {
            const mt_option *o = &mt_group_fields[f];
            if (!o->fixed) continue;
            mt_value_text(o, &old->optim_groups[g], before);
            mt_value_text(o, &now->optim_groups[g], after);
            snprintf(what, sizeof what, "%s of entry %" PRId64 " of optim.groups", o->key, g + 1);
            if (strcmp(before, after) != 0)
                return changed(now, MT_OPTION_optim_groups, what, before, after, e);
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
        if (o->type == MT_VALUE_GROUPS) {
            MT_TRY(check_groups(old, now, e));
            continue;
        }
        mt_value_yaml(o, old, before);
        mt_value_yaml(o, now, after);
        if (strcmp(before, after) != 0) return changed(now, (mt_option_id)i, o->key, before, after, e);
    }
    return MT_OK;
}
