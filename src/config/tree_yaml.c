#include "config/tree.h"

#include "config/word.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define SHOWN 160 /* bytes of a file's name in a message */

typedef struct reader {
    const char *name;
    mt_err *e;
    mt_tree *tree;
    mt_node *open[MT_TREE_DEPTH]; /* the maps and lists that are being read, outermost first */
    mt_node *last[MT_TREE_DEPTH]; /* of each, the newest inside it */
    int depth, nodes, documents;
    char *key; /* of a map: read, its value is not */
    int key_line, key_col;
} reader;

static int at_line(const yaml_event_t *ev)
{
    return (int)(ev->start_mark.line < INT_MAX ? ev->start_mark.line + 1 : INT_MAX);
}

static int at_col(const yaml_event_t *ev)
{
    return (int)(ev->start_mark.column < INT_MAX ? ev->start_mark.column + 1 : INT_MAX);
}

#define REFUSE(r, ev, ...) return mt_tree_fail((r)->e, (r)->name, at_line(ev), at_col(ev), __VA_ARGS__)

static mt_status no_memory(reader *r)
{
    char shown[SHOWN];
    MT_FAIL(r->e, MT_IO, "%s: no memory to read the file", mt_word_clean(shown, sizeof shown, r->name));
}

/* Puts a node into the innermost open map or list, or makes it the root. Takes the waiting key. */
static mt_status add(reader *r, const yaml_event_t *ev, mt_node **out)
{
    if (++r->nodes > MT_TREE_NODES) REFUSE(r, ev, "more than %d values in one file", MT_TREE_NODES);
    mt_node *n = calloc(1, sizeof *n);
    if (!n) return no_memory(r);
    n->line = at_line(ev);
    n->col = at_col(ev);
    n->key = r->key;
    n->key_line = r->key_line;
    n->key_col = r->key_col;
    r->key = NULL;
    int d = r->depth - 1;
    if (d < 0)
        r->tree->root = n;
    else if (r->last[d])
        r->last[d]->next = n;
    else
        r->open[d]->child = n;
    if (d >= 0) r->last[d] = n;
    *out = n;
    return MT_OK;
}

static bool needs_key(const reader *r)
{
    return r->depth > 0 && r->open[r->depth - 1]->kind == MT_NODE_MAP && !r->key;
}

static mt_status on_key(reader *r, const yaml_event_t *ev, const char *text)
{
    char shown[64];
    for (const mt_node *n = r->open[r->depth - 1]->child; n; n = n->next) {
        if (strcmp(n->key, text)) continue;
        REFUSE(r, ev, "%s is given twice: first in line %d", mt_word_clean(shown, sizeof shown, text),
               n->key_line);
    }
    r->key = strdup(text);
    r->key_line = at_line(ev);
    r->key_col = at_col(ev);
    return r->key ? MT_OK : no_memory(r);
}

static mt_status on_scalar(reader *r, const yaml_event_t *ev)
{
    const char *text = (const char *)ev->data.scalar.value;
    if (strlen(text) != ev->data.scalar.length) REFUSE(r, ev, "the text holds a NUL character");
    if (ev->data.scalar.anchor) REFUSE(r, ev, "anchors (&name) are not supported: write the value out");
    if (ev->data.scalar.tag) REFUSE(r, ev, "tags (!name) are not supported: write the value alone");
    if (needs_key(r)) return on_key(r, ev, text);
    mt_node *n;
    MT_TRY(add(r, ev, &n));
    n->kind = MT_NODE_SCALAR;
    n->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    n->text = strdup(text);
    return n->text ? MT_OK : no_memory(r);
}

static mt_status on_start(reader *r, const yaml_event_t *ev, bool map)
{
    const yaml_char_t *anchor = map ? ev->data.mapping_start.anchor : ev->data.sequence_start.anchor;
    const yaml_char_t *tag = map ? ev->data.mapping_start.tag : ev->data.sequence_start.tag;
    if (anchor) REFUSE(r, ev, "anchors (&name) are not supported: write the values out");
    if (tag) REFUSE(r, ev, "tags (!name) are not supported: write the values alone");
    if (needs_key(r)) REFUSE(r, ev, "a key must be text, not %s", map ? "a map" : "a list");
    if (r->depth == MT_TREE_DEPTH) REFUSE(r, ev, "nested more than %d deep", MT_TREE_DEPTH);
    mt_node *n;
    MT_TRY(add(r, ev, &n));
    n->kind = map ? MT_NODE_MAP : MT_NODE_LIST;
    r->open[r->depth] = n;
    r->last[r->depth++] = NULL;
    return MT_OK;
}

static mt_status on_event(reader *r, const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->documents++ > 0) REFUSE(r, ev, "a second document (---) begins: one file holds one");
        return MT_OK;
    case YAML_ALIAS_EVENT: REFUSE(r, ev, "aliases (*name) are not supported: write the value out");
    case YAML_SCALAR_EVENT: return on_scalar(r, ev);
    case YAML_SEQUENCE_START_EVENT: return on_start(r, ev, false);
    case YAML_MAPPING_START_EVENT: return on_start(r, ev, true);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; return MT_OK;
    default: return MT_OK;
    }
}

static mt_status syntax_error(reader *r, const yaml_parser_t *p)
{
    char problem[128], context[128] = "";
    if (p->error == YAML_MEMORY_ERROR) return no_memory(r);
    yaml_event_t at = {.start_mark = p->problem_mark};
    if (p->context) snprintf(context, sizeof context, " %s", p->context);
    mt_word_clean(problem, sizeof problem, p->problem ? p->problem : "can't be read");
    REFUSE(r, &at, "not YAML: %s%s", problem, context);
}

static mt_status read_events(reader *r, yaml_parser_t *p)
{
    for (;;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(p, &ev)) return syntax_error(r, p);
        bool end = ev.type == YAML_STREAM_END_EVENT;
        mt_status s = on_event(r, &ev);
        yaml_event_delete(&ev);
        if (s != MT_OK || end) return s;
    }
}

/* libyaml's own check gives no line, and accepts UTF-16. */
static mt_status check_text(reader *r, const char *text, size_t size)
{
    if (size > MT_TREE_BYTES)
        return mt_tree_fail(r->e, r->name, 1, 1, "larger than %d bytes: not a configuration", MT_TREE_BYTES);
    size_t good = mt_word_printable(text, size, true);
    if (good == size) return MT_OK;
    int line = 1, col = 1;
    for (size_t i = 0; i < good; i++) {
        bool begins = ((unsigned char)text[i] & 0xc0) != 0x80; /* columns count characters */
        if (text[i] == '\n')
            line++, col = 1;
        else if (begins)
            col++;
    }
    return mt_tree_fail(r->e, r->name, line, col, "byte 0x%02x is not printable UTF-8 text",
                        (unsigned)(unsigned char)text[good]);
}

mt_status mt_tree_parse(mt_tree *t, const char *name, const char *text, size_t size, mt_err *e)
{
    reader r = {.name = name, .e = e, .tree = t};
    yaml_parser_t p;
    t->root = NULL;
    if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, size -= 3; /* byte order mark */
    MT_TRY(check_text(&r, text, size));
    if (!yaml_parser_initialize(&p)) return no_memory(&r);
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, size);
    mt_status s = read_events(&r, &p);
    yaml_parser_delete(&p);
    free(r.key);
    return s;
}

mt_status mt_tree_open(mt_tree *t, const char *path, mt_err *e)
{
    char shown[SHOWN];
    t->root = NULL;
    mt_word_clean(shown, sizeof shown, path);
    FILE *f = fopen(path, "rb");
    if (!f) MT_FAIL(e, MT_CONFIG, "%s: can't open the configuration: %s", shown, strerror(errno));
    char *text = malloc(MT_TREE_BYTES + 1); /* one more, so that a file too large is seen to be */
    size_t size = text ? fread(text, 1, MT_TREE_BYTES + 1, f) : 0;
    mt_status s = MT_OK;
    if (!text)
        s = mt_err_set(e, MT_IO, "%s: no memory to read the file", shown);
    else if (ferror(f))
        s = mt_err_set(e, MT_CONFIG, "%s: can't read the configuration: %s", shown, strerror(errno));
    else
        s = mt_tree_parse(t, path, text, size, e);
    fclose(f);
    free(text);
    return s;
}
