/* history.h: complete checkpoints that were passed over, for a message. */
#ifndef MT_CKPT_HISTORY_H
#define MT_CKPT_HISTORY_H
#include "ckpt/ckpt.h"

/* How many, and the names of the first. */
struct mt_damaged {
    int64_t n;
    size_t used;
    char names[256];
};
void mt_damaged_add(struct mt_damaged *d, int64_t step);
/* CKPT: there is none but these. */
MT_MUST_USE mt_status mt_damaged_refuse(const struct mt_damaged *d, const char *run_dir, const char *advice,
                                        mt_err *e);
#endif
