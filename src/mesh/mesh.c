#include "mesh/mesh.h"

mt_status mt_mesh_init(struct mt_mesh *m, int world, int replicas, int ep, int ranks_per_node, mt_err *e)
{
    MT_REQUIRE(world >= 1 && replicas >= 1 && world % replicas == 0, e, MT_CONFIG,
               "mesh.replicas: %d does not divide the %d ranks", replicas, world);
    MT_REQUIRE(ep >= 1 && world / replicas % ep == 0, e, MT_CONFIG,
               "mesh.ep: %d does not divide the %d ranks of a replica", ep, world / replicas);
    MT_REQUIRE(ranks_per_node % ep == 0, e, MT_CONFIG,
               "mesh.ep: %d ranks exchange routed rows inside a node, and mesh.ranks_per_node is %d: ep must "
               "divide it",
               ep, ranks_per_node);
    *m = (struct mt_mesh){world, replicas, ep, ranks_per_node, false};
    return MT_OK;
}

const char *mt_mesh_group_name(enum mt_group_id g)
{
    static const char *const name[MT_N_GROUPS] = {
        "world", "shard", "slot", "ep", "replica", "shard_node", "shard_rail", "slot_node", "slot_rail"};
    return name[g];
}

/* Replicas of whole nodes: each group then has as many members on every one. */
int mt_mesh_near(const struct mt_mesh *m, enum mt_group_id g)
{
    int per = m->world / m->replicas, near = g == MT_GROUP_SLOT ? m->node / m->ep : m->node;
    return m->flat || near < 2 || per <= m->node || per % m->node ? 0 : near;
}
enum mt_group_id mt_mesh_node_part(enum mt_group_id g)
{
    return g == MT_GROUP_SLOT ? MT_GROUP_SLOT_NODE : MT_GROUP_SHARD_NODE;
}
enum mt_group_id mt_mesh_rail_part(enum mt_group_id g)
{
    return g == MT_GROUP_SLOT ? MT_GROUP_SLOT_RAIL : MT_GROUP_SHARD_RAIL;
}
int mt_mesh_piece(const struct mt_mesh *m, enum mt_group_id g, int k)
{
    int near = mt_mesh_near(m, g), nodes = m->world / m->replicas / (m->node ? m->node : 1);
    return near ? k % near * nodes + k / near : k;
}

/* The same of a group's part. */
static void part_extent(const struct mt_mesh *m, enum mt_group_id g, int rank, int *base, int *step, int *n)
{
    bool slot = g == MT_GROUP_SLOT_NODE || g == MT_GROUP_SLOT_RAIL,
         rail = g == MT_GROUP_SHARD_RAIL || g == MT_GROUP_SLOT_RAIL;
    int per = m->world / m->replicas, near = mt_mesh_near(m, slot ? MT_GROUP_SLOT : MT_GROUP_SHARD);
    *base = rank, *step = 1, *n = 1;
    if (near && rail) *base = rank / per * per + rank % m->node, *step = m->node, *n = per / m->node;
    if (near && !rail)
        *base = rank / m->node * m->node + (slot ? rank % m->ep : 0), *step = slot ? m->ep : 1, *n = near;
}

/* Each group is the ranks base, base + step, ... of which there are n. */
static void extent(const struct mt_mesh *m, enum mt_group_id g, int rank, int *base, int *step, int *n)
{
    int per = m->world / m->replicas, replica = rank / per, q = rank % per;
    *base = 0, *step = 1, *n = m->world;
    if (g == MT_GROUP_SHARD) *base = replica * per, *n = per;
    if (g == MT_GROUP_SLOT) *base = replica * per + q % m->ep, *step = m->ep, *n = per / m->ep;
    if (g == MT_GROUP_EP) *base = rank - q % m->ep, *n = m->ep;
    if (g == MT_GROUP_REPLICA) *base = q, *step = per, *n = m->replicas;
    if (g >= MT_GROUP_SHARD_NODE) part_extent(m, g, rank, base, step, n);
}

struct mt_place mt_mesh_place(const struct mt_mesh *m, enum mt_group_id g, int rank)
{
    int base, step, n;
    extent(m, g, rank, &base, &step, &n);
    return (struct mt_place){n, (rank - base) / step};
}

int mt_mesh_members(const struct mt_mesh *m, enum mt_group_id g, int rank, int *out)
{
    int base, step, n;
    extent(m, g, rank, &base, &step, &n);
    for (int i = 0; i < n; i++) out[i] = base + i * step;
    return n;
}
