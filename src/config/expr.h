/* expr.h: conditions over options, as the `where` of a sweep has them.
 *
 *   train.micro_batch * shard.prefetch <= 8 and (recompute.policy != none or offload.masters == host)
 *
 * Names with a dot are options; a word without one, or text in quotes, is the text of a value. Numbers may have the units of
 * options (64Ki, 8GiB, 30s). By falling strength: - and not before a value; * / %; + -; == != < <= > >=; and; or. */
#ifndef MT_CONFIG_EXPR_H
#define MT_CONFIG_EXPR_H
#include "config/config.h"

/* Whether the condition holds for a configuration. False is returned, and `why` says where and what is wrong, if it is no
 * condition: no such option, text where a number is needed, a division by zero, not the form above. */
bool mt_expr_holds(const char *text, const mt_config *c, bool *holds, char why[static MT_VALUE_WHY]);
#endif
