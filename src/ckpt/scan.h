/* scan.h: a checkpoint's tensors read one after another, in the order of the list, and verified on the way. */
#ifndef MT_CKPT_SCAN_H
#define MT_CKPT_SCAN_H
#include "ckpt/source.h"

struct mt_scan {
    const struct mt_source *s; /* borrowed, as is the list of mt_source_list_all */
    const struct mt_stored_list *list;
    struct mt_sum *sum; /* owned */
    int fd, file;       /* open; -1 */
    char path[MT_SOURCE_FILE];
    int64_t piece, done; /* the one at hand, and bytes of it that are read or skipped */
    bool from_start;     /* none of it was skipped, so that its end can be verified */
};
/* At the first piece. IO: no memory. mt_scan_close is due even so. */
MT_MUST_USE mt_status mt_scan_open(struct mt_scan *r, const struct mt_source *s,
                                   const struct mt_stored_list *list, mt_err *e);
void mt_scan_close(struct mt_scan *r);
/* Goes on at a row of a piece, counted within it. */
void mt_scan_seek(struct mt_scan *r, int64_t piece, int64_t row);
/* The next bytes, of as many pieces as it takes. Where a piece ends that was read from its start, its checksum is compared:
 * CKPT names file, tensor and rows. */
MT_MUST_USE mt_status mt_scan_read(struct mt_scan *r, void *to, int64_t bytes, mt_err *e);
/* Verifies the piece at hand by reading what is left of it, if it was begun at its start. */
MT_MUST_USE mt_status mt_scan_finish(struct mt_scan *r, void *buffer, int64_t room, mt_err *e);
#endif
