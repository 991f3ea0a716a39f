/* move.h: a collective as one member sees it: what it sends to and receives from every member, itself too. */
#ifndef MT_DEVICE_MOVE_H
#define MT_DEVICE_MOVE_H
#include "device/op.h"

struct mt_move {
    const char *src; /* to that member */
    char *dst;       /* from that member */
    int64_t out, in; /* bytes; what one member sends is what the other receives */
};
/* move: one a member. c: of kind COMM, its letters R (members) and I (this one) bound, its source this
 * member's own, its cut, if it names one, resolved to the address of the table. */
void mt_moves_of(const struct mt_call *c, struct mt_move *move);
#endif
