/* exports.h: weights of a run's checkpoints for Hugging Face, written by a process of their own while training goes on: `moetitan ckpt export`.
 * All by the first process of a job. What fails is told, and no more. */
#ifndef MT_TRAIN_EXPORTS_H
#define MT_TRAIN_EXPORTS_H
#include "comm/job.h"
#include "config/config.h"
#include "launch/spawn.h"

struct mt_exports {
    bool asked; /* by a file in the run's folder: the next checkpoint is exported */
    struct mt_child child;
    int64_t step;     /* of the checkpoint that it reads, which must stay; 0: none is under way */
    int64_t left_out; /* the last checkpoint that came due meanwhile; 0 */
    double begun;
    char to[MT_CONFIG_PATH + 32];
};
/* CONFIG: what the exports of each checkpoint are to be given is not there. */
MT_MUST_USE mt_status mt_exports_check(const mt_config *c, mt_err *e);
/* There is a checkpoint of this step in run.dir: starts an export of it, if there is to be one. One that comes due while another is under
 * way is left out, and told; what a file has asked for waits for the next checkpoint. */
void mt_exports_saved(struct mt_exports *x, const mt_config *c, const struct mt_job *job, int64_t step);
/* Likewise, where the checkpoint was there before: only if a file has asked for it. */
void mt_exports_here(struct mt_exports *x, const mt_config *c, const struct mt_job *job, int64_t step);
/* Tells the end of the one under way, if it has ended. Does not wait. */
void mt_exports_look(struct mt_exports *x, const mt_config *c, const struct mt_job *job);
/* Waits so many seconds at most for the one under way, and for that of the run's last checkpoint if it was left out for it, then gives
 * up. */
void mt_exports_end(struct mt_exports *x, const mt_config *c, const struct mt_job *job, double seconds);
#endif
