/* restore.h: a load on conditions. */
#ifndef MT_CKPT_RESTORE_H
#define MT_CKPT_RESTORE_H
#include "ckpt/ckpt.h"

/* mt_ckpt_load of a checkpoint that must be of this step (else it counts as damaged), and whose configuration `now` can go on
 * from. */
MT_MUST_USE mt_status mt_ckpt_load_step(const char *path, int64_t step, const mt_config *now,
                                        const struct mt_ckpt_items *items, const struct mt_job *job,
                                        struct mt_ckpt_loaded *out, mt_err *e);
#endif
