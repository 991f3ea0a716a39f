#include "config/group.h"

#include "config/table.h"
#include "config/word.h"

#include <string.h>

/* Optional is what not every model has. */
static const mt_optim_group defaults[] = {
    {"*norm.weight", MT_OPTIMIZER_ADAMW, 1, 0, false},    {"*.bias", MT_OPTIMIZER_ADAMW, 1, 0, true},
    {"embed.weight", MT_OPTIMIZER_ADAMW, 1, -1, false},   {"head.weight", MT_OPTIMIZER_ADAMW, 1, -1, true},
    {"*.router.weight", MT_OPTIMIZER_ADAMW, 1, -1, true}, {"*", MT_OPTIMIZER_MUON, 1, -1, false},
};

void mt_groups_default(mt_config *c)
{
    memset(c->optim_groups, 0, sizeof c->optim_groups);
    memcpy(c->optim_groups, defaults, sizeof defaults);
    c->optim_groups_count = sizeof defaults / sizeof defaults[0];
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

static int field_find(const char *key)
{
    int i = 0;
    while (i < MT_GROUP_FIELD_COUNT && strcmp(mt_group_fields[i].key, key) != 0) i++;
    return i;
}

static mt_status unknown_field(const mt_node *n, const char *name, mt_err *e)
{
    const char *keys[MT_GROUP_FIELD_COUNT];
    char shown[64];
    for (int i = 0; i < MT_GROUP_FIELD_COUNT; i++) keys[i] = mt_group_fields[i].key;
    const char *near = mt_word_nearest(n->key, keys, MT_GROUP_FIELD_COUNT);
    return mt_tree_fail(e, name, n->key_line, n->key_col, "optim.groups: an entry has no '%s'%s%s%s",
                        mt_word_clean(shown, sizeof shown, n->key), near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

static mt_status set_field(mt_optim_group *g, const mt_node *n, const char *name, mt_err *e)
{
    char why[MT_VALUE_WHY], what[80];
    int i = field_find(n->key);
    if (i == MT_GROUP_FIELD_COUNT) return unknown_field(n, name, e);
    if (mt_node_is_null(n))
        return mt_tree_fail(e, name, n->key_line, n->key_col, "optim.groups: %s has no value", n->key);
    if (n->kind != MT_NODE_SCALAR)
        return mt_tree_fail(e, name, n->line, n->col, "optim.groups: %s: expected one value, got %s", n->key,
                            mt_node_what(n, what, sizeof what));
    if (!mt_value_set(&mt_group_fields[i], g, n->text, why))
        return mt_tree_fail(e, name, n->line, n->col, "optim.groups: %s: %s", n->key, why);
    return MT_OK;
}

static void group_default(mt_optim_group *g)
{
    char why[MT_VALUE_WHY];
    memset(g, 0, sizeof *g);
    for (int i = 0; i < MT_GROUP_FIELD_COUNT; i++)
        MT_ASSERT(mt_value_set(&mt_group_fields[i], g, mt_group_fields[i].def, why));
}

static mt_status set_group(mt_optim_group *g, const mt_node *n, const char *name, mt_err *e)
{
    char what[80];
    group_default(g);
    if (n->kind != MT_NODE_MAP)
        return mt_tree_fail(
            e, name, n->line, n->col,
            "optim.groups: expected an entry such as {match: \"*norm*\", optimizer: adamw}, got %s",
            mt_node_what(n, what, sizeof what));
    bool optimizer = false;
    for (const mt_node *f = n->child; f; f = f->next) {
        MT_TRY(set_field(g, f, name, e));
        optimizer |= !strcmp(f->key, "optimizer");
    }
    if (!g->match[0] || !optimizer)
        return mt_tree_fail(e, name, n->line, n->col, "optim.groups: the entry needs %s",
                            g->match[0] ? "optimizer: adamw, muon or none"
                                        : "match: a pattern for parameters' names");
    if (g->weight_decay < 0 && g->weight_decay > -1)
        return mt_tree_fail(e, name, n->line, n->col,
                            "optim.groups: weight_decay is %g: give 0 or more, or -1 for optim.weight_decay",
                            g->weight_decay);
    return MT_OK;
}

mt_status mt_groups_set(mt_config *c, const mt_node *n, const char *name, mt_err *e)
{
    char what[80];
    if (n->kind != MT_NODE_LIST || !n->child)
        return mt_tree_fail(e, name, n->line, n->col, "optim.groups: expected a list of entries, got %s",
                            n->kind == MT_NODE_LIST ? "an empty one" : mt_node_what(n, what, sizeof what));
    memset(c->optim_groups, 0, sizeof c->optim_groups);
    c->optim_groups_count = 0;
    for (const mt_node *g = n->child; g; g = g->next) {
        if (c->optim_groups_count == MT_CONFIG_GROUPS)
            return mt_tree_fail(e, name, g->line, g->col, "optim.groups: more than %d entries",
                                MT_CONFIG_GROUPS);
        MT_TRY(set_group(&c->optim_groups[c->optim_groups_count++], g, name, e));
    }
    return MT_OK;
}

char *mt_group_yaml(const mt_optim_group *g, char out[static MT_GROUP_TEXT])
{
    char value[MT_VALUE_TEXT];
    size_t at = 0;
    for (int i = 0; i < MT_GROUP_FIELD_COUNT && at < MT_GROUP_TEXT; i++)
        at += (size_t)snprintf(out + at, MT_GROUP_TEXT - at, "%s%s: %s", i ? ", " : "{",
                               mt_group_fields[i].key, mt_value_yaml(&mt_group_fields[i], g, value));
    MT_ASSERT(at + 1 < MT_GROUP_TEXT); /* a match has at most MT_CONFIG_STR bytes, twice that with escapes */
    memcpy(out + at, "}", 2);
    return out;
}
