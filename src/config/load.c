#include "config/config.h"
#include "config/group.h"
#include "config/rule.h"
#include "config/table.h"
#include "config/tree.h"
#include "config/word.h"

#include <stdlib.h>
#include <string.h>

#define COMMAND "command line"

/* The files being read, from the one named on the command line down to the one that is read now. */
typedef struct loader {
    mt_config *c;
    mt_err *e;
    char *chain[MT_CONFIG_FILES]; /* resolved paths */
    int depth;
} loader;

/* One file whose values are being taken. */
typedef struct source {
    const char *name;
    int file;                   /* index into mt_config.files */
    int given[MT_OPTION_COUNT]; /* the line in which this file gave the option; 0: not yet */
} source;

static mt_status load_file(loader *l, const char *path);

void mt_config_defaults(mt_config *c)
{
    char why[MT_VALUE_WHY];
    memset(c, 0, sizeof *c);
    for (int i = 0; i < MT_OPTION_COUNT; i++)
        if (!mt_options[i].list) MT_ASSERT(mt_value_set(&mt_options[i], c, mt_options[i].def, why));
    mt_groups_default(c);
}

/* A YAML list of numbers is read as the text it would be on the command line. */
static mt_status take_ints(loader *l, const source *s, const mt_node *n, const mt_option *o)
{
    char text[512] = "[", why[MT_VALUE_WHY], what[80];
    size_t at = 1;
    for (const mt_node *v = n->child; v; v = v->next) {
        if (v->kind != MT_NODE_SCALAR)
            return mt_tree_fail(l->e, s->name, v->line, v->col, "%s: expected a whole number, got %s", o->key,
                                mt_node_what(v, what, sizeof what));
        if (at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", v == n->child ? "" : ", ", v->text);
    }
    if (at < sizeof text) at += (size_t)snprintf(text + at, sizeof text - at, "]");
    if (at >= sizeof text) return mt_tree_fail(l->e, s->name, n->line, n->col, "%s: too long", o->key);
    if (!mt_value_set(o, l->c, text, why))
        return mt_tree_fail(l->e, s->name, n->line, n->col, "%s: %s", o->key, why);
    return MT_OK;
}

static mt_status take_value(loader *l, const source *s, const mt_node *n, const mt_option *o)
{
    char why[MT_VALUE_WHY], what[80];
    if (mt_node_is_null(n))
        return mt_tree_fail(l->e, s->name, n->key_line, n->key_col, "%s has no value", o->key);
    if (o->list) return mt_groups_set(l->c, o, n, s->name, l->e);
    if (o->type == MT_VALUE_INTS && n->kind == MT_NODE_LIST) return take_ints(l, s, n, o);
    if (n->kind != MT_NODE_SCALAR)
        return mt_tree_fail(l->e, s->name, n->line, n->col, "%s: expected one value (%s), got %s", o->key,
                            mt_value_type_name(o->type), mt_node_what(n, what, sizeof what));
    if (!mt_value_set(o, l->c, n->text, why))
        return mt_tree_fail(l->e, s->name, n->line, n->col, "%s: %s", o->key, why);
    return MT_OK;
}

static mt_status take_option(loader *l, source *s, const mt_node *n, const char *key)
{
    char unknown[256];
    mt_option_id id = mt_option_find(key);
    if (id == MT_OPTION_COUNT)
        return mt_tree_fail(l->e, s->name, n->key_line, n->key_col, "%s",
                            mt_option_unknown(key, n->kind == MT_NODE_MAP, unknown, sizeof unknown));
    if (s->given[id])
        return mt_tree_fail(l->e, s->name, n->key_line, n->key_col, "%s is given twice: first in line %d",
                            key, s->given[id]);
    MT_TRY(take_value(l, s, n, &mt_options[id]));
    s->given[id] = n->key_line;
    l->c->origin[id] = (mt_origin){MT_FROM_FILE, s->file, n->line, n->col};
    return MT_OK;
}

/* section: its full name; sections stand in sections where keys have several dots. */
static mt_status take_section(loader *l, source *s, const mt_node *n, const char *section)
{
    char key[512], what[80];
    if (mt_node_is_null(n) || (n->kind == MT_NODE_MAP && !n->child))
        return mt_tree_fail(l->e, s->name, n->key_line, n->key_col, "%s holds no options", section);
    if (n->kind != MT_NODE_MAP)
        return mt_tree_fail(l->e, s->name, n->line, n->col, "%s: expected options below it, got %s", section,
                            mt_node_what(n, what, sizeof what));
    for (const mt_node *v = n->child; v; v = v->next) {
        snprintf(key, sizeof key, "%s.%s", section, v->key); /* cut, it is as unknown as before */
        MT_TRY(mt_section_known(key) ? take_section(l, s, v, key) : take_option(l, s, v, key));
    }
    return MT_OK;
}

static mt_status take_values(loader *l, source *s, const mt_node *root)
{
    for (const mt_node *n = root->child; n; n = n->next) {
        if (!strcmp(n->key, "extends")) continue;
        if (mt_section_known(n->key))
            MT_TRY(take_section(l, s, n, n->key));
        else
            MT_TRY(take_option(l, s, n, n->key));
    }
    return MT_OK;
}

/* Writes `path` as seen from the folder of the file `from`; false: it is too long. */
static bool beside(char out[static MT_CONFIG_PATH], const char *from, const char *path)
{
    const char *slash = strrchr(from, '/');
    int folder = path[0] != '/' && slash ? (int)(slash - from) + 1 : 0;
    return snprintf(out, MT_CONFIG_PATH, "%.*s%s", folder, from, path) < MT_CONFIG_PATH;
}

static mt_status extend(loader *l, const source *s, const mt_node *n)
{
    char path[MT_CONFIG_PATH], what[80], shown[160];
    if (n->kind != MT_NODE_SCALAR || !*n->text || mt_node_is_null(n))
        return mt_tree_fail(l->e, s->name, n->line, n->col, "extends: expected the path of a file, got %s",
                            mt_node_what(n, what, sizeof what));
    if (!beside(path, s->name, n->text))
        return mt_tree_fail(l->e, s->name, n->line, n->col, "extends: the path is longer than %d bytes",
                            MT_CONFIG_PATH - 1);
    char *real = realpath(path, NULL);
    bool cycle = false;
    for (int i = 0; real && i < l->depth; i++) cycle |= !strcmp(l->chain[i], real);
    free(real);
    mt_word_clean(shown, sizeof shown, path);
    if (!real) return mt_tree_fail(l->e, s->name, n->line, n->col, "extends: there is no file %s", shown);
    if (cycle)
        return mt_tree_fail(l->e, s->name, n->line, n->col,
                            "extends: %s is being read: files extend in a circle", shown);
    return load_file(l, path);
}

static mt_status take_extends(loader *l, const source *s, const mt_node *root)
{
    const mt_node *n = root->child;
    while (n && strcmp(n->key, "extends") != 0) n = n->next;
    if (!n) return MT_OK;
    if (l->depth == 0)
        return mt_tree_fail(l->e, s->name, n->key_line, n->key_col, "extends: this text is no file");
    if (n->kind != MT_NODE_LIST) return extend(l, s, n);
    for (const mt_node *v = n->child; v; v = v->next) MT_TRY(extend(l, s, v));
    return MT_OK;
}

static mt_status take_tree(loader *l, const mt_tree *t, const char *name, int file)
{
    source s = {.name = name, .file = file};
    char what[80];
    if (!t->root || mt_node_is_null(t->root))
        return mt_tree_fail(l->e, name, 1, 1, "the file holds no options");
    if (t->root->kind != MT_NODE_MAP)
        return mt_tree_fail(l->e, name, t->root->line, t->root->col,
                            "expected options such as `model:`, got %s",
                            mt_node_what(t->root, what, sizeof what));
    MT_TRY(take_extends(l, &s, t->root));
    return take_values(l, &s, t->root);
}

/* Keeps the name for origins. The same file read twice, through two others, has one entry. */
static mt_status add_file(loader *l, const char *name, int *file)
{
    mt_config *c = l->c;
    char shown[160];
    for (*file = 0; *file < c->files_count; ++*file)
        if (!strcmp(c->files[*file], name)) return MT_OK;
    mt_word_clean(shown, sizeof shown, name);
    MT_REQUIRE(c->files_count < MT_CONFIG_FILES, l->e, MT_CONFIG, "%s: more than %d files extend each other",
               shown, MT_CONFIG_FILES);
    MT_REQUIRE(strlen(name) < MT_CONFIG_PATH, l->e, MT_CONFIG, "%s: the path is longer than %d bytes", shown,
               MT_CONFIG_PATH - 1);
    snprintf(c->files[c->files_count++], MT_CONFIG_PATH, "%s", name);
    return MT_OK;
}

static mt_status load_file(loader *l, const char *path)
{
    mt_tree tree;
    int file;
    MT_TRY(add_file(l, path, &file));
    mt_status s = mt_tree_open(&tree, path, l->e);
    char *real = realpath(path, NULL);
    if (!real) real = strdup(path); /* a pipe has no path of its own */
    if (s == MT_OK && !real) s = mt_err_set(l->e, MT_IO, "no memory to read the configuration");
    if (s == MT_OK) {
        l->chain[l->depth++] = real; /* add_file has counted: a chain is no longer than the list of files */
        s = take_tree(l, &tree, path, file);
        l->depth--;
    }
    free(real);
    mt_tree_close(&tree);
    return s;
}

static mt_status override_groups(mt_config *c, const mt_option *o, const char *text, mt_err *e)
{
    mt_tree tree;
    mt_status s = mt_tree_parse(&tree, COMMAND, text, strlen(text), e);
    if (s == MT_OK && tree.root)
        s = mt_groups_set(c, o, tree.root, COMMAND, e);
    else if (s == MT_OK)
        s = mt_err_set(e, MT_CONFIG, COMMAND ": %s has no value", o->key);
    mt_tree_close(&tree);
    return s;
}

static mt_status override(mt_config *c, const char *text, mt_err *e)
{
    char key[64], why[MT_VALUE_WHY], shown[96];
    const char *equals = strchr(text, '=');
    mt_word_clean(shown, sizeof shown, text);
    MT_REQUIRE(equals && equals > text, e, MT_CONFIG, COMMAND ": expected key=value, got '%s'", shown);
    snprintf(key, sizeof key, "%.*s", (int)(equals - text < 64 ? equals - text : 63), text);
    mt_option_id id = mt_option_find(key);
    MT_REQUIRE(id != MT_OPTION_COUNT, e, MT_CONFIG, COMMAND ": %s: %s", shown,
               mt_option_unknown(key, false, why, sizeof why));
    if (mt_options[id].list)
        MT_TRY(override_groups(c, &mt_options[id], equals + 1, e));
    else if (!mt_value_set(&mt_options[id], c, equals + 1, why))
        MT_FAIL(e, MT_CONFIG, COMMAND ": %s: %s", key, why);
    c->origin[id] = (mt_origin){.from = MT_FROM_COMMAND};
    return MT_OK;
}

mt_status mt_config_read(mt_config *c, const char *path, int n_overrides, char *const *overrides, mt_err *e)
{
    loader l = {.c = c, .e = e};
    mt_config_defaults(c);
    if (path) MT_TRY(load_file(&l, path));
    for (int i = 0; i < n_overrides; i++) MT_TRY(override(c, overrides[i], e));
    mt_config_resolve(c);
    return MT_OK;
}

mt_status mt_config_load(mt_config *c, const char *path, int n_overrides, char *const *overrides, mt_err *e)
{
    MT_TRY(mt_config_read(c, path, n_overrides, overrides, e));
    return mt_config_check(c, e);
}

mt_status mt_config_parse(mt_config *c, const char *name, const char *text, size_t size, mt_err *e)
{
    loader l = {.c = c, .e = e};
    mt_tree tree;
    int file;
    mt_config_defaults(c);
    MT_TRY(add_file(&l, name, &file));
    mt_status s = mt_tree_parse(&tree, name, text, size, e);
    if (s == MT_OK) s = take_tree(&l, &tree, name, file);
    mt_tree_close(&tree);
    MT_TRY(s);
    mt_config_resolve(c);
    return mt_config_check(c, e);
}
