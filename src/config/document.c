#include "config/config.h"
#include "config/group.h"
#include "config/table.h"

#include <string.h>

enum { WRAP = 100 };

/* Writes what an option may be: its interval, its choices, or nothing. */
static void put_allowed(const mt_option *o, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "%s", o->limit ? o->limit : "");
    for (int i = 0; o->choices && o->choices[i] && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", o->choices[i]);
}

static const char *default_text(const mt_option *o)
{
    if (o->list) return o->list->n ? "see below" : "[]";
    return o->def[0] ? o->def : "\"\"";
}

/* Prints text in lines of at most WRAP characters, each `indent` spaces in. */
static void put_wrapped(FILE *out, const char *text, int indent)
{
    int at = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > 0 && at + 1 + n > WRAP) at = 0, fputc('\n', out);
        at += at == 0 ? fprintf(out, "%*s%.*s", indent, "", n, text) : fprintf(out, " %.*s", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void put_plain(FILE *out, const mt_option *o)
{
    char allowed[256];
    put_allowed(o, allowed, sizeof allowed);
    fprintf(out, "%-24s %-6s  %s%s%s%s%s\n", o->key, mt_value_type_name(o->type), default_text(o),
            allowed[0] ? "  of " : "", allowed, o->fixed ? "  fixed on resume" : "",
            o->same ? "" : "  local");
    put_wrapped(out, o->doc, 4);
}

static void put_row(FILE *out, const mt_option *o)
{
    char allowed[256];
    put_allowed(o, allowed, sizeof allowed);
    fprintf(out, "| `%s` | %s | `%s` | %s | %s | %s | %s |\n", o->key, mt_value_type_name(o->type),
            default_text(o), allowed, o->same ? "same" : "local", o->fixed ? "fixed" : "free", o->doc);
}

static void put_option(FILE *out, const mt_option *o, bool markdown)
{
    if (markdown)
        put_row(out, o);
    else
        put_plain(out, o);
}

static void put_table_head(FILE *out)
{
    fprintf(out, "\n| Option | Type | Default | Allowed | Ranks | On resume | Meaning |\n"
                 "|---|---|---|---|---|---|---|\n");
}

static void put_groups(FILE *out, const mt_option *o, bool markdown)
{
    mt_config c;
    char group[MT_GROUP_TEXT];
    mt_config_defaults(&c);
    fprintf(out, "\n%sAn entry of %s\n", markdown ? "## " : "", o->key);
    if (markdown) put_table_head(out);
    for (int i = 0; i < o->list->fields; i++) put_option(out, &o->list->field[i], markdown);
    if (!o->list->n) return;
    fprintf(out, markdown ? "\nIts default:\n\n" : "\nDefault of %s:\n\n", o->key);
    for (int64_t g = 0; g < mt_groups_count(&c, o); g++)
        fprintf(out, "    - %s\n", mt_group_yaml(o, mt_groups_entry(&c, o, g), group));
}

static void put_preface(FILE *out)
{
    fprintf(out, "# Options\n\n"
                 "Written by `moetitan options --markdown` from `src/config/option.def`; do not edit.\n\n"
                 "A configuration is a YAML file: `model.dim` is `dim` below `model:`. A command line "
                 "changes it with\n"
                 "`model.dim=512`. `extends: other.yaml` (or a list of files) takes the values of other "
                 "files first; the\n"
                 "path is seen from the file that names it.\n\n"
                 "INT takes units (64Ki, 2M), BYTES too (8GiB, 80GB), TIME needs one (30s, 5m, 2h, 7d). "
                 "Intervals: `[1, 9]`\n"
                 "with its ends, `(0, 1)` without. Ranks: *same* on all, compared at the start, or *local*. "
                 "On resume:\n"
                 "*fixed* must be what the checkpoint's run had, *free* may change.\n");
}

int mt_config_document(FILE *out, bool markdown, const char *prefix)
{
    int n = 0;
    const char *section = "";
    if (markdown && !prefix) put_preface(out);
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        size_t len = strcspn(o->key, ".") + 1;
        if (prefix && strncmp(o->key, prefix, strlen(prefix)) != 0) continue;
        bool begins = strncmp(o->key, section, len) != 0;
        if (markdown && begins) {
            fprintf(out, "\n## %.*s\n", (int)len - 1, o->key);
            put_table_head(out);
        }
        section = o->key;
        put_option(out, o, markdown);
        n++;
    }
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (o->list && (!prefix || !strncmp(o->key, prefix, strlen(prefix)))) put_groups(out, o, markdown);
    }
    return n;
}
