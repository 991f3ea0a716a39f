/* group.h: the options that are lists of entries, optim.groups, shard.groups and data.blend. */
#ifndef MT_CONFIG_GROUP_H
#define MT_CONFIG_GROUP_H
#include "config/config.h"
#include "config/tree.h"
#include "config/value.h"

enum { MT_GROUP_TEXT = 4096 };

/* What there is to know of a list; the value of its option is an array of MT_CONFIG_GROUPS entries, and a count. */
struct mt_group_list {
    const mt_option *field; /* of an entry, which has `size` bytes; offsets into it */
    int fields;
    size_t size, count;   /* count: offset of the int64_t in mt_config */
    const void *defaults; /* `n` entries */
    int64_t n;
    bool empty;                   /* it may be */
    const char *example;          /* an entry */
    const char *first, *first_is; /* the field that every entry has, and what it is */
    const char *needs, *choices;  /* NULL, or another one, and its values */
};
extern const struct mt_group_list mt_list_optim_group, mt_list_shard_group, mt_list_data_part;

/* Replaces every list by its default. optim.groups: norms and biases on AdamW without decay, embedding, head and router
 * on AdamW, every other matrix on Muon. shard.groups, data.blend: empty. */
void mt_groups_default(mt_config *c);

/* Replaces the list that is option o by the list `n` of the file `name`. */
MT_MUST_USE mt_status mt_groups_set(mt_config *c, const mt_option *o, const mt_node *n, const char *name,
                                    mt_err *e);

/* Entries of the list that is option o. */
int64_t mt_groups_count(const mt_config *c, const mt_option *o);
const void *mt_groups_entry(const mt_config *c, const mt_option *o, int64_t i);

/* One of its entries in one line of YAML. Returns out. */
char *mt_group_yaml(const mt_option *o, const void *entry, char out[static MT_GROUP_TEXT]);
#endif
