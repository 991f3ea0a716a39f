#include "config/group.h"

#include "config/table.h"
#include "config/word.h"

#include <stddef.h>
#include <string.h>

/* Optional is what not every model has. */
static const mt_optim_group optim_defaults[] = {
    {"*norm.weight", MT_OPTIMIZER_ADAMW, 1, 0, false},    {"*.bias", MT_OPTIMIZER_ADAMW, 1, 0, true},
    {"embed.weight", MT_OPTIMIZER_ADAMW, 1, -1, false},   {"head.weight", MT_OPTIMIZER_ADAMW, 1, -1, true},
    {"*.router.weight", MT_OPTIMIZER_ADAMW, 1, -1, true}, {"*", MT_OPTIMIZER_MUON, 1, -1, false},
};

const struct mt_group_list mt_list_optim_group = {
    .field = mt_optim_group_fields,
    .fields = MT_OPTIM_GROUP_COUNT,
    .size = sizeof(mt_optim_group),
    .count = offsetof(mt_config, optim_groups_count),
    .defaults = optim_defaults,
    .n = sizeof optim_defaults / sizeof optim_defaults[0],
    .example = "{match: \"*norm*\", optimizer: adamw}",
    .first = "match",
    .first_is = "a pattern for parameters' names",
    .needs = "optimizer",
    .choices = "adamw, muon, soap, shampoo or none",
};
const struct mt_group_list mt_list_shard_group = {
    .field = mt_shard_group_fields,
    .fields = MT_SHARD_GROUP_COUNT,
    .size = sizeof(mt_shard_group),
    .count = offsetof(mt_config, shard_groups_count),
    .empty = true,
    .example = "{match: \"layers.*.attn.q.weight\", placement: owned}",
    .first = "match",
    .first_is = "a pattern for parameters' names",
};
const struct mt_group_list mt_list_data_part = {
    .field = mt_data_part_fields,
    .fields = MT_DATA_PART_COUNT,
    .size = sizeof(mt_data_part),
    .count = offsetof(mt_config, data_blend_count),
    .empty = true,
    .example = "{path: data/web, weight: 0.7}",
    .first = "path",
    .first_is = "a token file",
};

static void *entry_of(mt_config *c, const mt_option *o, int64_t i)
{
    return (char *)c + o->offset + (size_t)i * o->list->size;
}
static void set_count(mt_config *c, const mt_option *o, int64_t n)
{
    memcpy((char *)c + o->list->count, &n, sizeof n);
}
int64_t mt_groups_count(const mt_config *c, const mt_option *o)
{
    int64_t n;
    memcpy(&n, (const char *)c + o->list->count, sizeof n);
    return n;
}
const void *mt_groups_entry(const mt_config *c, const mt_option *o, int64_t i)
{
    return (const char *)c + o->offset + (size_t)i * o->list->size;
}

void mt_groups_default(mt_config *c)
{
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (!o->list) continue;
        memset(entry_of(c, o, 0), 0, o->size);
        if (o->list->n) memcpy(entry_of(c, o, 0), o->list->defaults, (size_t)o->list->n * o->list->size);
        set_count(c, o, o->list->n);
    }
}

bool mt_config_match(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL; /* the newest star, and where what follows it was last tried */
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static const mt_option *field_find(const mt_option *o, const char *key)
{
    for (int i = 0; i < o->list->fields; i++)
        if (!strcmp(o->list->field[i].key, key)) return &o->list->field[i];
    return NULL;
}

enum { MOST_FIELDS = 8 };
_Static_assert((int)MT_OPTIM_GROUP_COUNT <= (int)MOST_FIELDS && (int)MT_SHARD_GROUP_COUNT <= (int)MOST_FIELDS,
               "unknown_field has room for the keys");

static mt_status unknown_field(const mt_option *o, const mt_node *n, const char *name, mt_err *e)
{
    const char *keys[MOST_FIELDS];
    char shown[64];
    for (int i = 0; i < o->list->fields; i++) keys[i] = o->list->field[i].key;
    const char *near = mt_word_nearest(n->key, keys, o->list->fields);
    return mt_tree_fail(e, name, n->key_line, n->key_col, "%s: an entry has no '%s'%s%s%s", o->key,
                        mt_word_clean(shown, sizeof shown, n->key), near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

static mt_status set_field(const mt_option *o, void *entry, const mt_node *n, const char *name, mt_err *e)
{
    char why[MT_VALUE_WHY], what[80];
    const mt_option *f = field_find(o, n->key);
    if (!f) return unknown_field(o, n, name, e);
    if (mt_node_is_null(n))
        return mt_tree_fail(e, name, n->key_line, n->key_col, "%s: %s has no value", o->key, n->key);
    if (n->kind != MT_NODE_SCALAR)
        return mt_tree_fail(e, name, n->line, n->col, "%s: %s: expected one value, got %s", o->key, n->key,
                            mt_node_what(n, what, sizeof what));
    if (!mt_value_set(f, entry, n->text, why))
        return mt_tree_fail(e, name, n->line, n->col, "%s: %s: %s", o->key, n->key, why);
    return MT_OK;
}

static void entry_default(const mt_option *o, void *entry)
{
    char why[MT_VALUE_WHY];
    memset(entry, 0, o->list->size);
    for (int i = 0; i < o->list->fields; i++)
        MT_ASSERT(mt_value_set(&o->list->field[i], entry, o->list->field[i].def, why));
}

static mt_status set_entry(const mt_option *o, void *entry, const mt_node *n, const char *name, mt_err *e)
{
    char what[80];
    const struct mt_group_list *l = o->list;
    entry_default(o, entry);
    if (n->kind != MT_NODE_MAP)
        return mt_tree_fail(e, name, n->line, n->col, "%s: expected an entry such as %s, got %s", o->key,
                            l->example, mt_node_what(n, what, sizeof what));
    bool needed = !l->needs;
    for (const mt_node *f = n->child; f; f = f->next) {
        MT_TRY(set_field(o, entry, f, name, e));
        needed |= l->needs && !strcmp(f->key, l->needs);
    }
    if (!*((const char *)entry + field_find(o, l->first)->offset))
        return mt_tree_fail(e, name, n->line, n->col, "%s: the entry needs %s: %s", o->key, l->first,
                            l->first_is);
    if (!needed)
        return mt_tree_fail(e, name, n->line, n->col, "%s: the entry needs %s: %s", o->key, l->needs,
                            l->choices);
    return MT_OK;
}

/* What the rows of group.def cannot say. */
static mt_status check_optim(const mt_optim_group *g, const mt_node *n, const char *name, mt_err *e)
{
    if (g->weight_decay < 0 && g->weight_decay > -1)
        return mt_tree_fail(e, name, n->line, n->col,
                            "optim.groups: weight_decay is %g: give 0 or more, or -1 for optim.weight_decay",
                            g->weight_decay);
    return MT_OK;
}

mt_status mt_groups_set(mt_config *c, const mt_option *o, const mt_node *n, const char *name, mt_err *e)
{
    char what[80];
    int64_t count = 0;
    if (n->kind != MT_NODE_LIST || !(n->child || o->list->empty))
        return mt_tree_fail(e, name, n->line, n->col, "%s: expected a list of entries, got %s", o->key,
                            n->kind == MT_NODE_LIST ? "an empty one" : mt_node_what(n, what, sizeof what));
    memset(entry_of(c, o, 0), 0, o->size);
    set_count(c, o, 0);
    for (const mt_node *g = n->child; g; g = g->next, count++) {
        if (count == MT_CONFIG_GROUPS)
            return mt_tree_fail(e, name, g->line, g->col, "%s: more than %d entries", o->key,
                                MT_CONFIG_GROUPS);
        MT_TRY(set_entry(o, entry_of(c, o, count), g, name, e));
        if (o->list == &mt_list_optim_group) MT_TRY(check_optim(&c->optim_groups[count], g, name, e));
    }
    set_count(c, o, count);
    return MT_OK;
}

char *mt_group_yaml(const mt_option *o, const void *entry, char out[static MT_GROUP_TEXT])
{
    char value[MT_VALUE_TEXT];
    size_t at = 0;
    for (int i = 0; i < o->list->fields && at < MT_GROUP_TEXT; i++)
        at += (size_t)snprintf(out + at, MT_GROUP_TEXT - at, "%s%s: %s", i ? ", " : "{",
                               o->list->field[i].key, mt_value_yaml(&o->list->field[i], entry, value));
    MT_ASSERT(at + 1 < MT_GROUP_TEXT); /* a path has at most MT_CONFIG_PATH bytes, twice that with escapes */
    memcpy(out + at, "}", 2);
    return out;
}
