#include "config/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "config/group.h"
#include "config/table.h"
#include "config/tree.h"
#include "config/word.h"

struct reader {
    mt_sweep *s;
    const char *name;
    mt_config *scratch; /* values are tried in it */
    bool given[MT_SWEEP_COUNT];
    int8_t varied[MT_OPTION_COUNT]; /* a block has it */
    mt_err *e;
};
#define REFUSE(r, n, ...) return mt_tree_fail((r)->e, (r)->name, (n)->line, (n)->col, __VA_ARGS__)

static mt_status no_memory(mt_err *e)
{
    return mt_err_set(e, MT_IO, "no memory for a sweep");
}

/* ---- values ---- */
/* A value as one line of YAML, as the command line takes it. False: too long. */
static bool write_node(const mt_node *n, char *out, size_t size, size_t *at)
{
    const char *comma = "";
    size_t used = *at;
#define PUT(...) used += used < size ? (size_t)snprintf(out + used, size - used, __VA_ARGS__) : 0
    if (n->kind == MT_NODE_SCALAR) {
        PUT("%s", n->text);
    } else {
        PUT("%s", n->kind == MT_NODE_MAP ? "{" : "[");
        for (const mt_node *v = n->child; v; v = v->next, comma = ", ") {
            PUT("%s", comma);
            if (v->key) PUT("\"%s\": ", v->key);
            if (v->kind == MT_NODE_SCALAR && !v->plain) PUT("\"");
            if (!write_node(v, out, size, &used)) return false;
            if (v->kind == MT_NODE_SCALAR && !v->plain) PUT("\"");
        }
        PUT("%s", n->kind == MT_NODE_MAP ? "}" : "]");
    }
#undef PUT
    *at = used;
    return used < size;
}

/* Tries the value, and keeps its text. */
static mt_status set_value(struct reader *r, const mt_node *n, mt_option_id id, struct mt_setting *out)
{
    char text[MT_VALUE_TEXT] = "", why[MT_VALUE_WHY];
    const mt_option *o = &mt_options[id];
    size_t at = 0;
    if (mt_node_is_null(n)) REFUSE(r, n, "%s has no value", o->key);
    if (!write_node(n, text, sizeof text, &at)) REFUSE(r, n, "%s: the value is too long", o->key);
    if (o->list) {
        MT_TRY(mt_groups_set(r->scratch, o, n, r->name, r->e));
    } else {
        if (n->kind != MT_NODE_SCALAR && o->type != MT_VALUE_INTS)
            REFUSE(r, n, "%s: expected one value (%s), got %s", o->key, mt_value_type_name(o->type),
                   mt_node_what(n, why, 80));
        if (!mt_value_set(o, r->scratch, text, why)) REFUSE(r, n, "%s: %s", o->key, why);
        mt_value_text(o, r->scratch, text);
    }
    *out = (struct mt_setting){id, strdup(text)};
    return out->text ? MT_OK : no_memory(r->e);
}

/* ---- maps of options ---- */
typedef mt_status on_option(struct reader *r, const mt_node *n, mt_option_id id, void *arg);
/* Calls f for every option below n, whose keys are options or sections. */
static mt_status each_option(struct reader *r, const mt_node *n, const char *section, on_option *f, void *arg)
{
    char key[512], unknown[256];
    if (n->kind != MT_NODE_MAP || !n->child)
        REFUSE(r, n, "expected options here, as train.steps: 20, got %s", mt_node_what(n, unknown, 80));
    for (const mt_node *v = n->child; v; v = v->next) {
        snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", v->key);
        mt_option_id id = mt_option_find(key);
        if (id == MT_OPTION_COUNT && mt_section_known(key)) {
            MT_TRY(each_option(r, v, key, f, arg));
            continue;
        }
        if (id == MT_OPTION_COUNT)
            return mt_tree_fail(r->e, r->name, v->key_line, v->key_col, "%s",
                                mt_option_unknown(key, v->kind == MT_NODE_MAP, unknown, sizeof unknown));
        if (id == MT_OPTION_run_dir || id == MT_OPTION_run_stop_after)
            return mt_tree_fail(r->e, r->name, v->key_line, v->key_col, "%s: the sweep sets it for each run",
                                key);
        MT_TRY(f(r, v, id, arg));
    }
    return MT_OK;
}

static mt_status add_setting(struct reader *r, const mt_node *n, mt_option_id id, void *arg)
{
    struct mt_sweep_row *row = arg;
    for (int i = 0; i < row->n; i++)
        if (row->setting[i].option == id) REFUSE(r, n, "%s is given twice", mt_options[id].key);
    if (row->n >= MT_SWEEP_SETTINGS / 2) REFUSE(r, n, "more than %d options", MT_SWEEP_SETTINGS / 2);
    struct mt_setting *more = realloc(row->setting, (size_t)(row->n + 1) * sizeof *more);
    if (!more) return no_memory(r->e);
    row->setting = more;
    MT_TRY(set_value(r, n, id, &more[row->n]));
    row->n++;
    return MT_OK;
}

/* ---- blocks ---- */
static mt_status add_block(struct reader *r, const mt_node *n, int rows, struct mt_sweep_block **out)
{
    mt_sweep *s = r->s;
    if (s->n_blocks == MT_SWEEP_BLOCKS)
        REFUSE(r, n, "more than %d keys and lists of values", MT_SWEEP_BLOCKS);
    *out = &s->block[s->n_blocks];
    **out = (struct mt_sweep_block){
        .line = n->line, .col = n->col, .row = calloc((size_t)rows + 1, sizeof(struct mt_sweep_row))};
    if (!(*out)->row) return no_memory(r->e);
    (*out)->n = rows;
    s->n_blocks++;
    return MT_OK;
}
/* An option that two blocks have would have two values. */
static mt_status vary(struct reader *r, const mt_node *n, mt_option_id id)
{
    if (r->varied[id]) REFUSE(r, n, "%s is varied twice: by grid, zip or list", mt_options[id].key);
    r->varied[id] = 1;
    return MT_OK;
}
static int count(const mt_node *n)
{
    int k = 0;
    for (const mt_node *v = n->kind == MT_NODE_LIST ? n->child : NULL; v; v = v->next) k++;
    return k;
}
static mt_status take_values(struct reader *r, const mt_node *n, mt_option_id id, struct mt_sweep_block *b)
{
    int i = 0;
    for (const mt_node *v = n->child; v; v = v->next, i++) MT_TRY(add_setting(r, v, id, &b->row[i]));
    return MT_OK;
}

static mt_status grid_key(struct reader *r, const mt_node *n, mt_option_id id, void *arg)
{
    struct mt_sweep_block *b;
    (void)arg;
    if (!count(n)) REFUSE(r, n, "%s: expected a list of values, as [1, 2]", mt_options[id].key);
    MT_TRY(vary(r, n, id));
    MT_TRY(add_block(r, n, count(n), &b));
    return take_values(r, n, id, b);
}

struct zipped {
    struct mt_sweep_block *b;
};
static mt_status zip_key(struct reader *r, const mt_node *n, mt_option_id id, void *arg)
{
    struct zipped *z = arg;
    if (!count(n)) REFUSE(r, n, "%s: expected a list of values, as [1, 2]", mt_options[id].key);
    MT_TRY(vary(r, n, id));
    if (!z->b) MT_TRY(add_block(r, n, count(n), &z->b));
    if (z->b->n != count(n))
        REFUSE(r, n, "%s has %d values, the option zipped with it %d", mt_options[id].key, count(n), z->b->n);
    return take_values(r, n, id, z->b);
}
/* A map, or a list of maps that are zipped each for itself. */
static mt_status take_zip(struct reader *r, const mt_node *n)
{
    const mt_node one = {.child = (mt_node *)n}, *list = n->kind == MT_NODE_LIST ? n : &one;
    for (const mt_node *v = list->child; v; v = v->next) {
        struct zipped z = {NULL};
        MT_TRY(each_option(r, v, "", zip_key, &z));
        if (list == &one) break;
    }
    return MT_OK;
}

static mt_status take_list(struct reader *r, const mt_node *n)
{
    struct mt_sweep_block *b;
    int i = 0;
    if (!count(n)) REFUSE(r, n, "list: expected a list of options, as [{optim.lr: 1e-3}, {optim.lr: 3e-3}]");
    MT_TRY(add_block(r, n, count(n), &b));
    for (const mt_node *v = n->child; v; v = v->next, i++)
        if (v->kind != MT_NODE_MAP || v->child) MT_TRY(each_option(r, v, "", add_setting, &b->row[i]));
    bool here[MT_OPTION_COUNT] = {false};
    for (i = 0; i < b->n; i++)
        for (int k = 0; k < b->row[i].n; k++) here[b->row[i].setting[k].option] = true;
    for (int id = 0; id < MT_OPTION_COUNT; id++)
        if (here[id]) MT_TRY(vary(r, n, (mt_option_id)id));
    return MT_OK;
}

/* ---- the rest of the file ---- */
static mt_status take_condition(struct reader *r, const mt_node *n)
{
    mt_sweep *s = r->s;
    if (n->kind != MT_NODE_SCALAR || mt_node_is_null(n))
        REFUSE(r, n, "where: expected a condition, as train.micro_batch <= 4");
    if (s->n_where == MT_SWEEP_CONDITIONS)
        REFUSE(r, n, "where: more than %d conditions", MT_SWEEP_CONDITIONS);
    if (!(s->where[s->n_where] = strdup(n->text))) return no_memory(r->e);
    s->where_line[s->n_where] = n->line;
    s->where_col[s->n_where++] = n->col;
    return MT_OK;
}
static mt_status take_where(struct reader *r, const mt_node *n)
{
    if (n->kind != MT_NODE_LIST) return take_condition(r, n);
    for (const mt_node *v = n->child; v; v = v->next) MT_TRY(take_condition(r, v));
    return MT_OK;
}

static mt_status take_extends(struct reader *r, const mt_node *n)
{
    const char *slash = strrchr(r->name, '/');
    if (n->kind != MT_NODE_SCALAR || !*n->text || mt_node_is_null(n))
        REFUSE(r, n, "extends: expected the path of one configuration");
    int folder = *n->text != '/' && slash ? (int)(slash - r->name) + 1 : 0;
    int k = snprintf(r->s->base, sizeof r->s->base, "%.*s%s", folder, r->name, n->text);
    if (k >= (int)sizeof r->s->base)
        REFUSE(r, n, "extends: the path is longer than %d bytes", MT_CONFIG_PATH - 1);
    return MT_OK;
}

static const char *unknown_key(const char *key, char *out, size_t size)
{
    static const char *const blocks[] = {"extends", "set", "grid", "zip", "list", "where", "baseline"};
    enum { BLOCKS = sizeof blocks / sizeof *blocks };
    const char *names[MT_SWEEP_COUNT + BLOCKS];
    char shown[64];
    for (int i = 0; i < BLOCKS; i++) names[i] = blocks[i];
    for (int i = 0; i < MT_SWEEP_COUNT; i++) names[BLOCKS + i] = mt_sweep_fields[i].key;
    const char *near = mt_word_nearest(key, names, MT_SWEEP_COUNT + BLOCKS);
    mt_word_clean(shown, sizeof shown, key);
    bool option = mt_section_known(key) || mt_option_find(key) != MT_OPTION_COUNT;
    snprintf(out, size, "a sweep has no '%s'%s%s%s%s", shown,
             option ? ": options stand under set, grid, zip or list" : "",
             near && !option ? "; did you mean " : "", near && !option ? near : "",
             near && !option ? "?" : "");
    return out;
}

/* A key of sweep.def, in `section` or not. */
static mt_status take_field(struct reader *r, const mt_node *n, const char *section)
{
    char key[512], why[MT_VALUE_WHY];
    size_t length;
    int i = 0;
    snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", n->key);
    length = strlen(key);
    for (; i < MT_SWEEP_COUNT && strcmp(mt_sweep_fields[i].key, key) != 0; i++)
        if (!*section && n->kind == MT_NODE_MAP && !strncmp(mt_sweep_fields[i].key, key, length) &&
            mt_sweep_fields[i].key[length] == '.') {
            for (const mt_node *v = n->child; v; v = v->next) MT_TRY(take_field(r, v, key));
            return MT_OK;
        }
    if (i == MT_SWEEP_COUNT)
        return mt_tree_fail(r->e, r->name, n->key_line, n->key_col, "%s", unknown_key(key, why, sizeof why));
    if (r->given[i]) REFUSE(r, n, "%s is given twice", key);
    if (n->kind != MT_NODE_SCALAR || mt_node_is_null(n)) REFUSE(r, n, "%s: expected one value", key);
    if (!mt_value_set(&mt_sweep_fields[i], &r->s->o, n->text, why)) REFUSE(r, n, "%s: %s", key, why);
    r->given[i] = true;
    return MT_OK;
}

static mt_status take_key(struct reader *r, const mt_node *n)
{
    if (!strcmp(n->key, "extends")) return take_extends(r, n);
    if (!strcmp(n->key, "set")) return each_option(r, n, "", add_setting, &r->s->set);
    if (!strcmp(n->key, "baseline")) return each_option(r, n, "", add_setting, &r->s->baseline);
    if (!strcmp(n->key, "grid")) return each_option(r, n, "", grid_key, NULL);
    if (!strcmp(n->key, "zip")) return take_zip(r, n);
    if (!strcmp(n->key, "list")) return take_list(r, n);
    if (!strcmp(n->key, "where")) return take_where(r, n);
    return take_field(r, n, "");
}

/* The slowest first: list, zip, grid, whatever their order in the file. */
static mt_status take_tree(struct reader *r, const mt_tree *t)
{
    static const char *const first[] = {"list", "zip", "grid"};
    if (!t->root || t->root->kind != MT_NODE_MAP)
        return mt_tree_fail(r->e, r->name, 1, 1, "expected a sweep: extends, grid, list, ...");
    for (int i = 0; i < 3; i++)
        for (const mt_node *n = t->root->child; n; n = n->next)
            if (!strcmp(n->key, first[i])) MT_TRY(take_key(r, n));
    for (const mt_node *n = t->root->child; n; n = n->next)
        if (strcmp(n->key, "list") != 0 && strcmp(n->key, "zip") != 0 && strcmp(n->key, "grid") != 0)
            MT_TRY(take_key(r, n));
    return MT_OK;
}

/* runs/NAME of .../NAME.yaml. */
static void name_folder(mt_sweep *s)
{
    const char *slash = strrchr(s->name, '/'), *file = slash ? slash + 1 : s->name, *dot = strrchr(file, '.');
    if (!*s->o.dir)
        snprintf(s->o.dir, sizeof s->o.dir, "runs/%.*s",
                 dot && dot > file ? (int)(dot - file) : (int)strlen(file) % 512, file);
}

static mt_status take(mt_sweep *s, const char *name, mt_tree *t, mt_status st, mt_err *e)
{
    char why[MT_VALUE_WHY];
    struct reader r = {.s = s, .name = name, .scratch = calloc(1, sizeof *r.scratch), .e = e};
    snprintf(s->name, sizeof s->name, "%.*s", MT_CONFIG_PATH - 1, name);
    for (int i = 0; i < MT_SWEEP_COUNT; i++)
        MT_ASSERT(mt_value_set(&mt_sweep_fields[i], &s->o, mt_sweep_fields[i].def, why));
    if (!r.scratch && st == MT_OK) st = no_memory(e);
    if (st == MT_OK) {
        mt_config_defaults(r.scratch);
        st = take_tree(&r, t);
    }
    if (st == MT_OK) name_folder(s);
    free(r.scratch);
    return st;
}

mt_status mt_sweep_open(mt_sweep *s, const char *path, mt_err *e)
{
    mt_tree t;
    *s = (mt_sweep){.n = 0};
    mt_status st = mt_tree_open(&t, path, e);
    st = take(s, path, &t, st, e);
    mt_tree_close(&t);
    return st;
}
mt_status mt_sweep_parse(mt_sweep *s, const char *name, const char *text, size_t size, mt_err *e)
{
    mt_tree t;
    *s = (mt_sweep){.n = 0};
    mt_status st = mt_tree_parse(&t, name, text, size, e);
    st = take(s, name, &t, st, e);
    mt_tree_close(&t);
    return st;
}

static void release_row(struct mt_sweep_row *row)
{
    /* The last may have been begun only. */
    for (int i = 0; i < row->n; i++) free(row->setting[i].text);
    free(row->setting);
}
void mt_sweep_close(mt_sweep *s)
{
    release_row(&s->set);
    release_row(&s->baseline);
    for (int i = 0; i < s->n_blocks; i++) {
        for (int k = 0; k < s->block[i].n; k++) release_row(&s->block[i].row[k]);
        free(s->block[i].row);
    }
    for (int i = 0; i < s->n_where; i++) free(s->where[i]);
    free(s->point);
    *s = (mt_sweep){.n = 0};
}
