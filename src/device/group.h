/* group.h: the ranks of a collective inside one process, and where they meet.
 *
 * A collective that a member's stream has reached arrives and parks: nothing waits or polls. The last arrival
 * makes one ready piece of work a member, in which it pulls its pieces from the others; all complete when all
 * have pulled, so a buffer is free for its owner when its own collective is done. Each stream has its own
 * meeting, whose order is the order of the program on every rank. A group of one goes the same way.
 *
 * A group whose members are in several processes, one in each, has a wire instead: its member's collective is
 * started on it, and tested until it is over. */
#ifndef MT_DEVICE_GROUP_H
#define MT_DEVICE_GROUP_H
#include "base/status.h"
#include "device/device.h"
#include "device/move.h"

struct mt_member {
    void *rank, *node; /* the executor's */
};
struct mt_meeting {
    int arrived, pulled;
    struct mt_member *at; /* by member; empty until it arrives */
    void **src;           /* by member: what it contributes */
    char sync[2];         /* names of "all have arrived" and "all have pulled" for ThreadSanitizer */
};
/* Moves between processes. A stream has one collective at a time on a wire; start and test may be called by
 * any thread, for different streams at once, and neither waits. */
struct mt_wire {
    void (*start)(struct mt_wire *w, int stream,
                  const struct mt_move *move);   /* one a member; kept until over */
    bool (*test)(struct mt_wire *w, int stream); /* is it over? */
    void (*close)(struct mt_wire *w);
};
/* What members in several processes tell each other of a collective before it moves anything, if they do. */
struct mt_greeting {
    struct mt_collective what;
    struct mt_exchange_peer peer; /* of an exchange: this member's plan with the other */
};
struct mt_group {
    struct mt_wire *wire;         /* owned; NULL: all members are in this process */
    struct mt_move *move;         /* with a wire: [stream][n] */
    struct mt_greeting *greeting; /* likewise: [stream][to, from][n] */
    int n;
    int *rank; /* ascending */
    struct mt_meeting meet[MT_N_STREAMS];
};
/* ranks: ascending, n of them; copied. IO: no memory. */
MT_MUST_USE mt_status mt_group_open(struct mt_group **group, const int *ranks, int n, mt_err *e);
/* Gives the group a wire, which it then owns, whatever becomes of the call. IO: no memory. */
MT_MUST_USE mt_status mt_group_carry(struct mt_group *group, struct mt_wire *wire, mt_err *e);
void mt_group_close(struct mt_group *group); /* NULL is fine */
/* Index of a rank among n ascending ones, -1 if it is not there. */
int mt_group_in(const int *ranks, int n, int rank);
/* Index of a rank in the group, -1 if it is no member. */
int mt_group_member(const struct mt_group *group, int rank);

/* Bytes from piece to piece in what a scatter delivers: the largest piece, so that all ranks share one
 * layout. */
static inline int64_t mt_piece_stride(int64_t units, int64_t unit, int64_t n)
{
    return (units + n - 1) / n * unit;
}
#endif
