/* In place of src/config/tree_yaml.c: programs of this folder take their options as key=value, and need no libyaml. */
#include "config/tree.h"

static mt_status refuse(mt_tree *t, const char *name, mt_err *e)
{
    t->root = NULL;
    MT_FAIL(e, MT_CONFIG, "%s: this program was built without libyaml; give options as key=value", name);
}
mt_status mt_tree_open(mt_tree *t, const char *path, mt_err *e)
{
    return refuse(t, path, e);
}
mt_status mt_tree_parse(mt_tree *t, const char *name, const char *text, size_t size, mt_err *e)
{
    (void)text, (void)size;
    return refuse(t, name, e);
}
