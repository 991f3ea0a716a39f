/* restore.h: a load on conditions. */
#ifndef MT_CKPT_RESTORE_H
#define MT_CKPT_RESTORE_H
#include "ckpt/ckpt.h"
#include "ckpt/deal.h"

struct mt_ckpt_demand {
    int64_t step;         /* the checkpoint must be of it, else it counts as damaged; -1: any */
    const mt_config *now; /* which must be able to go on from its configuration; NULL: any */
    bool weights_only;
    struct mt_deal_budget budget;
    bool
        local; /* each process has a folder `path` of its own, with some of the files: what they list is the same */
};
MT_MUST_USE mt_status mt_ckpt_load_as(const char *path, const struct mt_ckpt_demand *want,
                                      const struct mt_ckpt_items *items, const struct mt_job *job,
                                      struct mt_ckpt_loaded *out, mt_err *e);
#endif
