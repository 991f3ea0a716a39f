/* held.h: a checkpoint as far as one folder holds it: all of a run's, or what a node has of one on the nodes' own disks (tier.h).
 * There node.json says whose files they are: {"own": [0, 1], "copies": [2, 3]}, ranks. It is no part of the checkpoint, and loading
 * does not read it. */
#ifndef MT_CKPT_HELD_H
#define MT_CKPT_HELD_H
#include "ckpt/source.h"

struct mt_held {
    struct mt_source s; /* of the files here alone */
    bool local;         /* on a node's own disk; then */
    bool *own;          /* [s.n], owned: of a rank of this node; else the copy of another's */
    int n_own, world;   /* world: ranks that have files, here or elsewhere */
};
/* CKPT: as mt_source_open, or node.json is damaged. A failure leaves nothing to close. */
MT_MUST_USE mt_status mt_held_open(struct mt_held *h, const char *path, mt_err *e);
void mt_held_close(struct mt_held *h);
/* To FOLDER/node.json, on the disk: of the ranks that have files there, which are this node's. own: [world] */
MT_MUST_USE mt_status mt_held_write(const char *folder, const bool *own, const bool *here, int world,
                                    mt_err *e);
#endif
