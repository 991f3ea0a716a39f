/* mesh.h: one world of ranks, cut into groups.
 *
 * world = replicas x shard ranks, replica-major; a replica's ranks hold one copy of the model between them (FSDP). Expert
 * parallelism is innermost: `ep` consecutive ranks, on one node, hold all experts of a block; rank q of a replica is slot
 * q % ep, and the ranks of one slot share that slot's experts.
 *
 * A group that lies over several nodes with several members on each moves in two levels: between nodes among the members at
 * one place of their nodes (a rail), and inside the nodes. A node then needs what comes from outside once, not once a rank. */
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
    /* Of the groups that two levels move, this rank's node and its rail; elsewhere this rank alone. */
    MT_GROUP_SHARD_NODE,
    MT_GROUP_SHARD_RAIL,
    MT_GROUP_SLOT_NODE,
    MT_GROUP_SLOT_RAIL,
    MT_N_GROUPS
};

struct mt_mesh {
    int world, replicas, ep;
    int node;  /* ranks on one */
    bool flat; /* one level everywhere */
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

/* Members that group g (shard or slot) has on each of its nodes where it moves in two levels; 0 where it moves in one. */
int mt_mesh_near(const struct mt_mesh *m, enum mt_group_id g);
enum mt_group_id mt_mesh_node_part(enum mt_group_id g);
enum mt_group_id mt_mesh_rail_part(enum mt_group_id g);
/* Which piece of what is cut over group g its member k has: pieces lie rail by rail, so that those of a rail are one range
 * of the whole. In one level k itself. */
int mt_mesh_piece(const struct mt_mesh *m, enum mt_group_id g, int k);
#endif
