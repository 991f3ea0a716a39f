/* config.h: the options of a run as plain data, and where each value comes from.
 *
 * config/option.def is the table of options. Values are set in this order, later ones win: the table's
 * defaults; the files a file extends, in the order given; the file itself; key=value overrides of the command
 * line. */
#ifndef MT_CONFIG_CONFIG_H
#define MT_CONFIG_CONFIG_H
#include "base/status.h"
#include "config/choice.h"
#include "config/value.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    MT_CONFIG_STR = 256,   /* bytes of a string, with its end */
    MT_CONFIG_PATH = 1024, /* bytes of a path, with its end */
    MT_CONFIG_GROUPS = 32, /* entries of a list: optim.groups, shard.groups, data.blend */
    MT_CONFIG_FILES = 16,  /* files one configuration is made of */
};

/* Members of a configuration, by the type of the option's row. */
#define MT_MEMBER_INT(field, limit) int64_t field;
#define MT_MEMBER_BYTES(field, limit) int64_t field;
#define MT_MEMBER_FLOAT(field, limit) double field;
#define MT_MEMBER_TIME(field, limit) double field;
#define MT_MEMBER_BOOL(field, limit) bool field;
#define MT_MEMBER_STR(field, limit) char field[MT_CONFIG_STR];
#define MT_MEMBER_PATH(field, limit) char field[MT_CONFIG_PATH];
#define MT_MEMBER_CHOICE(field, set) mt_choice_##set field;
#define MT_MEMBER_INTS(field, limit) mt_ints field;
#define MT_MEMBER_GROUPS(field, entry)         \
    struct mt_##entry field[MT_CONFIG_GROUPS]; \
    int64_t field##_count;

/* One entry of optim.groups: the first whose `match` fits a parameter's full name takes the parameter.
 * A weight_decay of -1 stands for optim.weight_decay. */
typedef struct mt_optim_group {
#define MT_OPTIM_GROUP(key, field, type, def, limit, resume, doc) MT_MEMBER_##type(field, limit)
#include "config/group.def"
} mt_optim_group;
/* One entry of shard.groups, likewise. */
typedef struct mt_shard_group {
#define MT_SHARD_GROUP(key, field, type, def, limit, resume, doc) MT_MEMBER_##type(field, limit)
#include "config/group.def"
} mt_shard_group;

/* One entry of data.blend. */
typedef struct mt_data_part {
#define MT_DATA_PART(key, field, type, def, limit, resume, doc) MT_MEMBER_##type(field, limit)
#include "config/group.def"
} mt_data_part;

/* The place of an option in the table: MT_OPTION_model_dim and so on. */
typedef enum mt_option_id {
#define MT_OPTION(key, field, type, def, limit, scope, resume, doc) MT_OPTION_##field,
#include "config/option.def"
    MT_OPTION_COUNT
} mt_option_id;

typedef struct mt_origin {
    enum { MT_FROM_DEFAULT, MT_FROM_OTHER, MT_FROM_FILE, MT_FROM_COMMAND } from;
    int file;      /* index into mt_config.files */
    int line, col; /* of the value, from 1 */
} mt_origin;

/* About 75 KiB, no pointers, copied by assignment. MT_FROM_OTHER is an option left at 0 whose value was taken
 * from another option: its resolved value is stored, so users of a configuration never see that 0. */
typedef struct mt_config {
#define MT_OPTION(key, field, type, def, limit, scope, resume, doc) MT_MEMBER_##type(field, limit)
#include "config/option.def"
    mt_origin origin[MT_OPTION_COUNT];
    char files[MT_CONFIG_FILES][MT_CONFIG_PATH];
    int files_count;
} mt_config;

/* The table's defaults, resolved. */
void mt_config_defaults(mt_config *c);

/* Reads the file (NULL: none) and what it extends, then the overrides ("key=value"), then checks
 * config/rule.def. Fails with MT_CONFIG; the message begins with file:line:col where a file is to blame. What
 * is in `c` after a failure is no configuration. */
MT_MUST_USE mt_status mt_config_load(mt_config *c, const char *path, int n_overrides, char *const *overrides,
                                     mt_err *e);
/* The same up to the rules: every value by itself is good, which combinations may lack. */
MT_MUST_USE mt_status mt_config_read(mt_config *c, const char *path, int n_overrides, char *const *overrides,
                                     mt_err *e);
/* The first for one text of `size` bytes in memory; `name` stands for it in messages. It may not extend files.
 * */
MT_MUST_USE mt_status mt_config_parse(mt_config *c, const char *name, const char *text, size_t size,
                                      mt_err *e);

/* Checks the rules that need the number of ranks: batches and groups divide. */
MT_MUST_USE mt_status mt_config_check_world(const mt_config *c, int64_t world, mt_err *e);

/* Writes all options as YAML that mt_config_load reads back to the same values, each with its origin as a
 * comment. */
void mt_config_dump(const mt_config *c, FILE *out);

/* Over the values of all options of scope SAME: equal on all ranks of a job, or the job is refused. */
uint64_t mt_config_hash(const mt_config *c);
/* The same options as text, a line each: to show how two ranks differ. */
void mt_config_print_same(const mt_config *c, FILE *out);

/* Refuses, with MT_CONFIG, a configuration that differs from a checkpoint's in an option that is FIXED. */
MT_MUST_USE mt_status mt_config_resume_check(const mt_config *old, const mt_config *now, mt_err *e);

/* Writes the origin of an option: "default", "dir/file.yaml:12", "command line", "from another option". */
void mt_config_origin(const mt_config *c, mt_option_id id, char *out, size_t size);

/* Does `pattern`, in which * stands for any characters, match the whole of `name`? For optim.groups and
 * shard.groups. */
bool mt_config_match(const char *pattern, const char *name);

/* Writes the table of options: for a terminal, or as Markdown (configs/OPTIONS.md). `prefix`: only keys that
 * begin with it; NULL: all. Returns how many it wrote. */
int mt_config_document(FILE *out, bool markdown, const char *prefix);
#endif
