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
    *m = (struct mt_mesh){world, replicas, ep};
    return MT_OK;
}

const char *mt_mesh_group_name(enum mt_group_id g)
{
    static const char *const name[MT_N_GROUPS] = {"world", "shard", "slot", "ep", "replica"};
    return name[g];
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
