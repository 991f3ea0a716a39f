/* rule.h: options that follow others, and the rules between options. */
#ifndef MT_CONFIG_RULE_H
#define MT_CONFIG_RULE_H
#include "config/config.h"

/* Replaces zeros that stand for another option's value by that value. */
void mt_config_resolve(mt_config *c);

/* Checks the rules that hold for any number of ranks. */
MT_MUST_USE mt_status mt_config_check(const mt_config *c, mt_err *e);
#endif
