#include "config/tree.h"

#include "config/word.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mt_status mt_tree_fail(mt_err *e, const char *name, int line, int col, const char *fmt, ...)
{
    char text[768], shown[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    MT_FAIL(e, MT_CONFIG, "%s:%d:%d: %s", mt_word_clean(shown, sizeof shown, name), line, col, text);
}

static void release(mt_node *n)
{
    while (n) {
        mt_node *next = n->next;
        release(n->child);
        free(n->key);
        free(n->text);
        free(n);
        n = next;
    }
}

void mt_tree_close(mt_tree *t)
{
    release(t->root);
    t->root = NULL;
}

char *mt_node_what(const mt_node *n, char *out, size_t size)
{
    char shown[64];
    if (n->kind == MT_NODE_SCALAR)
        snprintf(out, size, "'%s'", mt_word_clean(shown, sizeof shown, n->text));
    else
        snprintf(out, size, "%s", n->kind == MT_NODE_MAP ? "a map" : "a list");
    return out;
}

bool mt_node_is_null(const mt_node *n)
{
    if (n->kind != MT_NODE_SCALAR || !n->plain) return false;
    return !*n->text || !strcmp(n->text, "~") || !strcmp(n->text, "null");
}
