/* fetch.h: the bytes of a deal: read, verified, passed on. */
#ifndef MT_CKPT_FETCH_H
#define MT_CKPT_FETCH_H
#include "ckpt/deal.h"
#include "ckpt/source.h"

/* Fills what the deal's copies and arrivals point to. All processes of the job; they leave together, with the same status: CKPT
 * names file, tensor and rows that are damaged, IO what the system refused. */
MT_MUST_USE mt_status mt_fetch(const struct mt_source *s, const struct mt_ckpt_items *items,
                               const struct mt_deal *d, const struct mt_job *job, mt_err *e);
#endif
