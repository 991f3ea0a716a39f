/* reshard.h: a checkpoint written again in another number of files. */
#ifndef MT_CKPT_RESHARD_H
#define MT_CKPT_RESHARD_H
#include "ckpt/ckpt.h"

enum { MT_RESHARD_MOST = 4096 };

/* Writes what `from` holds, verified while it is read, to the folder `to`, which must not be there yet, as the files of `ranks`
 * ranks (up to MT_RESHARD_MOST) of nearly equal size, by several threads with a buffer each; the manifest last, everything
 * fsynced. After a failure nothing of it is left. CKPT names file and tensor; IO. progress: see mt_ckpt_verify_told. */
MT_MUST_USE mt_status mt_ckpt_reshard(const char *from, const char *to, int ranks,
                                      struct mt_progress *progress, mt_err *e);
#endif
