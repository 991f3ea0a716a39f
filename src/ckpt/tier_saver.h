/* tier_saver.h: what a save to the nodes' own disks does once the writers of all processes have written their files. */
#ifndef MT_CKPT_TIER_SAVER_H
#define MT_CKPT_TIER_SAVER_H
#include "ckpt/buddy.h"
#include "ckpt/parts.h"

struct mt_tier_saver {
    const struct mt_tier *t; /* borrowed, as are */
    const struct mt_publishing *what;
    struct mt_tier_file *file; /* [world], owned: of all, once they are gathered */
    struct mt_buddy buddy;
};
struct mt_tier_copies {
    char *buffer; /* borrowed, of `slice` bytes */
    int64_t slice;
};
/* t: NULL: there is no such tier, and nothing is done. IO: no memory. mt_tier_saver_close is due even so. */
MT_MUST_USE mt_status mt_tier_saver_open(struct mt_tier_saver *x, const struct mt_tier *t,
                                         struct mt_tier_copies copies, const struct mt_publishing *what,
                                         mt_err *e);
void mt_tier_saver_close(struct mt_tier_saver *x);
/* All processes, while no executor has work, with the files of the present save written: sizes and checksums of all ranks' files
 * to all, and the exchange with the buddy begins. A failure is this process's alone. */
MT_MUST_USE mt_status mt_tier_saver_gather(struct mt_tier_saver *x, const struct mt_parts *parts, mt_err *e);
/* For one thread of the first process of a node: mt_tier_publish, mt_tier_prune and mt_tier_drop of the present save. */
MT_MUST_USE mt_status mt_tier_saver_publish(void *x, mt_err *e);
MT_MUST_USE mt_status mt_tier_saver_prune(void *x, mt_err *e);
MT_MUST_USE mt_status mt_tier_saver_drop(void *x, mt_err *e);
#endif
