/* comm.h: communicators: which ranks a collective of the op table (gather, scatter) joins, and what carries
 * it.
 *
 * A communicator only moves pieces, on the stream it is called on; every sum is an op behind it. Its groups
 * are entered in the ranks' tables (mt_ctx.group), which the `comm` scalar of a collective indexes. */
#ifndef MT_COMM_COMM_H
#define MT_COMM_COMM_H
#include "base/status.h"
#include "device/device.h"
#include "device/group.h"

struct mt_comm {
    struct mt_group *group[MT_MAX_GROUPS]; /* owned */
    int n;
};

/* One rank alone: its world is itself. IO: no memory. */
MT_MUST_USE mt_status mt_comm_open_self(struct mt_comm *c, struct mt_ctx *ctx, mt_err *e);
/* n ranks of one process, in ascending order of rank; the world is all of them. IO: no memory. */
MT_MUST_USE mt_status mt_comm_open_threads(struct mt_comm *c, struct mt_ctx *const ctxs[], int n, mt_err *e);
/* After the executor of its ranks is closed. */
void mt_comm_close(struct mt_comm *c);
#endif
