/* group.h: optim.groups, the one option that is a list. */
#ifndef MT_CONFIG_GROUP_H
#define MT_CONFIG_GROUP_H
#include "config/config.h"
#include "config/tree.h"

enum { MT_GROUP_TEXT = 1024 };

/* Replaces the groups by the defaults: norms and biases on AdamW without decay, embedding, head and router on
 * AdamW, every other matrix on Muon. */
void mt_groups_default(mt_config *c);

/* Replaces them by the list `n` of the file `name`. */
MT_MUST_USE mt_status mt_groups_set(mt_config *c, const mt_node *n, const char *name, mt_err *e);

/* One group in one line of YAML. Returns out. */
char *mt_group_yaml(const mt_optim_group *g, char out[static MT_GROUP_TEXT]);
#endif
