/* assign.h: which optimizer takes which parameter: the patterns of optim.groups, first match wins. */
#ifndef MT_OPTIM_ASSIGN_H
#define MT_OPTIM_ASSIGN_H
#include "config/config.h"
#include "shard/store.h"

/* Sets optimizer, heads, lr_scale and weight_decay of every tensor of the store. arg: the const mt_config *. A routed expert's
 * tensors go by the name of expert 0: the experts of a block share one group. Errors (CONFIG): a pattern that matches
 * nothing, a parameter no pattern covers, Muon on a vector, SOAP or Shampoo on a matrix that ranks share. */
MT_MUST_USE mt_status mt_optim_assign(struct mt_store *s, void *arg, mt_err *e);
#endif
