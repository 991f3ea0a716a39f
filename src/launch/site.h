/* site.h: a cluster's Slurm as a site file describes it, and what the command line changes. */
#ifndef MT_LAUNCH_SITE_H
#define MT_LAUNCH_SITE_H
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"

typedef enum mt_choice_chain { MT_CHAIN_NONE, MT_CHAIN_SELF, MT_CHAIN_DEPENDENCY } mt_choice_chain;

struct mt_site {
#define MT_SITE(field, type, def, limit, doc) MT_MEMBER_##type(field, limit)
#include "launch/site.def"
    char file[MT_CONFIG_PATH]; /* it was read from */
};
const char *mt_chain_name(mt_choice_chain c); /* "self" */

/* The defaults, then the file: a path, or NAME for slurm/sites/NAME.yaml here or where moetitan is installed. CONFIG, with
 * file:line:col, or with what there is. */
MT_MUST_USE mt_status mt_site_load(struct mt_site *s, const char *name, mt_err *e);
/* The words with "--flag=value" as two of them, up to a bare "--"; *argc becomes their number. In one piece, to be freed; NULL: no
 * memory. */
char **mt_site_words(int *argc, char **argv);
/* What follows in a message on a flag that there is not: "; did you mean --nodes?" or ";", in out. */
const char *mt_site_meant(const char *flag, char out[static 96]);
/* "--tasks-per-node" and "4". *known is false, and nothing else happens, if there is no such flag. CONFIG: no such value. */
MT_MUST_USE mt_status mt_site_flag(struct mt_site *s, const char *flag, const char *value, bool *known,
                                   mt_err *e);
/* The text of a template of this site (s->template): beside the site file's folder, or a path. Owned by the caller. */
MT_MUST_USE mt_status mt_site_template(const struct mt_site *s, const char *name, struct mt_text *text,
                                       mt_err *e);
/* Seconds or Slurm's form as Slurm's form: "12h" is "12:00:00". CONFIG: neither. */
MT_MUST_USE mt_status mt_site_time(const char *time, char out[static 32], mt_err *e);
/* A line for each flag. */
void mt_site_usage(FILE *f);
/* A file that moetitan brings, as "slurm/sites/jupiter.yaml": below the working folder, else below PREFIX/share/moetitan of this
 * program. False: in neither. */
bool mt_site_shared(const char *name, char *out, size_t size);
#endif
