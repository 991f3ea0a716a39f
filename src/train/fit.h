/* fit.h: whether a run fits the memory it is given. */
#ifndef MT_TRAIN_FIT_H
#define MT_TRAIN_FIT_H
#include "train/savings.h"
#include "train/session.h"

/* What a process takes besides its arenas: bounds, measured by a test. docs/memory.md says of what they consist. */
enum {
    MT_FIT_PROCESS_BYTES = 32 << 20, /* program and libraries, the recording and the layout of start-up */
    MT_FIT_RANK_BYTES = 1 << 20      /* queue, stack, descriptions */
};
/* The same of a session's processes on this machine, with the scratch memory of their workers. */
int64_t mt_fit_outside(const struct mt_session *s);

/* A laid-out session against device.memory and host.memory, and all its ranks on this machine against the memory of that.
 * NOFIT: what is needed, what there is, which options would make it fit and by how much, and the table of what takes the
 * memory. */
MT_MUST_USE mt_status mt_fit_check(const struct mt_session *s, mt_err *e);
/* The same against a machine of another size. */
MT_MUST_USE mt_status mt_fit_check_machine(const struct mt_session *s, int64_t machine_bytes, bool by_cgroup,
                                           mt_err *e);
#endif
