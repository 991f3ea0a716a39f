/* sweep.h: a sweep file: which configurations are to be run, and how they are compared.
 *
 *   extends: ../quickstart.yaml
 *   set: {train.steps: 20}                                      # of every point
 *   grid: {shard.prefetch: [1, 2], recompute.policy: [full, none]}   # every combination
 *   zip: {train.micro_batch: [1, 2], train.global_batch: [8, 16]}    # the first of each, the second of each, ...
 *   list: [{optim.lr: 1e-3}, {optim.lr: 3e-3, optim.warmup_steps: 20}]
 *   where: train.micro_batch * shard.prefetch <= 2              # config/expr.h
 *   baseline: {shard.prefetch: 1, recompute.policy: full}
 *   repeats: 3                                                  # and what else config/sweep.def has
 *
 * Sections may be written as in a configuration: `train: {steps: 20}`. Points are the product of grid, zip and list, in that
 * order of speed: the last key of the grid changes first. */
#ifndef MT_CONFIG_SWEEP_H
#define MT_CONFIG_SWEEP_H
#include "config/config.h"

enum { MT_SWEEP_POINTS = 4096, MT_SWEEP_SETTINGS = 64, MT_SWEEP_BLOCKS = 48, MT_SWEEP_CONDITIONS = 16 };

typedef struct mt_sweep_options {
#define MT_SWEEP(key, field, type, def, limit, doc) MT_MEMBER_##type(field, limit)
#include "config/sweep.def"
} mt_sweep_options;

struct mt_setting {
    mt_option_id option;
    char *text; /* owned; equal values have equal texts */
};
/* Settings that belong together. */
struct mt_sweep_row {
    int n;
    struct mt_setting *setting; /* owned */
};
/* Rows of which a point has one: the values of a key of the grid, those that are zipped, or the list. */
struct mt_sweep_block {
    int n;
    struct mt_sweep_row *row; /* owned */
    int line, col;
};
/* All settings of a point, set's first; texts are the sweep's. */
struct mt_sweep_point {
    int n;
    struct mt_setting setting[MT_SWEEP_SETTINGS];
    int own; /* the first that is not from `set` */
};
typedef struct mt_sweep {
    mt_sweep_options o;
    char name[MT_CONFIG_PATH]; /* the file */
    char base[MT_CONFIG_PATH]; /* that it extends, seen from here; "": none */
    struct mt_sweep_row set, baseline;
    struct mt_sweep_block block[MT_SWEEP_BLOCKS];
    int n_blocks;
    char *where[MT_SWEEP_CONDITIONS]; /* owned */
    int where_line[MT_SWEEP_CONDITIONS], where_col[MT_SWEEP_CONDITIONS];
    int n_where;
    struct mt_sweep_point *point; /* owned: [n], after mt_sweep_expand */
    int n, at_baseline;           /* baseline: of point; the first where none is said */
    int left_out;                 /* combinations for which `where` does not hold */
} mt_sweep;

/* Reads file or text; CONFIG names file, line and column. mt_sweep_close is due whatever came of it. */
MT_MUST_USE mt_status mt_sweep_open(mt_sweep *s, const char *path, mt_err *e);
MT_MUST_USE mt_status mt_sweep_parse(mt_sweep *s, const char *name, const char *text, size_t size, mt_err *e);
void mt_sweep_close(mt_sweep *s);
/* The points. A baseline that is none of them is added in front. CONFIG: too many, none, or a condition that is none. */
MT_MUST_USE mt_status mt_sweep_expand(mt_sweep *s, mt_err *e);
/* The base with a point's settings. As mt_config_load, or up to the rules (mt_config_read). */
MT_MUST_USE mt_status mt_sweep_config(const mt_sweep *s, const struct mt_sweep_point *p, bool rules,
                                      mt_config *c, mt_err *e);
/* What a point has beside `set`, as "key=value key=value"; "as set" if nothing. Returns out. */
char *mt_sweep_words(const struct mt_sweep_point *p, char *out, size_t size);
/* The point's value of an option; NULL: it does not set it. */
const char *mt_sweep_value(const struct mt_sweep_point *p, mt_option_id option);
#endif
