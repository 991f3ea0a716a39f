/* Groups of ranks against their definitions, and the pieces of those that move in two levels. */
#include "check.h"
#include "mesh/mesh.h"

enum { WORLD_MOST = 48 };

static struct mt_mesh open_mesh(int world, int replicas, int ep, int node)
{
    struct mt_mesh m = {0};
    mt_err e = {0};
    CHECK_INT(mt_mesh_init(&m, world, replicas, ep, node, &e), MT_OK);
    return m;
}

/* Whether two ranks are in one group, from the definition of each. */
static bool together(const struct mt_mesh *m, enum mt_group_id g, int a, int b)
{
    int per = m->world / m->replicas;
    bool replica = a / per == b / per, node = a / m->node == b / m->node, slot = a % m->ep == b % m->ep,
         rail = a % m->node == b % m->node;
    switch (g) {
    case MT_GROUP_SHARD: return replica;
    case MT_GROUP_SLOT: return replica && slot;
    case MT_GROUP_EP: return a / m->ep == b / m->ep;
    case MT_GROUP_REPLICA: return a % per == b % per;
    case MT_GROUP_SHARD_NODE: return mt_mesh_near(m, MT_GROUP_SHARD) ? replica && node : a == b;
    case MT_GROUP_SHARD_RAIL: return mt_mesh_near(m, MT_GROUP_SHARD) ? replica && rail : a == b;
    case MT_GROUP_SLOT_NODE: return mt_mesh_near(m, MT_GROUP_SLOT) ? replica && slot && node : a == b;
    case MT_GROUP_SLOT_RAIL: return mt_mesh_near(m, MT_GROUP_SLOT) ? replica && rail : a == b;
    default: return true;
    }
}
static void check_groups(const struct mt_mesh *m)
{
    int list[WORLD_MOST];
    for (int g = 0; g < MT_N_GROUPS; g++)
        for (int r = 0; r < m->world; r++) {
            struct mt_place p = mt_mesh_place(m, (enum mt_group_id)g, r);
            int n = mt_mesh_members(m, (enum mt_group_id)g, r, list), k = 0;
            CHECK_INT(n, p.n);
            CHECK_INT(list[p.me], r);
            for (int x = 0; x < m->world; x++)
                if (together(m, (enum mt_group_id)g, r, x)) CHECK(k < n && list[k++] == x);
            CHECK_INT(k, n);
        }
}
/* Every piece has one member; a rail's are one range, in the order of the nodes. */
static void check_pieces(const struct mt_mesh *m, enum mt_group_id g)
{
    int list[WORLD_MOST], rail[WORLD_MOST], owner[WORLD_MOST], near = mt_mesh_near(m, g);
    int n = mt_mesh_members(m, g, 0, list);
    for (int k = 0; k < n; k++) owner[k] = -1;
    for (int k = 0; k < n; k++) {
        int piece = mt_mesh_piece(m, g, k);
        if (CHECK(piece >= 0 && piece < n && owner[piece] < 0)) owner[piece] = list[k];
        if (!near) CHECK_INT(piece, k);
    }
    for (int k = 0; k < n && near; k++) {
        int nodes = mt_mesh_members(m, mt_mesh_rail_part(g), owner[k], rail);
        CHECK_INT(nodes * near, n);
        CHECK_INT(rail[k % nodes], owner[k]);
        int place = mt_mesh_place(m, mt_mesh_node_part(g), owner[k]).me;
        CHECK_INT(place, k / nodes);
    }
}

TEST(groups_and_pieces)
{
    static const int mesh[][4] = {{1, 1, 1, 4},  {4, 1, 1, 4},  {8, 1, 1, 4},  {8, 1, 2, 4},  {8, 1, 4, 4},
                                  {8, 2, 4, 4},  {8, 4, 2, 4},  {16, 2, 2, 4}, {12, 1, 1, 8}, {12, 3, 2, 2},
                                  {48, 2, 2, 8}, {48, 3, 4, 8}, {6, 1, 1, 1},  {24, 2, 1, 6}};
    for (size_t i = 0; i < sizeof mesh / sizeof mesh[0]; i++) {
        struct mt_mesh m = open_mesh(mesh[i][0], mesh[i][1], mesh[i][2], mesh[i][3]);
        for (int flat = 0; flat < 2; flat++) {
            m.flat = flat;
            check_groups(&m);
            check_pieces(&m, MT_GROUP_SHARD);
            check_pieces(&m, MT_GROUP_SLOT);
        }
    }
}

/* Two levels where a replica is several whole nodes, with several of the group's members on each. */
TEST(where_there_are_two_levels)
{
    static const struct {
        int world, replicas, ep, node, shard, slot;
    } x[] = {{8, 1, 1, 4, 4, 4}, {8, 1, 2, 4, 4, 2}, {8, 1, 4, 4, 4, 0},  {8, 2, 1, 4, 0, 0},
             {4, 1, 1, 4, 0, 0}, {4, 1, 1, 1, 0, 0}, {12, 1, 1, 8, 0, 0}, {16, 2, 2, 2, 2, 0}};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        struct mt_mesh m = open_mesh(x[i].world, x[i].replicas, x[i].ep, x[i].node);
        CHECK_INT(mt_mesh_near(&m, MT_GROUP_SHARD), x[i].shard);
        CHECK_INT(mt_mesh_near(&m, MT_GROUP_SLOT), x[i].slot);
        m.flat = true;
        CHECK_INT(mt_mesh_near(&m, MT_GROUP_SHARD), 0);
    }
}

TEST(what_cannot_be)
{
    struct mt_mesh m;
    mt_err e = {0};
    CHECK_INT(mt_mesh_init(&m, 8, 3, 1, 4, &e), MT_CONFIG);
    CHECK_INT(mt_mesh_init(&m, 8, 2, 8, 8, &e), MT_CONFIG);
    CHECK_INT(mt_mesh_init(&m, 12, 1, 6, 4, &e), MT_CONFIG);
}

int main(void)
{
    RUN(groups_and_pieces);
    RUN(where_there_are_two_levels);
    RUN(what_cannot_be);
    return DONE();
}
