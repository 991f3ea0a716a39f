/* comm.h: communicators: which ranks a collective of the op table joins, and what carries it.
 *
 * A communicator only moves pieces, on the stream it is called on; every sum is an op behind it. Its groups
 * are entered in the ranks' tables (mt_ctx.group), which the `comm` scalar of a collective indexes
 * (mesh/mesh.h). */
#ifndef MT_COMM_COMM_H
#define MT_COMM_COMM_H
#include "comm/job.h"
#include "device/device.h"

struct mt_comm {
    struct mt_group **group; /* owned */
    int n;
};

/* Members of the group `id` that `rank` is in: writes them, ascending, and returns how many. */
typedef int mt_comm_members(const void *arg, int id, int rank, int *out);

/* All ranks of a world in one process: data moves through the device's stream-ordered operations alone.
 * n_groups groups a rank, as `members` says (NULL: one, the world). IO: no memory. */
MT_MUST_USE mt_status mt_comm_open_threads(struct mt_comm *c, struct mt_ctx *const ctxs[], int n,
                                           int n_groups, mt_comm_members *members, const void *arg,
                                           mt_err *e);
/* The same for a job: of one process by threads; of several, ctxs is this one's rank, and the groups' wires
 * are the job's. All processes call it together. */
MT_MUST_USE mt_status mt_comm_open(struct mt_comm *c, const struct mt_job *job, struct mt_ctx *const ctxs[],
                                   int n_groups, mt_comm_members *members, const void *arg, mt_err *e);
/* After the executor of its ranks is closed; before the job is. */
void mt_comm_close(struct mt_comm *c);
#endif
