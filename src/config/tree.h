/* tree.h: a YAML file as a tree of maps, lists and scalars with the place of each.
 *
 * The subset a configuration needs: one document of plain data. Anchors, aliases and tags are refused, as are
 * a key that stands twice in a map, deep nesting and large files. Failures are MT_CONFIG and begin with
 * name:line:col. */
#ifndef MT_CONFIG_TREE_H
#define MT_CONFIG_TREE_H
#include "base/status.h"

enum { MT_TREE_DEPTH = 16, MT_TREE_NODES = 4096, MT_TREE_BYTES = 1 << 20 };

typedef struct mt_node {
    enum { MT_NODE_SCALAR, MT_NODE_MAP, MT_NODE_LIST } kind;
    int line, col; /* of the value, from 1 */
    char *key;     /* NULL outside maps */
    int key_line, key_col;
    char *text;                   /* of a scalar; else NULL */
    bool plain;                   /* a scalar without quotes */
    struct mt_node *child, *next; /* the first inside it; the next beside it */
} mt_node;

typedef struct mt_tree {
    mt_node *root; /* NULL: the file holds nothing but comments */
} mt_tree;

/* Both leave a tree that mt_tree_close accepts, also on failure. */
MT_MUST_USE mt_status mt_tree_open(mt_tree *t, const char *path, mt_err *e);
MT_MUST_USE mt_status mt_tree_parse(mt_tree *t, const char *name, const char *text, size_t size, mt_err *e);
void mt_tree_close(mt_tree *t);

/* Fails with MT_CONFIG and "name:line:col: " in front of the message. */
MT_PRINTF(5, 6) mt_status mt_tree_fail(mt_err *e, const char *name, int line, int col, const char *fmt, ...);

/* "a map", "a list", "'text'" for messages: what was found. Returns out. */
char *mt_node_what(const mt_node *n, char *out, size_t size);
/* A scalar that says nothing: `key:`, `~` or `null`. */
bool mt_node_is_null(const mt_node *n);
#endif
