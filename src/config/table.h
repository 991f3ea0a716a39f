/* table.h: the rows of option.def, group.def and sweep.def as arrays. */
#ifndef MT_CONFIG_TABLE_H
#define MT_CONFIG_TABLE_H
#include "config/config.h"
#include "config/sweep.h"
#include "config/value.h"

enum {
#define MT_OPTIM_GROUP(key, field, type, def, limit, resume, doc) MT_OPTIM_GROUP_##field,
#include "config/group.def"
    MT_OPTIM_GROUP_COUNT
};
enum {
#define MT_SHARD_GROUP(key, field, type, def, limit, resume, doc) MT_SHARD_GROUP_##field,
#include "config/group.def"
    MT_SHARD_GROUP_COUNT
};

enum {
#define MT_SWEEP(key, field, type, def, limit, doc) MT_SWEEP_##field,
#include "config/sweep.def"
    MT_SWEEP_COUNT
};
enum {
#define MT_DATA_PART(key, field, type, def, limit, resume, doc) MT_DATA_PART_##field,
#include "config/group.def"
    MT_DATA_PART_COUNT
};

extern const mt_option mt_options[MT_OPTION_COUNT]; /* by mt_option_id; offsets into mt_config */
extern const mt_option mt_optim_group_fields[MT_OPTIM_GROUP_COUNT]; /* offsets into mt_optim_group */
extern const mt_option mt_shard_group_fields[MT_SHARD_GROUP_COUNT]; /* offsets into mt_shard_group */
extern const mt_option mt_sweep_fields[MT_SWEEP_COUNT];             /* offsets into mt_sweep_options */
extern const mt_option mt_data_part_fields[MT_DATA_PART_COUNT];     /* offsets into mt_data_part */

/* The option of that key; MT_OPTION_COUNT: there is none. */
mt_option_id mt_option_find(const char *key);
/* Is `name` the part before the dot of some key? */
bool mt_section_known(const char *name);

/* Writes "no option 'key'" and what was probably meant. `section`: options stand below the key, so that the
 * part before a dot was meant. Returns out. */
char *mt_option_unknown(const char *key, bool section, char *out, size_t size);
#endif
