/* slurm.h: what is asked of Slurm, by its own programs. */
#ifndef MT_LAUNCH_SLURM_H
#define MT_LAUNCH_SLURM_H
#include "base/status.h"

enum { MT_SLURM_ID = 32 };

/* Queues the script; `flags` (ended by NULL; NULL: none) win over its directives. CONFIG: Slurm refused it, with Slurm's words, or took
 * it over the limits of its partition, where it would wait for ever;
 * IO: there is no sbatch. */
MT_MUST_USE mt_status mt_slurm_submit(const char *script, const char *const *flags,
                                      char id[static MT_SLURM_ID], mt_err *e);
/* The job's state as Slurm calls it: "RUNNING", "CANCELLED by 1000", or "CANCELLED" where it keeps no accounts; "" if it does not
 * know the job (any more). */
void mt_slurm_state(const char *id, char state[static 64]);
/* Did a person cancel the job? Slurm's own cancellations are by user 0. */
bool mt_slurm_by_person(const char *state);
/* Takes it from the queue, if it is still there and has not begun. False: Slurm could not be asked. */
bool mt_slurm_cancel_pending(const char *id);
/* The job, which waits, stays away from the nodes. False: Slurm did not agree. */
bool mt_slurm_exclude(const char *id, const char *nodes);
#endif
