/* mesh.h: one world of ranks, cut into groups.
 *
 * world = replicas x shard ranks, replica-major; a replica's ranks hold one copy of the model between them (FSDP). Expert
 * parallelism is innermost: `ep` consecutive ranks, on one node, hold all experts of a block; rank q of a replica is slot
 * q % ep, and the ranks of one slot share that slot's experts. */
#ifndef MT_MESH_MESH_H
#define MT_MESH_MESH_H
#include "base/status.h"

/* Indices of a rank's groups, the same on every rank; the ranks of each ascend. */
enum mt_group_id {
    MT_GROUP_WORLD,   /* all ranks */
    MT_GROUP_SHARD,   /* of this replica: dense parameters are cut over it */
    MT_GROUP_SLOT,    /* of this replica and expert slot: its experts are spread over it */
    MT_GROUP_EP,      /* the ep ranks that exchange routed rows */
    MT_GROUP_REPLICA, /* ranks that hold the same shards in other replicas */
    MT_N_GROUPS
};

struct mt_mesh {
    int world, replicas, ep;
};
/* One rank's place: its group's size, and its index there. */
struct mt_place {
    int n, me;
};
/* CONFIG: replicas or ep do not divide, or a group of ep ranks would cross a node. */
MT_MUST_USE mt_status mt_mesh_init(struct mt_mesh *m, int world, int replicas, int ep, int ranks_per_node,
                                   mt_err *e);
const char *mt_mesh_group_name(enum mt_group_id g); /* "shard" */
struct mt_place mt_mesh_place(const struct mt_mesh *m, enum mt_group_id g, int rank);
/* The ranks of the group that `rank` is in, ascending, to out (place.n of them); returns how many. */
int mt_mesh_members(const struct mt_mesh *m, enum mt_group_id g, int rank, int *out);
#endif
