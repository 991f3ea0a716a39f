#include "launch/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/tree.h"
#include "config/word.h"

const struct mt_cluster_row mt_cluster_rows[MT_N_CLUSTER_KEYS] = {
#define MT_CLUSTER(key, field, low, high, unit, doc) {key, unit, doc, low, high},
#include "launch/cluster.def"
};

char *mt_cluster_path(const char *name, const char *config, char *out, size_t size)
{
    const char *slash = strrchr(config, '/'), *dot = strrchr(name, '.');
    if (strchr(name, '/') || (dot && !strcmp(dot, ".yaml"))) {
        snprintf(out, size, "%s", name);
    } else {
        snprintf(out, size, "%.*sclusters/%s.yaml", slash ? (int)(slash - config) + 1 : 0, config, name);
        if (access(out, R_OK) != 0) snprintf(out, size, "configs/clusters/%s.yaml", name);
    }
    return out;
}

struct reader {
    struct mt_cluster *c;
    const char *name;
    mt_err *e;
};
#define REFUSE(r, n, ...) return mt_tree_fail((r)->e, (r)->name, (n)->line, (n)->col, __VA_ARGS__)
#define REFUSE_KEY(r, n, ...) return mt_tree_fail((r)->e, (r)->name, (n)->key_line, (n)->key_col, __VA_ARGS__)

static int find(const char *key)
{
    int i = 0;
    while (i < MT_N_CLUSTER_KEYS && strcmp(mt_cluster_rows[i].key, key) != 0) i++;
    return i;
}

/* "no number 'net.bandwith' of a cluster; did you mean net.bandwidth?" */
static char *unknown(const char *key, char *out, size_t size)
{
    const char *names[MT_N_CLUSTER_KEYS];
    char shown[96];
    for (int i = 0; i < MT_N_CLUSTER_KEYS; i++) names[i] = mt_cluster_rows[i].key;
    const char *near = mt_word_nearest(key, names, MT_N_CLUSTER_KEYS);
    mt_word_clean(shown, sizeof shown, key);
    snprintf(out, size, "'%s' is no number of a cluster%s%s%s", shown, near ? "; did you mean " : "",
             near ? near : "", near ? "?" : "");
    return out;
}

/* False: why (160 bytes) says what is wrong with the text. */
static bool number(int k, const char *text, double *out, char *why, size_t size)
{
    const struct mt_cluster_row *row = &mt_cluster_rows[k];
    char shown[64], *end;
    double v = strtod(text, &end);
    mt_word_clean(shown, sizeof shown, text);
    if (end == text || *end || !isfinite(v))
        snprintf(why, size, "%s is a number of %s; '%s' is none", row->key, row->unit, shown);
    else if (v < row->low || v > row->high)
        snprintf(why, size, "%s must be in [%g, %g] %s, not %s", row->key, row->low, row->high, row->unit,
                 shown);
    else
        return *out = v, true;
    return false;
}

static mt_status read_text(struct reader *r, const mt_node *n, const char *what, char *out, size_t size)
{
    char found[96];
    if (n->kind != MT_NODE_SCALAR || mt_node_is_null(n) || !n->text[0])
        REFUSE(r, n, "%s must be text, not %s", what, mt_node_what(n, found, sizeof found));
    if (strlen(n->text) >= size) REFUSE(r, n, "%s has more than %zu bytes", what, size - 1);
    memcpy(out, n->text, strlen(n->text) + 1);
    return MT_OK;
}

/* {value: 25e9, source: "..."} */
static mt_status read_number(struct reader *r, const mt_node *n, int k)
{
    const char *key = mt_cluster_rows[k].key;
    char why[160], found[96];
    const mt_node *value = NULL;
    bool source = false;
    if (n->kind != MT_NODE_MAP)
        REFUSE(r, n, "%s must be {value: NUMBER, source: TEXT}, not %s", key,
               mt_node_what(n, found, sizeof found));
    for (const mt_node *x = n->child; x; x = x->next) {
        if (!strcmp(x->key, "value")) {
            value = x;
            if (x->kind != MT_NODE_SCALAR)
                REFUSE(r, x, "%s must be a number, not %s", key, mt_node_what(x, found, sizeof found));
            if (!number(k, x->text, &r->c->of[k].value, why, sizeof why)) REFUSE(r, x, "%s", why);
        } else if (!strcmp(x->key, "source")) {
            MT_TRY(read_text(r, x, "the source", r->c->of[k].source, sizeof r->c->of[k].source));
            source = true;
        } else {
            mt_word_clean(found, sizeof found, x->key);
            REFUSE_KEY(r, x, "%s has a value and a source, and no '%s'", key, found);
        }
    }
    if (!value) REFUSE(r, n, "%s has no value", key);
    if (!source) REFUSE(r, n, "%s has no source: say where the number is from, or \"assumed\"", key);
    r->c->of[k].given = true;
    return MT_OK;
}

static mt_status read_section(struct reader *r, const mt_node *section)
{
    char key[160], text[320];
    if (section->kind != MT_NODE_MAP)
        REFUSE(r, section, "%.60s must be a map of numbers, not %s", section->key,
               mt_node_what(section, text, sizeof text));
    for (const mt_node *n = section->child; n; n = n->next) {
        snprintf(key, sizeof key, "%.70s.%.70s", section->key, n->key);
        int k = find(key);
        if (k == MT_N_CLUSTER_KEYS) REFUSE_KEY(r, n, "%s", unknown(key, text, sizeof text));
        MT_TRY(read_number(r, n, k));
    }
    return MT_OK;
}

static mt_status read_op_number(struct reader *r, const mt_node *x, struct mt_cluster_op *op)
{
    char text[96], *end;
    const struct {
        const char *key;
        double *to, most;
    } numbers[] = {{"times", &op->times, 1e6},
                   {"plus", &op->plus, 1},
                   {"above", &op->above, 1e6},
                   {"then", &op->then, 1e6},
                   {"half", &op->half, 65536}};
    mt_word_clean(text, sizeof text, x->key);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(x->key, numbers[i].key) != 0) continue;
        double v = x->kind == MT_NODE_SCALAR ? strtod(x->text, &end) : -1;
        if (x->kind != MT_NODE_SCALAR || end == x->text || *end || !(v >= 0 && v <= numbers[i].most))
            REFUSE(r, x, "%s of an operation must be a number in [0, %g]", text, numbers[i].most);
        *numbers[i].to = v;
        op->has_half |= numbers[i].to == &op->half;
        return MT_OK;
    }
    REFUSE_KEY(r, x, "an operation has times, plus, above, then and half, and no '%s'", text);
}

/* {times: 1.7, plus: 2e-6, above: 1e-4, then: 2.5} */
static mt_status read_op(struct reader *r, const mt_node *n)
{
    struct mt_cluster_op *op = &r->c->op[r->c->n_ops];
    char text[96];
    if (n->kind != MT_NODE_MAP)
        REFUSE(r, n, "an operation must be {times: NUMBER, plus: SECONDS}, not %s",
               mt_node_what(n, text, sizeof text));
    if (strlen(n->key) >= sizeof op->name || r->c->n_ops == MT_CLUSTER_OPS)
        REFUSE_KEY(r, n, "ops names at most %d operations, of %zu letters", MT_CLUSTER_OPS,
                   sizeof op->name - 1);
    *op = (struct mt_cluster_op){.times = -1, .then = -1};
    memcpy(op->name, n->key, strlen(n->key) + 1);
    for (const mt_node *x = n->child; x; x = x->next) MT_TRY(read_op_number(r, x, op));
    if (op->times < 0) REFUSE(r, n, "an operation must say times");
    if ((op->above > 0) != (op->then >= 0)) REFUSE(r, n, "an operation says above and then together");
    r->c->n_ops++;
    return MT_OK;
}

static mt_status read_ops(struct reader *r, const mt_node *section)
{
    char text[96];
    if (section->kind != MT_NODE_MAP)
        REFUSE(r, section, "ops must be a map of operations, not %s",
               mt_node_what(section, text, sizeof text));
    for (const mt_node *n = section->child; n; n = n->next)
        if (!strcmp(n->key, "source"))
            MT_TRY(read_text(r, n, "the source", r->c->op_source, sizeof r->c->op_source));
        else
            MT_TRY(read_op(r, n));
    if (!r->c->op_source[0]) REFUSE(r, section, "ops has no source");
    return MT_OK;
}

static bool section_known(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < MT_N_CLUSTER_KEYS; i++)
        if (!strncmp(mt_cluster_rows[i].key, name, n) && mt_cluster_rows[i].key[n] == '.') return true;
    return false;
}

static mt_status read_root(struct reader *r, const mt_node *root)
{
    struct mt_cluster *c = r->c;
    char text[320];
    if (!root || root->kind != MT_NODE_MAP)
        return mt_tree_fail(r->e, r->name, root ? root->line : 1, root ? root->col : 1,
                            "a cluster file is a map with name, target and sections of numbers");
    for (const mt_node *n = root->child; n; n = n->next) {
        if (!strcmp(n->key, "name"))
            MT_TRY(read_text(r, n, "the name", c->name, sizeof c->name));
        else if (!strcmp(n->key, "target"))
            MT_TRY(read_text(r, n, "the target", c->target, sizeof c->target));
        else if (!strcmp(n->key, "ops"))
            MT_TRY(read_ops(r, n));
        else if (section_known(n->key))
            MT_TRY(read_section(r, n));
        else
            REFUSE_KEY(r, n, "%s", unknown(n->key, text, sizeof text));
    }
    if (!c->name[0] || !c->target[0]) REFUSE(r, root, "the file has no %s", c->name[0] ? "target" : "name");
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++)
        if (!c->of[k].given) REFUSE(r, root, "the file has no %s", mt_cluster_rows[k].key);
    return MT_OK;
}

mt_status mt_cluster_parse(struct mt_cluster *c, const char *name, const char *text, size_t size, mt_err *e)
{
    mt_tree t;
    *c = (struct mt_cluster){.name = ""};
    mt_status st = mt_tree_parse(&t, name, text, size, e);
    if (st == MT_OK) st = read_root(&(struct reader){c, name, e}, t.root);
    mt_tree_close(&t);
    return st;
}

mt_status mt_cluster_load(struct mt_cluster *c, const char *path, mt_err *e)
{
    mt_tree t;
    *c = (struct mt_cluster){.name = ""};
    mt_status st = mt_tree_open(&t, path, e);
    if (st == MT_OK) st = read_root(&(struct reader){c, path, e}, t.root);
    mt_tree_close(&t);
    return st;
}

mt_status mt_cluster_override(struct mt_cluster *c, const char *assignment, mt_err *e)
{
    const char *equals = strchr(assignment, '=');
    char key[96], text[320];
    MT_REQUIRE(equals, e, MT_CONFIG, "cluster.%s: write cluster.KEY=NUMBER",
               mt_word_clean(key, sizeof key, assignment));
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    int k = find(key);
    MT_REQUIRE(k < MT_N_CLUSTER_KEYS, e, MT_CONFIG, "command line: %s", unknown(key, text, sizeof text));
    MT_REQUIRE(number(k, equals + 1, &c->of[k].value, text, sizeof text), e, MT_CONFIG, "command line: %s",
               text);
    snprintf(c->of[k].source, sizeof c->of[k].source, "command line");
    return MT_OK;
}

bool mt_cluster_assumed(const struct mt_cluster *c, enum mt_cluster_key k)
{
    return !strncmp(c->of[k].source, "assumed", 7);
}

const struct mt_cluster_op *mt_cluster_op(const struct mt_cluster *c, const char *name)
{
    for (int i = 0; i < c->n_ops; i++)
        if (!strcmp(c->op[i].name, name)) return &c->op[i];
    return NULL;
}

void mt_cluster_write(const struct mt_cluster *c, FILE *f)
{
    const char *before = "";
    fprintf(f, "name: \"%s\"\ntarget: \"%s\"\n", c->name, c->target);
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) {
        const char *key = mt_cluster_rows[k].key, *dot = strchr(key, '.');
        size_t n = (size_t)(dot - key) + 1;
        if (strncmp(before, key, n) != 0) fprintf(f, "%.*s:\n", (int)n - 1, key);
        before = key;
        fprintf(f, "  %s: {value: %.6g, source: \"%s\"}\n", dot + 1, c->of[k].value, c->of[k].source);
    }
    if (!c->n_ops) return;
    fprintf(f, "ops:\n  source: \"%s\"\n", c->op_source);
    for (int i = 0; i < c->n_ops; i++) {
        const struct mt_cluster_op *op = &c->op[i];
        fprintf(f, "  %s: {times: %.4g, plus: %.4g", op->name, op->times, op->plus);
        if (op->has_half) fprintf(f, ", half: %.4g", op->half);
        if (op->above > 0) fprintf(f, ", above: %.4g, then: %.4g", op->above, op->then);
        fprintf(f, "}\n");
    }
}
