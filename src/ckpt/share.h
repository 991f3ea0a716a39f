/* share.h: the pieces of a checkpoint that other processes hold. The first one writes the file, and fetches
 * them. */
#ifndef MT_CKPT_SHARE_H
#define MT_CKPT_SHARE_H
#include "ckpt/items.h"
#include "comm/job.h"

/* The first process of the job adds the others' pieces to its list; all processes call it, with the same
 * items. Does nothing in a job of one process. IO: no memory. */
MT_MUST_USE mt_status mt_ckpt_items_share(struct mt_ckpt_items *x, const struct mt_job *job, mt_err *e);
/* A save: the first process writes, with mt_ckpt_fetch for each piece that is not its own, and says when it
 * is over; the others serve until then. fetch: the bytes are good until the next one. */
const void *mt_ckpt_fetch(const struct mt_ckpt_items *x, const struct mt_ckpt_item *i,
                          const struct mt_ckpt_piece *p);
void mt_ckpt_fetched(const struct mt_ckpt_items *x);
void mt_ckpt_serve(const struct mt_ckpt_items *x);
#endif
