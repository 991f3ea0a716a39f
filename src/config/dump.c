#include "config/config.h"
#include "config/group.h"
#include "config/table.h"
#include "config/word.h"

#include <string.h>

void mt_config_origin(const mt_config *c, mt_option_id id, char *out, size_t size)
{
    const mt_origin *o = &c->origin[id];
    char shown[MT_CONFIG_PATH];
    switch (o->from) {
    case MT_FROM_DEFAULT: snprintf(out, size, "default"); return;
    case MT_FROM_OTHER: snprintf(out, size, "from another option"); return;
    case MT_FROM_COMMAND: snprintf(out, size, "command line"); return;
    case MT_FROM_FILE: break;
    }
    mt_word_clean(shown, sizeof shown, c->files[o->file]);
    snprintf(out, size, "%s:%d", shown, o->line);
}

/* Is this option the first of its section, the part of the key before the dot? */
static bool begins_section(int i)
{
    size_t n = strcspn(mt_options[i].key, ".") + 1;
    return i == 0 || strncmp(mt_options[i].key, mt_options[i - 1].key, n) != 0;
}

static void dump_groups(const mt_config *c, const mt_option *o, const char *origin, FILE *out)
{
    char group[MT_GROUP_TEXT], line[64];
    int64_t n = mt_groups_count(c, o);
    snprintf(line, sizeof line, "  %s:%s", strchr(o->key, '.') + 1, n ? "" : " []");
    fprintf(out, "%-38s # %s\n", line, origin);
    for (int64_t g = 0; g < n; g++)
        fprintf(out, "    - %s\n", mt_group_yaml(o, mt_groups_entry(c, o, g), group));
}

void mt_config_dump(const mt_config *c, FILE *out)
{
    char origin[MT_CONFIG_PATH + 16], value[MT_VALUE_TEXT], line[MT_VALUE_TEXT + 64];
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        const char *dot = strchr(o->key, '.');
        mt_config_origin(c, (mt_option_id)i, origin, sizeof origin);
        if (begins_section(i)) fprintf(out, "%.*s:\n", (int)(dot - o->key), o->key);
        if (o->list) {
            dump_groups(c, o, origin, out);
            continue;
        }
        snprintf(line, sizeof line, "  %s: %s", dot + 1, mt_value_yaml(o, c, value));
        fprintf(out, "%-38s # %s\n", line, origin);
    }
}
