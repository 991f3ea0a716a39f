/* buddy.h: the files of a process's ward, copied from its node to this one.
 *
 * Every process sends its rank's two files to its buddy and writes those of its ward, a slice of both at a time, between two steps:
 * messages of the job are for then (comm/job.h). What is sent is read from the files; both ends compare checksums. */
#ifndef MT_CKPT_BUDDY_H
#define MT_CKPT_BUDDY_H
#include "ckpt/sum.h"
#include "ckpt/tier.h"

struct mt_buddy_end {
    int rank; /* whose files; -1: none */
    bool writes;
    int fd;             /* open; -1 */
    int64_t at, bytes;  /* of both files, one behind the other */
    struct mt_sum *sum; /* owned */
};
struct mt_buddy {
    const struct mt_tier *t; /* borrowed, as are */
    char *buffer;            /* of `slice` bytes, */
    int64_t slice;
    const struct mt_tier_file *file; /* and [world] */
    char folder[MT_CKPT_PATH];
    struct mt_buddy_end out, in;
};
/* IO: no memory. mt_buddy_close is due even so. */
MT_MUST_USE mt_status mt_buddy_open(struct mt_buddy *b, const struct mt_tier *t, char *buffer, int64_t slice,
                                    const struct mt_tier_file *file, mt_err *e);
void mt_buddy_close(struct mt_buddy *b);
/* By the table as it is now. Files of an earlier exchange that was given up are closed. */
void mt_buddy_begin(struct mt_buddy *b, const char *folder);
/* Whether this process has something to send or receive still. */
bool mt_buddy_left(const struct mt_buddy *b);
/* The next slice: all processes, while no executor has work. When the last one is done the copy is on the disk. A failure is this
 * process's alone, and the exchange has gone on: the copy is of no use. */
MT_MUST_USE mt_status mt_buddy_slice(struct mt_buddy *b, mt_err *e);
#endif
